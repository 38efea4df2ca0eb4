"""The queue and the one place where an execution gets its outcome."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.lifecycle import outcome
from kernel_runtime.core.lifecycle.state import Ladder, Pending, Policy, Running, State
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft

SYSTEM = "system"
Commands = list[m.Command]
Result = tuple[State, Commands]


def refuse(state: State, token: Any, error: Any) -> Result:
    return state, [m.Refuse(token=token, error=error)]


def may_dispatch(state: State, now: int, policy: Policy) -> bool:
    if state.kernel != "up" or state.running is not None or not state.queue:
        return False
    if state.restarting or state.stopping:
        return False
    # a kernel that announced its exit would take the request with it
    return state.exit_announced is None or now - state.exit_announced >= policy.exit_patience


def take_next(state: State, now: int) -> tuple[State, Draft, m.Dispatch]:
    pending, *rest = state.queue
    running = Running(execution=pending, dispatched_at=now)
    after = replace(state, queue=tuple(rest), running=running).seeing(pending.principal)
    draft = Draft(f.ExecutionStarted(execution_id=pending.execution_id), pending.principal, state.incarnation)
    return after, draft, m.Dispatch(execution=pending)


def proceeded(state: State, event: m.Proceeded, now: int, policy: Policy) -> Result:
    if not may_dispatch(state, now, policy):
        return state, []
    after, draft, dispatch = take_next(state, now)
    return after, [m.Append(drafts=(draft,), sync=True), dispatch]


def abort(
    state: State, victims: list[Pending], evidence: dict[str, Any], error: dict[str, Any] | None
) -> tuple[State, list[Draft], Commands]:
    drafts: list[Draft] = []
    commands: Commands = []
    for pending in victims:
        fact = f.ExecutionFinished(
            execution_id=pending.execution_id, outcome="aborted", evidence=evidence, error=error
        )
        drafts.append(Draft(fact, SYSTEM, state.incarnation))
        commands.append(m.Ended(execution=pending, outcome="aborted", error=error, replied=False))
    gone = {pending.execution_id for pending in victims}
    rest = tuple(p for p in state.queue if p.execution_id not in gone)
    return replace(state, queue=rest), drafts, commands


def finish(
    state: State, verdict: outcome.Verdict, now: int, reply: m.Replied | None, position: int | None
) -> tuple[State, list[Draft], Commands]:
    """The one place where an execution gets its outcome."""
    assert state.running is not None
    running = state.running
    pending = running.execution
    drafts: list[Draft] = []
    commands: Commands = []
    if running.blocked is not None:
        fact = f.InputWithdrawn(execution_id=pending.execution_id, reason=verdict.outcome)
        drafts.append(Draft(fact, SYSTEM, state.incarnation))
        commands.append(m.WithdrawInput(execution_id=pending.execution_id))
    finished = f.ExecutionFinished(
        execution_id=pending.execution_id,
        outcome=verdict.outcome,
        execution_count=reply.execution_count if reply is not None else None,
        error=dict(verdict.error) if verdict.error is not None else None,
        evidence=verdict.evidence,
        reply=dict(reply.reply) if reply is not None and reply.reply else None,
        position=position,
    )
    drafts.append(Draft(finished, SYSTEM, state.incarnation))
    commands.append(
        m.Ended(execution=pending, outcome=verdict.outcome, error=verdict.error, replied=reply is not None)
    )
    after = replace(state, running=None, deaths=0 if verdict.outcome == "ok" else state.deaths)
    if state.ladder is not None and state.ladder.execution_id == pending.execution_id:
        commands += [
            m.Respond(token=token, result=ladder_result(state.ladder, ended=True, session=state.session))
            for token in state.ladder.tokens
        ]
        after = replace(after, ladder=None)
    if verdict.outcome in ("error", "interrupted") and pending.stop_on_error and not pending.silent:
        victims = [p for p in after.queue if p.client == pending.client]
        after, aborts, ends = abort(after, victims, {"after": pending.execution_id}, None)
        drafts += aborts
        commands += ends
    return after, drafts, commands


def is_running(state: State, msg_id: str) -> bool:
    return state.running is not None and state.running.execution.msg_id == msg_id


def replied(state: State, event: m.Replied, now: int, policy: Policy) -> Result:
    if not is_running(state, event.msg_id):
        return state, []  # of an execution that already has its outcome: a late or second reply
    assert state.running is not None
    verdict = outcome.of_reply(state.running, event, own=state.own)
    after, drafts, commands = finish(state, verdict, now, event, event.position)
    if event.exiting:
        after = replace(after, exit_announced=now)
    return after, [m.Append(drafts=tuple(drafts)), *commands]


def error_seen(state: State, event: m.ErrorSeen, now: int, policy: Policy) -> Result:
    if not is_running(state, event.msg_id):
        return state, []
    assert state.running is not None
    return replace(state, running=replace(state.running, error=dict(event.error))), []


def went_idle(state: State, event: m.WentIdle, now: int, policy: Policy) -> Result:
    if not is_running(state, event.msg_id):
        return state, []
    assert state.running is not None
    if state.running.idle_at is not None:
        return state, []  # patience runs from the first one
    return replace(state, running=replace(state.running, idle_at=now)), []


def shell_drained(state: State, event: m.ShellDrained, now: int, policy: Policy) -> Result:
    if state.running is None:
        return state, []
    verdict = outcome.of_missing_reply(state.running, "it ended while no supervisor was there")
    after, drafts, commands = finish(state, verdict, now, None, None)
    return after, [m.Append(drafts=tuple(drafts)), *commands]


def ladder_result(ladder: Ladder, *, ended: bool, session: str) -> dict[str, Any]:
    """What an interrupt reached; the offer to kill is an offer, never taken by itself."""
    return {
        "reached": ladder.reached,
        "execution_id": ladder.execution_id,
        "ended": ended,
        "steps": list(ladder.steps),
        "offer": None if ended else f"krt restart {session}",
    }
