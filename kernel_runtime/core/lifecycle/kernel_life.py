"""The kernel's life: start, failure to start, death, stop, restart, adoption."""

from __future__ import annotations

from msgspec.structs import replace

from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.lifecycle import outcome
from kernel_runtime.core.lifecycle.queue import SYSTEM, Commands, Result, abort, finish
from kernel_runtime.core.lifecycle.state import Policy, State
from kernel_runtime.errors import KernelStartFailed
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft


def begin_start(state: State, principal: str, reason: str) -> tuple[State, Draft]:
    incarnation = state.incarnation + 1
    after = replace(
        state,
        kernel="starting",
        incarnation=incarnation,
        attempts=0,
        exit_announced=None,
        unresponsive=None,
        start_reason=reason,
        restarting=False,
        stopping=False,
    )
    return after, Draft(f.KernelStarting(argv=[], reason=reason), principal, incarnation)


def start_requested(state: State, event: m.StartRequested, now: int, policy: Policy) -> Result:
    if state.kernel == "up":
        return state, [m.Respond(token=event.token, result={"incarnation": state.incarnation})]
    waiting = replace(state, start_waiters=(*state.start_waiters, event.token))
    if state.kernel == "starting":
        return waiting, []
    after, draft = begin_start(waiting, event.principal, event.reason)
    drafts = [draft]
    if event.reason == "jupyter" and state.has_lost(event.principal):
        drafts.append(Draft(f.HeapLossAccepted(how="restart"), event.principal, after.heap))
        after = replace(after, deaths=0).accepting(event.principal, after.heap)
    return after, [
        m.Append(drafts=tuple(drafts), sync=True),
        m.StartKernel(incarnation=after.incarnation),
    ]


def restart_requested(state: State, event: m.RestartRequested, now: int, policy: Policy) -> Result:
    waiting = replace(state, start_waiters=(*state.start_waiters, event.token), deaths=0)
    if state.kernel in ("up", "starting") or state.restarting:
        if state.restarting:
            return waiting, []
        # who asks for a restart knows that the heap goes
        told = Draft(f.HeapLossAccepted(how="restart"), event.principal, state.incarnation + 1)
        after = replace(waiting, restarting=True).accepting(event.principal, state.incarnation + 1)
        return after, [m.Append(drafts=(told,), sync=True), m.StopKernel(reason="restart")]
    after, draft = begin_start(waiting, event.principal, "restart")
    told = Draft(f.HeapLossAccepted(how="restart"), event.principal, after.incarnation)
    return after.accepting(event.principal, after.heap), [
        m.Append(drafts=(told, draft), sync=True),
        m.StartKernel(incarnation=after.incarnation),
    ]


def stop_requested(state: State, event: m.StopRequested, now: int, policy: Policy) -> Result:
    if state.kernel not in ("up", "starting"):
        return state, [m.Respond(token=event.token, result={"stopped": True})]
    told = Draft(f.HeapLossAccepted(how="restart"), event.principal, state.incarnation + 1)
    after = replace(state, restarting=False, stopping=True, deaths=0)
    return after.accepting(event.principal, state.incarnation + 1), [
        m.Append(drafts=(told,), sync=True),
        m.StopKernel(reason=event.reason),
        m.Respond(token=event.token, result={"stopped": True}),
    ]


def came_up(state: State, event: m.KernelCameUp, now: int, policy: Policy) -> Result:
    if state.kernel != "starting":
        return state, []  # an answer from a kernel that was buried meanwhile
    fact = f.KernelStarted(
        pid=event.pid,
        start_time=event.start_time,
        boot_id=event.boot_id,
        language=event.language,
        implementation=event.implementation,
        own=event.own,
    )
    after = replace(state, kernel="up", own=event.own, attempts=0, start_waiters=())
    commands: Commands = [m.Append(drafts=(Draft(fact, SYSTEM, state.incarnation),))]
    commands += [
        m.Respond(token=token, result={"incarnation": state.incarnation}) for token in state.start_waiters
    ]
    return after, commands


