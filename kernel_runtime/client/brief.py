"""Gathers what a brief is made of; `core.brief` composes it.

The report comes from the supervisor, everything else from the journal. Each execution that the brief
may speak of is looked up by itself, so a brief costs the same in a long journal as in a short one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_runtime.core.brief import FINE, Line, Material, compose, shown, text_of
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import HandoffWritten

if TYPE_CHECKING:
    from kernel_runtime.client.session import AsyncSession
    from kernel_runtime.client.status import Status

__all__ = ["LAST", "Brief", "gather", "handoff_of", "shown"]

LAST = 20
"""executions that are looked at"""
_DESCRIBED = 8
"""names whose rows are asked for"""
_ASK_WITHIN = 1.0
"""seconds that the kernel has to say how many"""
_STATE_KINDS = ("KernelStarted", "KernelAdopted", "KernelDied", "KernelStopped", "KernelUnresponsive")


class Brief(str):
    """A brief as text, with its `lines`."""

    __slots__ = ("lines",)
    lines: list[Line]

    def json(self) -> dict[str, Any]:
        """`{"brief", "lines": [{"text", "entries"}]}`."""
        return {"brief": str(self), "lines": [msgspec.to_builtins(line) for line in self.lines if line.text]}


def brief_of(material: Material, max_tokens: int) -> Brief:
    """Compose it."""
    lines = compose(material, max_tokens)
    brief = Brief(text_of(lines))
    brief.lines = lines
    return brief


async def gather(session: AsyncSession, status: Status) -> Material:
    """What the brief of this report is made of."""
    journal = session.journal
    report = status.json()
    if any("not checked" in str((claim.get("evidence") or {}).get("reason")) for claim in report["claims"]):
        claims = await session.claims(timeout=_ASK_WITHIN)
        report["claims"] = [claim.json() for claim in claims]
    recent = journal.executions(last=LAST)
    known = {row.execution_id: row for row in recent}
    spoken = [cell.get("execution_id") for cell in report["cells"] if cell.get("truth") not in FINE]
    spoken += [name.get("bound_by") for name in report["names"]]
    spoken += [row.get("started_by") for row in report["resources"]]
    spoken.append((report.get("why") or {}).get("execution_id"))
    for execution_id in dict.fromkeys(spoken):
        if isinstance(execution_id, str) and execution_id not in known and len(known) < 10 * LAST:
            row = journal.execution(execution_id)
            if row is not None:
                known[execution_id] = row
    return Material(
        report=report,
        head=journal.head(),
        kernel=session.file.kernel,
        cwd=session.file.cwd,
        standing=_standing(journal, status.incarnation),
        recent=[_document(row, journal) for row in recent],
        executions={row.execution_id: _entries(row) for row in known.values()},
        described=await _describe(session, report["names"]),
        handoff=handoff_of(journal),
    )


def handoff_of(journal: JournalReader) -> dict[str, Any] | None:
    """The handoff that stands: `{"version", "document", "complete", "entry", "principal", "at"}`."""
    entry = journal.latest("HandoffWritten")
    if entry is None or not isinstance(entry.fact, HandoffWritten):
        return None
    return {
        "version": entry.fact.version,
        "document": dict(entry.fact.document),
        "complete": entry.fact.complete,
        "entry": entry.seq,
        "principal": entry.principal,
        "at": iso_time(entry.at),
    }


def _standing(journal: JournalReader, incarnation: int) -> list[int]:
    """The last entry that says of this incarnation what became of its kernel."""
    found = [entry for kind in _STATE_KINDS if (entry := journal.latest(kind)) is not None]
    found = [entry for entry in found if entry.incarnation == incarnation]
    return [max(entry.seq for entry in found)] if found else []


def _entries(row: Execution) -> list[int]:
    # the outcome is what most lines are about
    return [row.queued_seq] if row.finished_seq is None else [row.finished_seq, row.queued_seq]


def _document(row: Execution, journal: JournalReader) -> dict[str, Any]:
    return {
        "execution_id": row.execution_id,
        "status": row.status,
        "outcome": row.outcome,
        "source": journal.source(row.execution_id),
        "error": row.error,
        "blocked": row.blocked,
        "principal": row.principal,
        "at": iso_time(row.finished_at or row.queued_at),
    }


async def _describe(session: AsyncSession, names: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows and columns of the largest names, where the kernel tells."""
    there = [name for name in names if name.get("truth") in ("live", "unreadable", "drifted")]
    there.sort(key=lambda name: -(name.get("bytes") or 0))
    asked = [str(name["name"]) for name in there[:_DESCRIBED] if str(name["name"]).isidentifier()]
    answers = await asyncio.gather(*(_one(session, name) for name in asked))
    return dict(zip(asked, answers, strict=True))


async def _one(session: AsyncSession, name: str) -> dict[str, Any]:
    try:
        return (await session.check(f"name {name} exists", timeout=_ASK_WITHIN)).evidence
    except KernelRuntimeError:
        return {}  # a brief without row counts is a brief
