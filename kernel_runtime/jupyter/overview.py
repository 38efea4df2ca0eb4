"""What a page shows of a session beside its document: the truth of its cells, and the state of all else.

Asked in the server's own name: a page that shows it has told nobody of a lost heap, so a person's first cell
after the loss is refused until they say that they accept it. One report serves every page that asks at the
same time. A session that was stopped is read from its journal and stays stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from kernel_runtime.client import overview as all_sessions
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.core import reconcile
from kernel_runtime.core.blocked import is_secret
from kernel_runtime.core.evidence import in_words
from kernel_runtime.core.execution_view import blocked_document
from kernel_runtime.errors import SupervisorFault
from kernel_runtime.journal import JournalReader
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.clients import AttachedSession
from kernel_runtime.jupyter.kernels import SessionMappingKernelManager
from kernel_runtime.model.execution import Execution

_FRESH = 1.0
"""seconds for which a report of the same journal is not made again"""
_MANY = 200
"""executions past which reading all is quicker than reading each"""


class Overviews:
    """Makes overviews, each once for all who want it."""

    def __init__(self, kernels: SessionMappingKernelManager) -> None:
        self._kernels = kernels
        self._made: dict[str, tuple[float, dict[str, Any]]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def of(self, session: AttachedSession, principal: str) -> dict[str, Any]:
        """The document for one principal.

        Raises:
            KernelRuntimeError: nobody can tell.
        """
        file = session_files.load(session.name)
        lost = False
        try:
            if not spawn.is_running(file):
                common = await asyncio.to_thread(_of_stopped, file)
            else:
                common = await self._of_running(session, file)
                lost = await self._has_lost(file, principal)
        except SupervisorFault as fault:
            if not fault.fields.get("gone"):
                raise
            common = await asyncio.to_thread(_of_stopped, file)
        return {
            "session": session.name,
            "session_id": session.session_id,
            "kernel_id": session.kernel_id,
            "path": session.path,
            "principal": principal,
            "heap_lost": lost,
            **common,
        }

    async def _of_running(self, session: AttachedSession, file: SessionFile) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        kernel = self._kernels.session_kernel(session.kernel_id)
        told = kernel.watch.told if kernel is not None and kernel.watch is not None else 0
        async with self._turns.setdefault(session.session_id, asyncio.Lock()):
            made, document = self._made.get(session.session_id, (0.0, {}))
            if document and document["head"] >= told and loop.time() - made < _FRESH:
                return document
            line = self._kernels.clients.observer_of(file, identity.SERVER)
            document = await _of_line(line)
            self._made[session.session_id] = (loop.time(), document)
            return document

    async def _has_lost(self, file: SessionFile, principal: str) -> bool:
        """Whether the heap that this person knew is gone; looking at the page is what makes it known."""
        line = self._kernels.clients.observer_of(file, principal)
        await line.attach()
        return line.heap_lost

    def forget(self, session_id: str) -> None:
        """What was made of it is no longer so."""
        self._made.pop(session_id, None)


async def _of_line(line: AsyncSession) -> dict[str, Any]:
    head = line.journal.head() if line.file.journal.exists() else 0
    status = await line.status()
    running = await line.running()
    report = status.json()
    return _document(report, head, _executions(line.journal, report), running)


def _of_stopped(file: SessionFile) -> dict[str, Any]:
    row = all_sessions.unattended(file)
    report: dict[str, Any] = {"state": row["state"], "incarnation": row["incarnation"], "why": {}}
    if not file.journal.exists():
        return _document(report, 0, {}, None)
    with JournalReader.open(file.journal) as journal:
        made = reconcile.reconcile(
            session=file.name,
            incarnation=int(row["incarnation"]),
            state=str(row["state"]),
            cells=journal.cells(),
            notebook_sources=None,
        )
        report |= {"cells": [_plain(cell) for cell in made.cells], "counts": made.counts}
        report["plan"] = [_plain(step) for step in made.plan]
        return _document(report, journal.head(), _executions(journal, report), None)


def _plain(struct: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(struct)
    return document


def _executions(journal: JournalReader, report: Mapping[str, Any]) -> dict[str, Execution]:
    """Rows of the executions that the report's unusual cells stand on."""
    usual = _usual(report)
    wanted = {c["execution_id"] for c in report.get("cells", []) if c["truth"] != usual and c["execution_id"]}
    if len(wanted) > _MANY:
        return {row.execution_id: row for row in journal.executions() if row.execution_id in wanted}
    rows = (journal.execution(execution_id) for execution_id in wanted)
    return {row.execution_id: row for row in rows if row is not None}


def _usual(report: Mapping[str, Any]) -> str:
    counts = Counter(cell["truth"] for cell in report.get("cells", []))
    return counts.most_common(1)[0][0] if counts else "live"


def _document(
    report: Mapping[str, Any], head: int, executions: Mapping[str, Execution], running: Execution | None
) -> dict[str, Any]:
    usual = _usual(report)
    cells: dict[str, Any] = {}
    for cell in report.get("cells", []):
        if cell["truth"] == usual:
            continue
        row = executions.get(cell.get("execution_id") or "")
        cells[cell["cell_id"]] = {
            "truth": cell["truth"],
            "outcome": cell.get("outcome"),
            "execution_id": cell.get("execution_id"),
            "principal": row.principal if row is not None else None,
            "incarnation": row.incarnation if row is not None else None,
            "evidence": cell.get("evidence") or {},
            "note": in_words(cell),
        }
    return {
        "state": report["state"],
        "why": report.get("why") or {},
        "incarnation": report["incarnation"],
        "head": head,
        "default_truth": usual,
        "cells": cells,
        "counts": report.get("counts") or {},
        "names": report.get("names") or [],
        "resources": report.get("resources") or [],
        "claims": report.get("claims") or [],
        "plan": report.get("plan") or [],
        "blocked": _blocked(running),
        "running": running.execution_id if running is not None else None,
    }


def _blocked(row: Execution | None) -> dict[str, Any] | None:
    """What it asks; `password` where nobody is to read the answer over a shoulder."""
    if row is None or row.blocked is None:
        return None
    document = blocked_document(row.blocked)
    return {
        "execution_id": row.execution_id,
        "cell_id": row.cell_id,
        **document,
        "password": is_secret(document),
    }
