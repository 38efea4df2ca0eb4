"""Writes what the journal says into a shared document, by the rules that the file has (docs/notebook.md).

The document that results is what the supervisor's own merge would leave as it is. What differs is that
people write at the same time: what they have in a cell when it is queued is what it is based on, however
they go on typing while it waits and runs.
"""

from __future__ import annotations

import time
from typing import Any

from kernel_runtime.core.outputs import Output
from kernel_runtime.core.projection import source_digest
from kernel_runtime.jupyter.mirror_document import CellMap, SharedNotebook
from kernel_runtime.jupyter.mirror_journal import Cells, Shown
from kernel_runtime.jupyter.ran import is_begun, ran_digest
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import ExecutionQueued
from kernel_runtime.notebook.ids import notebook_id, version_id
from kernel_runtime.notebook.merge import OURS

PACE = 0.05
"""seconds between two updates of one cell's outputs"""
FULL_PACE = 1.0
"""the same, of a cell past its cap"""
RATE = 4 << 20
"""bytes a second that are written of one cell"""


class Writer:
    """One session's cells in one document."""

    def __init__(self, notebook: SharedNotebook, cells: Cells, *, head: int) -> None:
        self.notes: list[str] = []
        """what people should know of, once"""
        self.new: set[str] = set()
        """cells that were written and may not have been known before"""
        self._notebook = notebook
        self._cells = cells
        self._head = head
        """seq up to which a missing cell was taken out by people"""
        self._agreed: dict[str, str] = {}
        """by cell, the digest of the source that people had in it when just that was queued"""
        self._applied: dict[str, list[Output]] = {}
        """by execution that is under way, what the document shows of it"""
        self._settled: dict[str, str] = {}
        """by cell, the execution that was given its place"""
        self._not_before: dict[str, float] = {}

    def take(self, entry: Entry) -> None:
        """What has to be looked at when it comes: whether people have in a cell what is queued of it."""
        fact = entry.fact
        if isinstance(fact, ExecutionQueued) and fact.is_cell:
            cell_id = notebook_id(fact.cell_id)
            cell = self._notebook.cells.get(cell_id)
            if cell is not None and cell.get("cell_type") == "code":
                digest = source_digest(fact.source)
                if source_digest(self._notebook.source(cell)) == digest:
                    self._agreed[cell_id] = digest

    def flush(self, *, everything: bool = False) -> float | None:
        """Write what has news and is due; seconds until more is, None when nothing waits."""
        now = time.monotonic()
        soonest: float | None = None
        for execution_id, state in list(self._cells.touched.items()):
            due = self._not_before.get(execution_id, 0.0)
            if not (state or everything) and due > now:
                soonest = min(soonest or due, due)
                continue
            del self._cells.touched[execution_id]
            self.write(execution_id, state=state)
        self.undouble()
        return None if soonest is None else max(0.0, soonest - now)

    def write(self, execution_id: str, *, state: bool = True) -> None:
        """Have the cell of one execution show it."""
        shown = self._cells.shown(execution_id)
        if shown is None:
            self._forget(execution_id)
            if state:
                self._mark_waiting(execution_id)
            return
        settle = state or self._settled.get(shown.cell_id) != execution_id
        cell = self._settle(shown) if settle else self._notebook.cells.get(shown.cell_id)
        if cell is None or cell.get("cell_type") != "code":
            return
        written = self._notebook.set_outputs(cell, shown.outputs, self._applied.get(execution_id))
        if settle:
            # after the outputs: what is told to have ended is complete
            values = {"execution_count": shown.execution_count, "execution_state": shown.state}
            self._notebook.set_values(cell, values, shown.metadata)
        if shown.execution.status == "done":
            self._forget(execution_id)
            return
        self._applied[execution_id] = shown.outputs
        pace = FULL_PACE if shown.more else PACE
        self._not_before[execution_id] = time.monotonic() + max(pace, written / RATE)

    def correct(self, cell_ids: set[str]) -> None:
        """Outputs that a page put in are not the journal's: a page that comes back brings what it had.

        Outputs that people cleared stay cleared, until there is news.
        """
        for cell_id in cell_ids:
            cell = self._notebook.cells.get(cell_id)
            if cell is None or cell.get("cell_type") != "code" or not self._notebook.outputs(cell):
                continue
            ours = self._notebook.cell_metadata(cell).get(OURS)
            ran = ours.get("execution_id") if isinstance(ours, dict) else None
            if isinstance(ran, str):
                self._applied.pop(ran, None)
                self.write(ran)

    def set_head(self, session_id: str) -> None:
        """Tell in the document up to which entry it tells."""
        ours = {"session": self._cells.session, "session_id": session_id, "head": self._cells.cursor}
        if self._notebook.metadata().get(OURS) != ours:
            self._notebook.set_metadata(OURS, ours)

    def rest(self, pending: set[str]) -> None:
        """Cells that ended while nobody followed run no more: a killed server's store says that they do."""
        for cell_id, cell in self._notebook.cells.items():
            if cell_id not in pending and cell.get("execution_state") == "running":
                self._notebook.set_values(cell, {"execution_state": "idle"}, {})

    def _mark_waiting(self, execution_id: str) -> None:
        """A cell that waits to run again shows what it showed, and that it waits."""
        execution = self._cells.execution(execution_id)
        cell = self._notebook.cells.get(notebook_id(execution.cell_id)) if execution is not None else None
        if execution is None or cell is None or cell.get("cell_type") != "code":
            return
        waits = self._cells.is_pending(execution.cell_id)
        self._notebook.set_values(cell, {"execution_state": "running" if waits else "idle"}, {})

    def _forget(self, execution_id: str) -> None:
        self._applied.pop(execution_id, None)
        self._not_before.pop(execution_id, None)

    # cells

    def _settle(self, shown: Shown) -> CellMap | None:
        """The cell in its place and with its source; None where people took it out."""
        cell_id, execution_id = shown.cell_id, shown.execution.execution_id
        self.new.add(cell_id)
        cell = self._notebook.cells.get(cell_id)
        known = self._settled.get(cell_id) == execution_id
        if cell is not None and cell.get("cell_type") != "code":
            if known or shown.seq <= self._head:
                return None  # people made text of it
            self._make_room(cell_id, cell)
            cell = None
        if cell is None:
            if known or shown.seq <= self._head:
                return None
            self._settled[cell_id] = execution_id
            self._notebook.insert(self._place(shown), shown.cell(), state=shown.state)
            return self._notebook.cells[cell_id]
        self._settled[cell_id] = execution_id
        before = self._notebook.cell_metadata(cell)
        if not _shows(before, execution_id):
            self._settle_source(shown, cell, before)
            if not shown.execution.principal.startswith("human:") and before.get("trusted"):
                # who trusted what it showed has not seen what comes now
                self._notebook.set_values(cell, {}, {"trusted": False})
        return cell

    def _settle_source(self, shown: Shown, cell: CellMap, metadata: dict[str, Any]) -> None:
        source = self._notebook.source(cell)
        digest, ran = source_digest(source), shown.execution.source_digest
        based_on = self._agreed.pop(shown.cell_id, None) or ran_digest(metadata)
        if digest == ran:
            return
        if digest != based_on and not is_begun(source, based_on, shown.source):  # people edited it
            if based_on in {None, ran}:
                return
            self._keep_beside(shown.cell_id, source, metadata)
        self._notebook.replace_source(cell, shown.source)

    def _keep_beside(self, cell_id: str, source: str, metadata: dict[str, Any]) -> None:
        """People's text and the journal's both changed: people's gets a cell of its own."""
        beside = version_id(cell_id, source)
        while (there := self._notebook.cells.get(beside)) is not None:
            if self._notebook.source(there) == source:
                return
            beside = version_id(beside, source)
        extra = {key: value for key, value in metadata.items() if key not in (OURS, "execution", "trusted")}
        edit: dict[str, Any] = {
            "cell_type": "code",
            "id": beside,
            "metadata": {**extra, OURS: {"truth": "not-run", "edit_of": cell_id}},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        self._notebook.insert(self._notebook.place(cell_id) + 1, edit)
        self.notes.append(
            f"Cell {cell_id} was edited here and run with other source: the edit is in the cell below it."
        )

    def _make_room(self, cell_id: str, cell: CellMap) -> None:
        """People made text of a cell, and it ran again since: their text goes on under another id."""
        source = self._notebook.source(cell)
        other = version_id(cell_id, source)
        while other in self._notebook.cells:
            other = version_id(other, source)
        text = {
            "cell_type": cell["cell_type"],
            "id": other,
            "metadata": self._notebook.cell_metadata(cell),
            "source": source,
        }
        at = self._notebook.place(cell_id)
        self._notebook.insert(at, text)
        self._notebook.remove(at + 1)

    def _place(self, shown: Shown) -> int:
        """Where `notebook.merge` puts it: after its predecessor in the journal, the newest last."""
        ids = self._notebook.ids
        if self._cells.is_first(shown.execution):
            return len(ids)
        order = self._cells.order()
        there = set(ids)
        mine = order.index(shown.cell_id)
        if not any(cell_id in there for cell_id in order[mine + 1 :]):
            return len(ids)
        before = next((cell_id for cell_id in reversed(order[:mine]) if cell_id in there), None)
        return 0 if before is None else self._notebook.place(before) + 1

    def undouble(self) -> None:
        """Leave one cell of each id.

        A page brings one that was put in here before the page's came: then the page's stays, which people
        look at, and is written anew. A text that only the other one has is kept in a cell of its own.
        """
        for cell_id in list(self._notebook.doubled):
            cells = self._notebook.all_of(cell_id)
            first = self._notebook.cells[cell_id]
            keep = first
            if cell_id in self._notebook.inserted:
                keep = next(one for one in reversed(cells) if one is not first)
            text = self._notebook.source(keep)
            ran: set[str] = set()
            for one in cells:
                metadata = self._notebook.cell_metadata(one)
                ours = metadata.get(OURS)
                if isinstance(ours, dict) and isinstance(ours.get("execution_id"), str):
                    ran.add(ours["execution_id"])
                source = self._notebook.source(one)
                if one is not keep and source != text and source_digest(source) != ran_digest(metadata):
                    self._keep_beside(cell_id, source, metadata)
            self._notebook.remove_double(cell_id, keep)
            for execution_id in ran:
                self._applied.pop(execution_id, None)
                self.write(execution_id)


def _shows(metadata: dict[str, Any], execution_id: str) -> bool:
    ours = metadata.get(OURS)
    return isinstance(ours, dict) and ours.get("execution_id") == execution_id
