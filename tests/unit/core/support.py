"""Entries in few words, and folded rows as a base to fold on."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_runtime.core.projection import Projections
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Execution, Heap, Name, Observation, Seen
from kernel_runtime.model.facts import Fact, execution_of


def entry(seq: int, fact: Fact, incarnation: int = 1, principal: str = "agent:a") -> Entry:
    return Entry(
        seq=seq,
        at=seq * 1000,
        mono=seq,
        incarnation=incarnation,
        principal=principal,
        kind=type(fact).__name__,
        fact=fact,
        execution_id=execution_of(fact),
        prev_hash="",
        hash="",
    )


class FoldedRows:
    """What a store gives, from a fold: looked up the slow and obvious way."""

    def __init__(self, folded: Projections) -> None:
        self.folded = folded

    def execution(self, execution_id: str) -> Execution | None:
        return self.folded.executions.get(execution_id)

    def cell(self, cell_id: str) -> Cell | None:
        return self.folded.cells.get(cell_id)

    def seen(self, principal: str) -> Seen | None:
        return self.folded.seen.get(principal)

    def name(self, name: str) -> Name | None:
        return self.folded.heap.names.get(name)

    def observation(self, cell_id: str) -> Observation | None:
        return self.folded.heap.observations.get(cell_id)

    def heap(self, incarnation: int) -> Heap | None:
        return self.folded.heap.heaps.get(incarnation)

    def readers(
        self, incarnation: int, name: str, tokens: tuple[str, ...] | None
    ) -> Iterable[tuple[str, Cell]]:
        return [
            (seen.reads[name], self.folded.cells[seen.cell_id])
            for seen in self.folded.heap.observations.values()
            if seen is not None
            and seen.incarnation == incarnation
            and name in seen.reads
            and (tokens is None or seen.reads[name] in tokens)
        ]

    def open_cells(self, incarnation: int) -> Iterable[Cell]:
        return [c for c in self.folded.cells.values() if c.incarnation == incarnation and c.open == 1]

    def observed_cells(self, incarnation: int) -> Iterable[Cell]:
        return [c for c in self.folded.cells.values() if c.incarnation == incarnation and c.heap]

    def unreadable(self, incarnation: int) -> Iterable[Name]:
        return [
            row
            for row in self.folded.heap.names.values()
            if row.incarnation == incarnation and row.present and row.digest is None and not row.shaky
        ]
