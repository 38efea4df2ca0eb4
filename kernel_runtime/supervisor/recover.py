"""What a new supervisor knows before it looks at the world: the journal's word."""

from __future__ import annotations

from kernel_runtime.core.lifecycle import Pending, Policy, Running, State
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionQueued,
    HeapLossAccepted,
    InterruptRequested,
    KernelStartFailed,
)

_DEFAULT = Policy()

_KERNEL_KINDS = {
    "KernelStarting": "starting",
    "KernelStarted": "up",
    "KernelAdopted": "up",
    "KernelDied": "dead",
    "KernelStopped": "stopped",
    "KernelStartFailed": "dead",
}


def recover(reader: JournalReader, session: str, now: int, policy: Policy = _DEFAULT) -> State:
    """The state as the journal tells it; costs what is queued, not what ever ran.

    The kernel may be gone since: `Adopted` or `KernelExited` is the next event.
    """
    latest = [
        (entry.seq, kind, entry) for kind in _KERNEL_KINDS if (entry := reader.latest(kind)) is not None
    ]
    if not latest:
        return State(session=session, seen=reader.seen())
    _, kind, last = max(latest, key=lambda item: item[0])
    kernel, attempts = _KERNEL_KINDS[kind], 0
    if isinstance(last.fact, KernelStartFailed) and last.fact.attempt < policy.start_attempts:
        kernel, attempts = "starting", last.fact.attempt  # the next try was due
    started = reader.latest("KernelStarted")
    own = bool(getattr(started.fact, "own", True)) if started is not None else True
    running = [e for status in ("running", "blocked") for e in reader.executions(status=status)]
    return State(
        session=session,
        incarnation=last.incarnation,
        kernel=kernel,
        attempts=attempts,
        own=own,
        queue=tuple(_pending(reader, e) for e in reader.executions(status="queued")),
        running=_running(reader, running[0], now) if running else None,
        seen=reader.seen(),
        deaths=_deaths(reader, policy),
        exit_announced=now if kernel == "up" and _announced_exit(reader, last.incarnation) else None,
    )


def queued_fact(reader: JournalReader, execution_id: str) -> ExecutionQueued:
    """The intent of an execution, from its entry."""
    entry = reader.entries(execution_id=execution_id, kinds=["ExecutionQueued"], limit=1)[0]
    assert isinstance(entry.fact, ExecutionQueued)
    return entry.fact


def _pending(reader: JournalReader, execution: Execution) -> Pending:
    fact = queued_fact(reader, execution.execution_id)
    return Pending(
        execution_id=execution.execution_id,
        cell_id=execution.cell_id,
        msg_id=execution.msg_id,
        principal=execution.principal,
        client=fact.client_session or "",
        stop_on_error=fact.stop_on_error,
        silent=fact.silent,
    )


def _running(reader: JournalReader, execution: Execution, now: int) -> Running:
    """What is known of it: an `ok` after a delivered interrupt is still `interrupted`."""
    asked = reader.entries(execution_id=execution.execution_id, kinds=["InterruptRequested"])
    interrupts = tuple(
        (entry.fact.reached, entry.mono) for entry in asked if isinstance(entry.fact, InterruptRequested)
    )
    return Running(
        execution=_pending(reader, execution),
        dispatched_at=now,
        blocked=execution.blocked,
        interrupts=interrupts,
    )


def _announced_exit(reader: JournalReader, incarnation: int) -> bool:
    """Whether the last cell said `quit()`: its kernel's end is then no death of its own."""
    last = reader.latest("ExecutionFinished")
    if last is None or last.incarnation != incarnation or not isinstance(last.fact, ExecutionFinished):
        return False
    payload = (last.fact.reply or {}).get("payload")
    return isinstance(payload, list) and any(
        isinstance(item, dict) and item.get("source") == "ask_exit" for item in payload
    )


def _deaths(reader: JournalReader, policy: Policy) -> int:
    """Deaths in a row, looking back as far as a crash loop needs and no further."""
    deaths = 0
    kinds = ["KernelDied", "KernelStartFailed", "ExecutionFinished", "HeapLossAccepted"]
    for entry in reversed(reader.entries(kinds=kinds, last=200)):
        fact = entry.fact
        if isinstance(fact, ExecutionFinished):
            if fact.outcome == "ok":
                break
        elif isinstance(fact, HeapLossAccepted):
            if fact.how == "restart":
                break
        elif isinstance(fact, KernelStartFailed):
            deaths += fact.attempt >= policy.start_attempts
        elif not getattr(fact, "by_user_code", False):
            deaths += 1
    return deaths