def failed_to_start(state: State, event: m.KernelFailedToStart, now: int, policy: Policy) -> Result:
    if state.kernel != "starting":
        return state, []
    attempt = state.attempts + 1
    fact = f.KernelStartFailed(
        attempt=attempt, stderr=event.stderr, exit_status=event.exit_status, signal=event.signal
    )
    drafts = [Draft(fact, SYSTEM, state.incarnation)]
    exhausted = attempt >= policy.start_attempts
    state = replace(state, deaths=state.deaths + exhausted)
    if state.restarting:
        # it was on its way out to make room for the next one, and has gone by itself
        after, aborts, ends = abort(state, list(state.queue), {"kernel": "start failed"}, None)
        after, start = begin_start(after, SYSTEM, "restart")
        appended = m.Append(drafts=(*drafts, *aborts, start))
        return after, [appended, *ends, m.StartKernel(incarnation=after.incarnation)]
    if not exhausted and not state.stopping:
        after = replace(state, attempts=attempt)
        return after, [
            m.Append(drafts=tuple(drafts)),
            m.StartKernel(incarnation=state.incarnation),
        ]
    error = KernelStartFailed(
        f"the kernel of session {state.session!r} died {attempt} times before it answered",
        hint="its stderr says why; mend that and run again",
        session=state.session,
        stderr=event.stderr,
        exit_status=event.exit_status,
        signal=event.signal,
        attempts=attempt,
    )
    if state.stopping:
        stopped = f.KernelStopped(reason="stop", exit_status=event.exit_status, signal=event.signal)
        drafts.append(Draft(stopped, SYSTEM, state.incarnation))
    kernel = "stopped" if state.stopping else "dead"
    after = replace(state, kernel=kernel, attempts=0, start_waiters=(), stopping=False)
    why = {"ename": "KernelStartFailed", "evalue": error.message, "traceback": event.stderr.splitlines()}
    after, aborts, ends = abort(after, list(state.queue), {"kernel": "start failed"}, why)
    refusals: Commands = [m.Refuse(token=token, error=error) for token in state.start_waiters]
    return after, [m.Append(drafts=(*drafts, *aborts)), *ends, *refusals]


def kernel_exited(state: State, event: m.KernelExited, now: int, policy: Policy) -> Result:
    if state.kernel not in ("up", "starting"):
        return state, []  # recorded already: a supervisor died before it could clear up
    drafts: list[Draft] = []
    commands: Commands = []
    after = state
    if event.asked is not None:
        fact: f.Fact = f.KernelStopped(
            reason=event.asked,
            exit_status=event.exit_status,
            signal=event.signal,
            evidence=dict(event.evidence),
        )
    else:
        fact = f.KernelDied(
            pid=event.pid,
            exit_status=event.exit_status,
            signal=event.signal,
            by_user_code=state.exit_announced is not None,
            evidence=dict(event.evidence),
        )
    drafts.append(Draft(fact, SYSTEM, state.incarnation))
    if state.running is not None:
        after, finished, ends = finish(after, outcome.of_exit(event), now, None, None)
        drafts += finished
        commands += ends
    evidence = {"kernel": "stopped" if event.asked else "died before this started"}
    after, aborts, ends = abort(after, list(after.queue), evidence, None)
    drafts += aborts
    commands += ends
    after = replace(
        after,
        kernel="stopped" if event.asked else "dead",
        deaths=state.deaths if event.asked or state.exit_announced is not None else state.deaths + 1,
        exit_announced=None,
        unresponsive=None,
        attempts=0,
        stopping=False,
    )
    if state.restarting:
        after, start = begin_start(after, SYSTEM, "restart")
        drafts.append(start)
        commands.append(m.StartKernel(incarnation=after.incarnation))
    elif state.start_waiters:
        error = KernelStartFailed(
            f"the kernel of session {state.session!r} was stopped before it answered",
            hint="start it again",
            session=state.session,
        )
        commands += [m.Refuse(token=token, error=error) for token in state.start_waiters]
        after = replace(after, start_waiters=())
    return after, [m.Append(drafts=tuple(drafts)), *commands]


def adopted(state: State, event: m.Adopted, now: int, policy: Policy) -> Result:
    if state.kernel != "up":
        return state, []
    running = [state.running.execution.execution_id] if state.running is not None else []
    fact = f.KernelAdopted(
        pid=event.pid,
        start_time=event.start_time,
        boot_id=event.boot_id,
        executions_running=running,
    )
    commands: Commands = [m.Append(drafts=(Draft(fact, SYSTEM, state.incarnation),))]
    if state.running is not None:
        if state.own:
            # the old supervisor may have died between the intent and the send; our kernel drops
            # a request that it has already seen, so sending again is safe and not sending is not
            commands.append(m.Dispatch(execution=state.running.execution, again=True))
        else:
            commands.append(m.ProbeShell())
    return state, commands


def unresponsive(state: State, event: m.TurnedUnresponsive, now: int, policy: Policy) -> Result:
    if state.kernel != "up" or state.unresponsive is not None:
        return state, []
    fact = f.KernelUnresponsive(evidence=dict(event.evidence))
    after = replace(state, unresponsive=dict(event.evidence))
    return after, [m.Append(drafts=(Draft(fact, SYSTEM, state.incarnation),))]


def responsive(state: State, event: m.TurnedResponsive, now: int, policy: Policy) -> Result:
    if state.unresponsive is None:
        return state, []
    after = replace(state, unresponsive=None)
    return after, [m.Append(drafts=(Draft(f.KernelResponsive(), SYSTEM, state.incarnation),))]
