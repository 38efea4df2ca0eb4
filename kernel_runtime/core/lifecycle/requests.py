"""What clients ask for: executions, attachment, acceptance of a loss."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.lifecycle.kernel_life import begin_start
from kernel_runtime.core.lifecycle.queue import Commands, Result, may_dispatch, refuse, take_next
from kernel_runtime.core.lifecycle.state import Pending, Policy, State
from kernel_runtime.core.projection import TELLING_ACCEPTS
from kernel_runtime.errors import CrashLoop, HeapLost, IncarnationMismatch, KeyConflict
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.execution import Execution


def submitted(state: State, event: m.Submitted, now: int, policy: Policy) -> Result:
    recorded = event.recorded
    if recorded is not None:
        if event.recorded_digest_differs:
            return refuse(
                state,
                event.token,
                KeyConflict(
                    f"key {event.queued.key!r} already names other source in session {state.session!r}",
                    hint="use a new key for new source; the recorded execution is unchanged",
                    session=state.session,
                    key=event.queued.key,
                    execution_id=recorded.execution_id,
                ),
            )
        return state, [m.Respond(token=event.token, result=_submission(recorded))]
    if event.expect_incarnation is not None and event.expect_incarnation != state.heap:
        return refuse(
            state,
            event.token,
            IncarnationMismatch(
                f"session {state.session!r} would run this in incarnation {state.heap}, "
                f"not {event.expect_incarnation}",
                hint=f"look at `krt status {state.session}` and decide what is still true",
                session=state.session,
                expected=event.expect_incarnation,
                incarnation=state.heap,
            ),
        )
    drafts: list[Draft] = []
    if state.has_lost(event.principal):
        told = event.jupyter and policy.jupyter_loss == "tell"
        if not (event.accept or told):
            refuse_it = m.Refuse(token=event.token, error=_heap_lost(state))
            if not event.jupyter:
                return state, [refuse_it]
            # a Jupyter client has no --accept: being told is what lets its next cell run
            tell = Draft(f.HeapLossTold(lost=0, how="stderr"), event.principal, state.heap)
            return state.accepting(event.principal, state.heap), [m.Append(drafts=(tell,)), refuse_it]
        knows: f.Fact = f.HeapLossAccepted(how="accept")
        if not event.accept:
            knows = f.HeapLossTold(lost=0, how="stderr")
        drafts.append(Draft(knows, event.principal, state.heap))
    if state.kernel not in ("starting", "up") and state.deaths >= policy.crash_loop:
        return refuse(state, event.token, _crash_loop(state))

    pending = Pending(
        execution_id=event.queued.execution_id,
        cell_id=event.queued.cell_id,
        msg_id=event.queued.msg_id,
        principal=event.principal,
        client=event.client,
        stop_on_error=event.queued.stop_on_error,
        silent=event.queued.silent,
    )
    drafts.append(Draft(event.queued, event.principal, state.heap))
    after = replace(state, queue=(*state.queue, pending))
    if state.has_lost(event.principal):
        after = after.accepting(event.principal, state.heap)
    commands: Commands = []
    if state.kernel not in ("starting", "up"):
        after, start = begin_start(after, event.principal, "execute")
        drafts.append(start)
        commands.append(m.StartKernel(incarnation=after.incarnation))
    elif may_dispatch(after, now, policy):
        after, started, dispatch = take_next(after, now)
        drafts.append(started)
        commands.append(dispatch)
    status = "running" if after.running is not None and after.running.execution is pending else "queued"
    ack = {
        "execution_id": pending.execution_id,
        "cell_id": pending.cell_id,
        "incarnation": after.incarnation,
        "status": status,
        "recorded": False,
    }
    return after, [
        m.Append(drafts=tuple(drafts), sync=True),
        *commands,
        m.Respond(token=event.token, result=ack),
    ]


def _submission(recorded: Execution) -> dict[str, Any]:
    return {
        "execution_id": recorded.execution_id,
        "cell_id": recorded.cell_id,
        "incarnation": recorded.incarnation,
        "status": recorded.status,
        "recorded": True,
        "cursor": recorded.queued_seq - 1,
    }


def _heap_lost(state: State) -> HeapLost:
    return HeapLost(
        f"the heap of session {state.session!r} that you knew is gone; nothing was run",
        hint=f"`krt status {state.session}` shows what is lost; then run it with --accept",
        session=state.session,
        incarnation=state.heap,
    )


def _crash_loop(state: State) -> CrashLoop:
    return CrashLoop(
        f"the kernel of session {state.session!r} died {state.deaths} times in a row; nothing was run",
        hint=f"read `krt log {state.session}`; `krt restart {state.session}` starts it again",
        session=state.session,
        deaths=state.deaths,
    )


def attached(state: State, event: m.Attached, now: int, policy: Policy) -> Result:
    known = state.seen.get(event.principal)
    # a kernel that has not answered may never: nobody has seen its heap
    if state.kernel != "up" or state.has_lost(event.principal):
        return state, []
    if known is not None and known.incarnation == state.heap:
        return state, []
    draft = Draft(f.PrincipalAttached(), event.principal, state.heap)
    return state.seeing(event.principal), [m.Append(drafts=(draft,))]


def loss_accepted(state: State, event: m.LossAccepted, now: int, policy: Policy) -> Result:
    respond = m.Respond(token=event.token, result={"incarnation": state.heap})
    if not state.has_lost(event.principal):
        return state, [respond]
    draft = Draft(f.HeapLossAccepted(how="accept"), event.principal, state.heap)
    return state.accepting(event.principal, state.heap), [m.Append(drafts=(draft,), sync=True), respond]


def loss_told(state: State, event: m.LossTold, now: int, policy: Policy) -> Result:
    if not state.has_lost(event.principal):
        return state, []
    draft = Draft(f.HeapLossTold(lost=event.lost, how=event.how), event.principal, state.heap)
    after = state.accepting(event.principal, state.heap) if event.how in TELLING_ACCEPTS else state
    return after, [m.Append(drafts=(draft,))]
