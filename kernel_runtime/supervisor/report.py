"""Truth reports from the journal's projections, at the price of what they show.

A report that lists some cells is judged by the counters in the cells' rows, and what was observed is read
for those alone; only one that lists all, or that has news from outside the journal (an edited notebook, a
snapshot that shows something else), looks at everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest
from typing import Any

import msgspec
from msgspec.structs import replace

from kernel_runtime.core import name_truth, reconcile
from kernel_runtime.core.execution_view import blocked_document, iso_time
from kernel_runtime.core.lifecycle import State
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.execution import Cell, Name, Observation
from kernel_runtime.model.truth import CELL_TRUTHS, CellTruth, Report

OLDER = "not to be had: an older version started this kernel; a restart gives one that tells of its names"
ATTACH_CELLS = 20
"""cells an attach lists; its counts are complete"""
_SOURCES = 50
"""cells of which the first line is told"""
FOREIGN = "not to be had: this kernel is not one that tells; what is known is known of cells"


class Reporter:
    """Answers what is true, for attach (O(1)) and for status (all cells)."""

    def __init__(
        self,
        name: str,
        reader: JournalReader,
        edited_sources: Callable[[], Mapping[str, str] | None],
        *,
        observes: Callable[[], bool] = lambda: True,
    ) -> None:
        self._name = name
        self._reader = reader
        self._edited_sources = edited_sources
        """`cell_id → digest` of the notebook's cells, or None while the file is as we wrote it"""
        self._observes = observes
        """whether the living kernel, if it is ours, is of a version that tells of names"""

    def brief(self, state: State) -> Report:
        """Complete counts and the worst cells; costs the same however long the journal is."""
        sources = self._edited_sources()
        if sources is not None:
            report = self.full(state, limit=ATTACH_CELLS)
            return replace(report, names=[])
        worst = self._reader.worst_cells(ATTACH_CELLS, self._heap(state), own=self._tells(state))
        return reconcile.summary(
            session=self._name,
            incarnation=state.incarnation,
            state=state.name,
            rows=self._reader.heap_counts(),
            worst=worst,
            why=self.why(state),
            sources={cell.execution_id: self._reader.source(cell.execution_id) for cell in worst},
            heap=self._names_of(state, worst) if self._tells(state) else None,
            names=self._reader.name_counts(),
        )

    def full(self, state: State, limit: int | None = None, snapshot: Any = None) -> Report:
        """Every cell and name; resources and claims are others' to add.

        Args:
            state: of the session.
            limit: how many cells to list.
            snapshot: what the kernel answered when asked for its names, to hold against the journal.
        """
        sources = self._edited_sources()
        view = self._view(state, self._reader.all_names(), {}, snapshot) if self._tells(state) else None
        if limit is not None and sources is None and (view is None or not view.now.shown):
            return self._some(state, limit, view)
        if view is not None:
            view = replace(view, observations=self._reader.observations())
        report = reconcile.reconcile(
            session=self._name,
            incarnation=state.incarnation,
            state=state.name,
            cells=self._reader.cells(),
            notebook_sources=sources,
            why=self.why(state),
            limit=limit,
            heap=view,
        )
        return replace(report, cells=self._with_sources(report.cells))

    def _some(self, state: State, limit: int, view: reconcile.HeapView | None) -> Report:
        """As `full`, where the counters in the cells' rows tell as much as their observations would."""
        cells = self._worst(state, limit, view)
        names: list[dict[str, Any]] = []
        if view is not None:
            names = name_truth.name_truths(view.now, incarnation=state.incarnation, state=state.name)
            observed = self._reader.observations(cell.cell_id for cell in cells)
            view = replace(view, observations=observed)
        report = reconcile.summary(
            session=self._name,
            incarnation=state.incarnation,
            state=state.name,
            rows=self._reader.heap_counts(),
            worst=cells,
            why=self.why(state),
            heap=view,
        )
        counts = name_truth.all_counts(Counter(name["truth"] for name in names)) if view is not None else {}
        return replace(report, cells=self._with_sources(report.cells), names=names, name_counts=counts)

    def _worst(self, state: State, limit: int, view: reconcile.HeapView | None) -> list[Cell]:
        """The cells that come first in a report."""
        ranks: dict[tuple[int, str, str | None, str], int] = {}

        def rank(cell: Cell) -> tuple[int, int]:
            key = (cell.incarnation, cell.status, cell.outcome, cell.heap)
            if key not in ranks:
                counts = reconcile.summary_counts(
                    [(*key, 1)], incarnation=state.incarnation, state=state.name, heap=view
                )
                ranks[key] = next(n for n, truth in enumerate(CELL_TRUTHS) if counts[truth])
            return ranks[key], cell.position

        return nsmallest(limit, self._reader.cells(), key=rank)

    def _with_sources(self, cells: Sequence[CellTruth]) -> list[CellTruth]:
        """With the first line of the first of them."""
        shown = {cell.execution_id for cell in cells[:_SOURCES] if cell.execution_id is not None}
        sources = {execution_id: self._reader.source(execution_id) for execution_id in shown}
        return [
            replace(cell, evidence={"source": _first_line(sources[cell.execution_id]), **cell.evidence})
            if cell.execution_id in sources
            else cell
            for cell in cells
        ]

    def _tells(self, state: State) -> bool:
        """Whether the kernel tells of names: ours do, but for one that an older version has started."""
        return state.own and self._observes()

    def _names_of(self, state: State, cells: Sequence[Cell]) -> reconcile.HeapView:
        """What is known of the names that these cells depend on."""
        observations = self._reader.observations(cell.cell_id for cell in cells)
        wanted = {name for seen in observations.values() for name in (*seen.bound, *seen.reads)}
        rows = [row for name in sorted(wanted) if (row := self._reader.name(name)) is not None]
        return self._view(state, rows, observations, None)

    def _view(
        self,
        state: State,
        names: Sequence[Name],
        observations: Mapping[str, Observation],
        snapshot: Any,
    ) -> reconcile.HeapView:
        return reconcile.view(
            incarnation=state.incarnation,
            names=names,
            heap=self._reader.heap(state.incarnation),
            observations=observations,
            running=state.running.execution.execution_id if state.running is not None else None,
            snapshot=snapshot,
        )

    def _heap(self, state: State) -> int:
        return state.incarnation if state.kernel in ("up", "starting") else state.incarnation + 1

    def why(self, state: State) -> dict[str, Any]:
        why = self._why_so(state)
        if state.incarnation and not self._tells(state):
            why["names"] = FOREIGN if not state.own else OLDER
        return why

    def _why_so(self, state: State) -> dict[str, Any]:
        if state.unresponsive is not None:
            return dict(state.unresponsive)
        if state.kernel in ("dead", "stopped"):
            for kind in ("KernelDied", "KernelStopped", "KernelStartFailed"):
                entry = self._reader.latest(kind)
                if entry is not None and entry.incarnation == state.incarnation:
                    fact: dict[str, Any] = msgspec.to_builtins(entry.fact)
                    return {"entry": entry.seq, "kind": kind, **fact}
        running = state.running
        if running is None:
            return {}
        execution_id = running.execution.execution_id
        row = self._reader.execution(execution_id)
        why: dict[str, Any] = {
            "execution_id": execution_id,
            "principal": running.execution.principal,
            "source": _first_line(self._reader.source(execution_id)),
            "started_at": iso_time(row.started_at) if row is not None and row.started_at else None,
            "queued": len(state.queue),
        }
        if running.blocked is not None:
            why["blocked"] = blocked_document(running.blocked)
        return why


def _first_line(source: str) -> str:
    line = next((part for part in source.splitlines() if part.strip()), "")
    return line[:120]
