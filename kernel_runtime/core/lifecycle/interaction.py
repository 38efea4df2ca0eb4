"""People and programs talking to a running execution: input and interrupts."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kernel_runtime.core.blocked import blocked_of, is_secret, on_terminal
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.lifecycle.queue import SYSTEM, Result, abort, is_running, ladder_result, refuse
from kernel_runtime.core.lifecycle.state import Ladder, Policy, Running, State
from kernel_runtime.errors import NotBlocked, SessionBusy, UsageError
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft

TERMINAL_LINE = 4094
"""bytes of a line that a terminal holds, without its end; what is longer it cuts"""


def input_asked(state: State, event: m.InputAsked, now: int, policy: Policy) -> Result:
    if not is_running(state, event.msg_id):
        return state, []
    assert state.running is not None
    running = state.running
    if event.on and running.blocked is not None and not on_terminal(running.blocked):
        return state, []  # the cell's own question comes first: what reads the terminal reads on
    fact = f.InputRequested(
        execution_id=running.execution.execution_id,
        prompt=event.prompt,
        password=event.password,
        position=event.position,
        on=event.on,
        pid=event.pid,
        command=list(event.command),
        echo=event.echo,
    )
    drafts: list[Draft] = []
    commands: list[m.Command] = []
    if on_terminal(running.blocked):
        why = "another process reads" if event.on else "the cell itself asks"
        withdrawn, commands = _withdraw(state, running, why)
        drafts.append(withdrawn)
    drafts.append(Draft(fact, SYSTEM, state.incarnation))
    after = replace(state, running=replace(running, blocked=blocked_of(fact, event.since)))
    return after, [m.Append(drafts=tuple(drafts)), *commands]


def input_gone(state: State, event: m.InputGone, now: int, policy: Policy) -> Result:
    running = state.running
    if running is None or running.execution.execution_id != event.execution_id:
        return state, []
    if not on_terminal(running.blocked):
        return state, []  # answered meanwhile, or it is the cell that asks
    draft, commands = _withdraw(state, running, event.reason)
    after = replace(state, running=replace(running, blocked=None))
    return after, [m.Append(drafts=(draft,)), *commands]


def _withdraw(state: State, running: Running, reason: str) -> tuple[Draft, list[m.Command]]:
    execution_id = running.execution.execution_id
    fact = f.InputWithdrawn(execution_id=execution_id, reason=reason)
    return Draft(fact, SYSTEM, state.incarnation), [m.WithdrawInput(execution_id=execution_id)]


def answered(state: State, event: m.Answered, now: int, policy: Policy) -> Result:
    running = state.running
    asked = running is not None and running.blocked is not None
    if running is None or not asked or event.execution_id not in (None, running.execution.execution_id):
        return refuse(
            state,
            event.token,
            NotBlocked(
                f"nothing in session {state.session!r} waits for this answer",
                hint="somebody may have answered already: see `krt status`",
                session=state.session,
            ),
        )
    assert running.blocked is not None
    too_long = len((event.text or "").encode("utf-8", "replace")) > TERMINAL_LINE
    if too_long and on_terminal(running.blocked):
        return refuse(
            state,
            event.token,
            UsageError(
                f"a terminal takes {TERMINAL_LINE} bytes at a time; the rest would be lost",
                hint="give the program a file to read, or answer in parts",
                session=state.session,
            ),
        )
    execution_id = running.execution.execution_id
    secret = is_secret(running.blocked)
    answer = m.TypeInput if on_terminal(running.blocked) else m.SendInput
    fact = f.InputAnswered(
        execution_id=execution_id, value=None if secret or event.eof else event.text, eof=event.eof
    )
    after = replace(state, running=replace(running, blocked=None))
    return after, [
        m.Append(drafts=(Draft(fact, event.principal, state.incarnation),)),
        answer(text=event.text, eof=event.eof),
        m.WithdrawInput(execution_id=execution_id),
        m.Respond(token=event.token, result={"execution_id": execution_id}),
    ]


def interrupted(state: State, event: m.Interrupted, now: int, policy: Policy) -> Result:
    wanted = event.execution_id
    queued = [pending for pending in state.queue if pending.execution_id == wanted]
    if queued:
        after, drafts, ends = abort(state, queued, {"interrupted": "while it was queued"}, None)
        asked = f.InterruptRequested(reached="queue", execution_id=wanted)
        result = _reached("queue", wanted)
        return after, [
            m.Append(drafts=(Draft(asked, event.principal, state.incarnation), *drafts), sync=True),
            *ends,
            m.Respond(token=event.token, result=result),
        ]
    if wanted is not None and (state.running is None or state.running.execution.execution_id != wanted):
        return state, [m.Respond(token=event.token, result=_reached("nothing-running", wanted))]
    if state.running is None:
        if state.kernel == "starting":
            return refuse(
                state,
                event.token,
                SessionBusy(
                    f"the kernel of session {state.session!r} is starting; there is nothing to interrupt yet",
                    hint=f"wait, or `krt stop {state.session}`",
                    session=state.session,
                ),
            )
        return state, [m.Respond(token=event.token, result=_reached("nothing-running", None))]
    if state.ladder is not None:
        ladder = replace(state.ladder, tokens=(*state.ladder.tokens, event.token))
        return replace(state, ladder=ladder), []
    ladder = Ladder(
        execution_id=state.running.execution.execution_id,
        principal=event.principal,
        reached="message",
        since=now,
        steps=("message",),
        tokens=(event.token,),
    )
    return _climb(state, ladder, now)


def _reached(what: str, execution_id: str | None) -> dict[str, Any]:
    return {"reached": what, "execution_id": execution_id, "ended": True, "steps": [], "offer": None}


def _climb(state: State, ladder: Ladder, now: int) -> Result:
    assert state.running is not None
    fact = f.InterruptRequested(reached=ladder.reached, execution_id=ladder.execution_id)
    running = replace(state.running, interrupts=(*state.running.interrupts, (ladder.reached, now)))
    return replace(state, ladder=ladder, running=running), [
        m.Append(drafts=(Draft(fact, ladder.principal, state.incarnation),)),
        m.SendInterrupt(how=ladder.reached, msg_id=running.execution.msg_id),
    ]


def ladder_due(state: State, now: int, policy: Policy) -> Result | None:
    """The next rung, when its time has come."""
    ladder = state.ladder
    if ladder is None:
        return None
    if ladder.reached == "message" and now >= ladder.since + policy.message_patience:
        higher = replace(ladder, reached="signal", since=now, steps=(*ladder.steps, "signal"))
        return _climb(state, higher, now)
    if ladder.reached == "signal" and now >= ladder.since + policy.signal_patience:
        result = ladder_result(ladder, ended=False, session=state.session)
        return replace(state, ladder=None), [m.Respond(token=token, result=result) for token in ladder.tokens]
    return None
