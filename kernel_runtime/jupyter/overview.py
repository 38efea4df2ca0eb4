"""What a page shows of a session beside its document: the truth of its cells, and the state of all else.

Asked in the server's own name: a page that shows it has told nobody of a lost heap, so a person's first cell
after the loss is refused until they say that they accept it. One report serves every page that asks at the
same time; whose heap is gone is a question of its own, which costs no report. A session that was stopped is
read from its journal and stays stopped.

A cell that waits or runs has no truth yet: it is listed with its `status`, and counted in `under_way` and not
in `counts`. The plan is what comes after a loss; what else could be done is in `krt status`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from kernel_runtime.client import overview as all_sessions
from kernel_runtime.client import session_files, spawn
from kernel_runtime.client.connection import REQUEST_TIMEOUT
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
_ENDED = ("dead", "stopped")
_UP = ("idle", "busy", "blocked", "unresponsive")
"""states in which a heap is there to be known"""
_UNDER_WAY = ("queued", "running", "blocked")


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
                lost, row = await self.loss(file, principal)
                common = await self._of_running(session, file)
                if lost and not _is_as_late(common, row):
                    # made before the kernel ended: a loss beside cells that live would be told as another's
                    self.forget(session.session_id)
                    common = await self._of_running(session, file)
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

    async def loss(self, file: SessionFile, principal: str) -> tuple[bool, dict[str, Any]]:
        """Whether the heap that this person knew is gone, and the session's row that says so.

        Looking at the page is what makes it known: they join each incarnation once. Whoever has lost a heap
        joins the next one when they have accepted that.
        """
        line = self._kernels.clients.observer_of(file, principal)
        row = await line.row(within=REQUEST_TIMEOUT)
        lost = row.get("heap_lost")  # None: the supervisor is of an older version
        if lost is not None and (lost or row["state"] not in _UP or _knows(line, row["incarnation"])):
            return bool(lost), row
        await line.attach()
        return line.heap_lost, row

    def forget(self, session_id: str) -> None:
        """What was made of it is no longer so."""
        self._made.pop(session_id, None)


def _is_as_late(document: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether it may have been made after the row: what the row says has ended is over there too."""
    if document["incarnation"] != row["incarnation"]:
        return bool(document["incarnation"] > row["incarnation"])
    return row["state"] in _UP or document["state"] not in _UP


def _knows(line: AsyncSession, incarnation: int) -> bool:
    """Whether its principal joined that incarnation on it."""
    told = line.attached
    return told.get("incarnation") == incarnation and told["state"] in _UP and not told["heap_lost"]


async def _of_line(line: AsyncSession) -> dict[str, Any]:
    head = line.journal.head() if line.file.journal.exists() else 0
    status = await line.status()
    running = await line.running()
    report = status.json()
    return document_of(report, head, _executions(line.journal, report), running)


def _of_stopped(file: SessionFile) -> dict[str, Any]:
    row = all_sessions.unattended(file)
    report: dict[str, Any] = {
        "session": file.name,
        "state": row["state"],
        "incarnation": row["incarnation"],
        "why": {},
    }
    if not file.journal.exists():
        return document_of(report, 0, {}, None)
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
        return document_of(report, journal.head(), _executions(journal, report), None)


def _plain(struct: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(struct)
    return document


def _executions(journal: JournalReader, report: Mapping[str, Any]) -> dict[str, Execution]:
    """Rows of the executions that the report's unusual cells stand on."""
    usual = _usual(report)
    listed = [cell for cell in report.get("cells", []) if _is_listed(cell, usual, report["state"])]
    wanted = {cell["execution_id"] for cell in listed if cell["execution_id"]}
    if len(wanted) > _MANY:
        return {row.execution_id: row for row in journal.executions() if row.execution_id in wanted}
    rows = (journal.execution(execution_id) for execution_id in wanted)
    return {row.execution_id: row for row in rows if row is not None}


def _usual(report: Mapping[str, Any]) -> str:
    state = report["state"]
    counts = Counter(cell["truth"] for cell in report.get("cells", []) if not _under_way(cell, state))
    return counts.most_common(1)[0][0] if counts else "live"


def _under_way(cell: Mapping[str, Any], state: str) -> str | None:
    """Its latest execution's status, while that is not done and a kernel is there to do it."""
    status = (cell.get("evidence") or {}).get("status")
    return status if status in _UNDER_WAY and state not in _ENDED else None


def _is_listed(cell: Mapping[str, Any], usual: str, state: str) -> bool:
    return cell["truth"] != usual or _under_way(cell, state) is not None


def document_of(
    report: Mapping[str, Any], head: int, executions: Mapping[str, Execution], running: Execution | None
) -> dict[str, Any]:
    """What of a status report a page shows; `executions` by id, of the cells that are not as most are."""
    usual, state = _usual(report), report["state"]
    counts = dict(report.get("counts") or {})
    under_way = dict.fromkeys(_UNDER_WAY, 0)
    cells: dict[str, Any] = {}
    for cell in report.get("cells", []):
        status = _under_way(cell, state)
        if status is not None:
            under_way[status] += 1
            counts[cell["truth"]] -= 1
        if _is_listed(cell, usual, state):
            cells[cell["cell_id"]] = _cell(cell, status, executions.get(cell.get("execution_id") or ""))
    plan = _after_a_loss(report)
    return {
        "state": state,
        "why": report.get("why") or {},
        "incarnation": report["incarnation"],
        "head": head,
        "default_truth": usual,
        "cells": cells,
        "counts": counts,
        "under_way": under_way,
        "names": report.get("names") or [],
        "resources": report.get("resources") or [],
        "claims": report.get("claims") or [],
        "lost": bool(plan),
        "plan": plan,
        "blocked": _blocked(running),
        "running": running.execution_id if running is not None else None,
    }


def _cell(cell: Mapping[str, Any], status: str | None, row: Execution | None) -> dict[str, Any]:
    return {
        "truth": cell["truth"],
        "status": status,
        "outcome": cell.get("outcome"),
        "execution_id": cell.get("execution_id"),
        "principal": row.principal if row is not None else None,
        "incarnation": row.incarnation if row is not None else None,
        "evidence": cell.get("evidence") or {},
        "note": in_words(cell),
    }


def _after_a_loss(report: Mapping[str, Any]) -> list[Any]:
    """The steps of the plan that a loss calls for; none where nothing was lost.

    What is lost is what ran in an earlier incarnation, or in one whose kernel has ended.
    """
    ended = report["state"] in _ENDED and report["incarnation"] > 0
    ran = [cell for cell in report.get("cells", []) if cell.get("execution_id")]
    gone = {cell["cell_id"] for cell in ran if ended or _is_of_another_life(cell)}
    if ended:
        gone.add(report["session"])
    return [step for step in report.get("plan") or [] if step["target"] in gone and step["action"] != "keep"]


def _is_of_another_life(cell: Mapping[str, Any]) -> bool:
    evidence = cell.get("evidence") or {}
    return bool(evidence.get("ran_in") != evidence.get("current"))


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
