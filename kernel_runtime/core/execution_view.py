"""An execution as INTERFACE.md shows it: one JSON document per execution.

Built from the journal alone: the Execution row, its source and its entries. Times are ISO 8601 in
UTC with microseconds. Fields may be added here, none is renamed or removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kernel_runtime.core.effects import effects_document
from kernel_runtime.core.outputs import DisplayIndex, OutputFolder
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import EffectsObserved, ExecutionObserved, GapRecorded, OutputRecorded

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(nanoseconds: int) -> str:
    """UTC nanoseconds since the epoch as `2026-01-31T12:00:00.123456Z`."""
    moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def view(
    session: str,
    execution: Execution,
    source: str,
    entries: Iterable[Entry],
    *,
    cap_bytes: int | None = None,
    displays: DisplayIndex | None = None,
) -> dict[str, Any]:
    """The execution JSON of INTERFACE.md, `evidence` for its outcome, and `effects` once it was observed.

    `entries` are the execution's, in order. `cursor` is the last seq seen here: what follows it is news
    about this execution.
    """
    folder = OutputFolder(
        cap_bytes=cap_bytes, pointer=pointer(session, execution.execution_id), displays=displays
    )
    gaps: dict[str, dict[str, Any]] = {}
    observed: list[ExecutionObserved | EffectsObserved] = []
    cursor = execution.finished_seq or execution.queued_seq
    for entry in entries:
        cursor = max(cursor, entry.seq)
        fact = entry.fact
        if isinstance(fact, OutputRecorded):
            for message in fact.messages:
                folder.add(message)
        elif isinstance(fact, GapRecorded):
            gap = gaps.setdefault(fact.reason, {"reason": fact.reason, "messages": 0, "bytes": 0})
            gap["messages"] += fact.messages
            gap["bytes"] += fact.bytes
        elif isinstance(fact, ExecutionObserved | EffectsObserved):
            observed.append(fact)
    return {
        "session": session,
        "execution_id": execution.execution_id,
        "key": execution.key,
        "cell_id": execution.cell_id,
        "principal": execution.principal,
        "incarnation": execution.incarnation,
        "status": execution.status,
        "outcome": execution.outcome,
        "execution_count": execution.execution_count,
        "source": source,
        "queued_at": iso_time(execution.queued_at),
        "started_at": _time_or_none(execution.started_at),
        "finished_at": _time_or_none(execution.finished_at),
        "outputs": folder.outputs(),
        "gaps": list(gaps.values()),
        "error": execution.error,
        "blocked": blocked_document(execution.blocked) if execution.blocked is not None else None,
        "evidence": execution.evidence,
        "effects": effects_document(observed),
        "cursor": cursor,
    }


def pointer(session: str, execution_id: str) -> str:
    """What a capped output says about the rest."""
    return f"execution {execution_id}: all of it by `krt wait {session} {execution_id}`"


def _time_or_none(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else iso_time(nanoseconds)


def blocked_document(blocked: Mapping[str, Any]) -> dict[str, Any]:
    """What an execution waits for, as documents tell it: as it is known, its time in words."""
    since = blocked.get("since")
    return {
        "on": blocked.get("on"),
        "prompt": blocked.get("prompt", ""),
        "pid": blocked.get("pid"),
        **blocked,
        "since": iso_time(since) if isinstance(since, int) else since,
    }
