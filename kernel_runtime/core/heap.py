"""Names, and what became of what each cell left in the heap: folded one entry at a time.

A change of a name moves the counters of those cells alone that it concerns: readers whose token
compares otherwise now, and the cell that bound it. So an execution costs what it touched, and the
counts of all verdicts are there without looking at a cell.

Invariants:
- After any entries, `Cell.heap` of every observed cell of the latest incarnation is what
  `standing.judge` says of it (tests/property/test_heap_laws.py).
- An execution that started and was never told of, while later ones were, makes what was observed
  before it uncertain for good: nobody saw what it did.
- A cell holds one observation, of its latest execution; a second one of the same execution is ignored.

Cells of earlier incarnations keep the verdict they had: reconcile calls them lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from kernel_runtime.core.names import (
    CHANGED,
    READ,
    UNSURE,
    affected,
    compare,
    shaken,
    state_of,
    step_name,
    token_in,
)
from kernel_runtime.core.standing import (
    ADRIFT,
    GONE,
    HELD,
    OPEN,
    REACHED,
    heap_of,
    hold_of,
    observation_of,
    with_counters,
)
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Heap, Name, Observation
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionObserved,
    ExecutionStarted,
    Fact,
    NamesDrifted,
)

MOVES_HEAP: frozenset[type[Fact]] = frozenset(
    {ExecutionStarted, ExecutionFinished, ExecutionObserved, NamesDrifted}
)

Read = tuple[int, str, str, str]
"""`(incarnation, name, token, cell_id)`: an observed cell read that name with that content"""

_FIELDS = {HELD: "held", ADRIFT: "adrift", GONE: "gone"}


class HeapRows(Protocol):
    """Rows that were folded before."""

    def name(self, name: str) -> Name | None: ...

    def observation(self, cell_id: str) -> Observation | None: ...

    def heap(self, incarnation: int) -> Heap | None: ...

    def readers(
        self, incarnation: int, name: str, tokens: tuple[str, ...] | None
    ) -> Iterable[tuple[str, Cell]]:
        """Observed cells that read the name with one of these tokens, each with it; None: with any."""
        ...

    def open_cells(self, incarnation: int) -> Iterable[Cell]:
        """Cells whose `open` is OPEN."""
        ...

    def observed_cells(self, incarnation: int) -> Iterable[Cell]:
        """Cells whose `heap` is not empty."""
        ...

    def unreadable(self, incarnation: int) -> Iterable[Name]:
        """Names that are there without a digest and are not shaky."""
        ...


class CellTable(Protocol):
    """Cells as they are by now."""

    @property
    def cells(self) -> Mapping[str, Cell]:
        """Those that changed on top of the base."""
        ...

    def cell(self, cell_id: str) -> Cell | None: ...

    def put_cell(self, old: Cell | None, new: Cell) -> None: ...


class HeapFold:
    """Rows folded from entries: from a journal's beginning, or those that change on top of `base`."""

    def __init__(self, base: HeapRows, cells: CellTable) -> None:
        self._base = base
        self._cells = cells
        self.names: dict[str, Name] = {}
        self.observations: dict[str, Observation | None] = {}
        """None: its cell has a later execution, which was not observed yet"""
        self.heaps: dict[int, Heap] = {}
        self.reads: dict[Read, bool] = {}
        """True: came; False: went"""
        self.counts: Counter[tuple[int, str]] = Counter()
        """names that are there per `(incarnation, state)`; the difference to `base`"""
        self._readers: defaultdict[tuple[int, str], defaultdict[str, set[str]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self._open: defaultdict[int, set[str]] = defaultdict(set)
        self._steady: defaultdict[int, set[str]] = defaultdict(set)
        """names without a digest that are not shaky"""
        self._known: dict[str, Name | None] = {}

    def apply(self, entry: Entry, cell_of: Callable[[str], str | None]) -> None:
        """Fold one entry; `cell_of` gives the cell of an execution."""
        fact = entry.fact
        match fact:
            case ExecutionStarted():
                self._started(entry, fact.execution_id)
            case ExecutionFinished(outcome="aborted"):
                self._never_ran(entry, fact.execution_id)
            case ExecutionObserved():
                self._observed(entry, fact, cell_of(fact.execution_id))
            case NamesDrifted():
                self._drifted(entry, fact)

    def name(self, name: str) -> Name | None:
        """The row as it is by now."""
        row = self.names.get(name)
        if row is not None:
            return row
        if name not in self._known:
            self._known[name] = self._base.name(name)
        return self._known[name]

    def heap(self, incarnation: int) -> Heap | None:
        return self.heaps.get(incarnation) or self._base.heap(incarnation)

    def forget(self, cell_id: str) -> None:
        """The cell has a later execution: what was observed of the one before tells of it no more."""
        old = self._observation(cell_id)
        if old is None:
            return
        self.observations[cell_id] = None
        self._open[old.incarnation].discard(cell_id)
        for name, token in old.reads.items():
            self.reads[old.incarnation, name, token, cell_id] = False
            self._readers[old.incarnation, name][token].discard(cell_id)

    def _observation(self, cell_id: str) -> Observation | None:
        if cell_id in self.observations:
            return self.observations[cell_id]
        return self._base.observation(cell_id)

    # -- what was not told

    def _started(self, entry: Entry, execution_id: str) -> None:
        heap = self.heap(entry.incarnation)
        if heap is None or execution_id in heap.awaited:
            return
        # One may be running while the one before has not been told of yet. What is older never will be.
        missed = heap.awaited[:-1]
        self.heaps[entry.incarnation] = replace(heap, awaited=[*heap.awaited[-1:], execution_id])
        if missed:
            self._blind(entry)

    def _never_ran(self, entry: Entry, execution_id: str) -> None:
        heap = self.heap(entry.incarnation)
        if heap is not None and execution_id in heap.awaited:
            awaited = [x for x in heap.awaited if x != execution_id]
            self.heaps[entry.incarnation] = replace(heap, awaited=awaited)

    def _told(self, entry: Entry, execution_id: str) -> None:
        heap = self.heap(entry.incarnation)
        if heap is None or execution_id not in heap.awaited:
            return
        place = heap.awaited.index(execution_id)
        self.heaps[entry.incarnation] = replace(heap, awaited=heap.awaited[place + 1 :])
        if place:
            self._blind(entry)

    def _blind(self, entry: Entry) -> None:
        """Something ran that nobody saw: whatever was observed before it is not certain any more."""
        incarnation = entry.incarnation
        heap = self.heap(incarnation)
        assert heap is not None
        self.heaps[incarnation] = replace(heap, blind_seq=entry.seq)
        changed = self._cells.cells
        mine = [cell for cell in changed.values() if cell.heap and cell.incarnation == incarnation]
        others = [c for c in self._base.observed_cells(incarnation) if c.cell_id not in changed]
        for cell in [*mine, *others]:
            self._move(cell, open=REACHED)

    # -- what was told

    def _observed(self, entry: Entry, fact: ExecutionObserved, cell_id: str | None) -> None:
        cell = None if cell_id is None else self._cells.cell(cell_id)
        if cell is not None and (
            cell.execution_id != fact.execution_id
            or cell.status == "queued"
            or cell.incarnation != entry.incarnation
        ):
            cell = None
        if cell is not None and cell.heap:
            return
        self._told(entry, fact.execution_id)
        for name, change in fact.names.items():
            self._change(entry, name, change, fact.execution_id, cell_id)
        if cell is not None:
            self._keep(entry, fact, cell)
        self._conclude(entry, fact, but=None if cell is None else cell.cell_id)

    def _keep(self, entry: Entry, fact: ExecutionObserved, cell: Cell) -> None:
        seen = observation_of(
            fact, cell_id=cell.cell_id, incarnation=entry.incarnation, seq=entry.seq, name=self.name
        )
        self.observations[cell.cell_id] = seen
        for name, token in seen.reads.items():
            self.reads[entry.incarnation, name, token, cell.cell_id] = True
            self._readers[entry.incarnation, name][token].add(cell.cell_id)
        now = with_counters(cell, seen, self.name)
        if now.open == OPEN:
            self._open[entry.incarnation].add(now.cell_id)
        self._cells.put_cell(cell, now)

    def _drifted(self, entry: Entry, fact: NamesDrifted) -> None:
        for name, change in fact.names.items():
            self._change(entry, name, change, None, None)
        self._conclude(entry, fact, but=None)

    def _conclude(self, entry: Entry, fact: ExecutionObserved | NamesDrifted, *, but: str | None) -> None:
        incarnation, seq = entry.incarnation, entry.seq
        changes = any(change.get("how") != READ for change in fact.names.values())
        if fact.volatile:
            for row in self._unreadable(incarnation):
                changes = True
                self._set(row, shaken(row, seq), incarnation)
        heap = self.heap(incarnation) or Heap(incarnation=incarnation, seq=seq)
        self.heaps[incarnation] = replace(
            heap,
            seq=seq,
            changed_seq=seq if changes else heap.changed_seq,
            groups=heap.groups if fact.groups is None else fact.groups,
            unfollowed=fact.unfollowed if fact.groups is not None or fact.unfollowed else heap.unfollowed,
            # a drift that names none says nothing of it
            volatile=fact.volatile if isinstance(fact, ExecutionObserved) or fact.volatile else heap.volatile,
        )
        if changes:
            self._reach_open(incarnation, but)

    def _reach_open(self, incarnation: int, but: str | None) -> None:
        """A name changed: cells that read more than is known may have read it."""
        changed = self._cells.cells
        found = {cell.cell_id: cell for cell in self._base.open_cells(incarnation)}
        found |= {cell_id: changed[cell_id] for cell_id in self._open[incarnation]}
        for cell_id, cell in found.items():
            now = changed.get(cell_id, cell)
            if cell_id != but and now.heap and now.open == OPEN:
                self._move(now, open=REACHED)
                self._open[incarnation].discard(cell_id)

    def _unreadable(self, incarnation: int) -> list[Name]:
        mine = (self.names[name] for name in sorted(self._steady[incarnation]))
        return [
            *(row for row in mine if row.incarnation == incarnation),
            *(row for row in self._base.unreadable(incarnation) if row.name not in self.names),
        ]

    # -- one name

    def _change(
        self,
        entry: Entry,
        name: str,
        change: Mapping[str, Any],
        execution_id: str | None,
        cell_id: str | None,
    ) -> None:
        old = self.name(name)
        new = step_name(
            old,
            name,
            change,
            seq=entry.seq,
            incarnation=entry.incarnation,
            execution_id=execution_id,
            cell_id=cell_id,
        )
        self._set(old, new, entry.incarnation)

    def _set(self, old: Name | None, new: Name, incarnation: int) -> None:
        self.names[new.name] = new
        if new.present and new.digest is None and not new.shaky:
            self._steady[incarnation].add(new.name)
        else:
            self._steady[incarnation].discard(new.name)
        before, after = state_of(old) if old is not None else None, state_of(new)
        if old is not None and before is not None:
            self.counts[old.incarnation, before] -= 1
        if after is not None:
            self.counts[incarnation, after] += 1
        then, now = token_in(old, incarnation), token_in(new, incarnation)
        if then != now:
            self._tell_readers(incarnation, new.name, then, now)
        if old is not None and old.incarnation == incarnation:
            self._tell_owner(old, new)

    def _tell_readers(self, incarnation: int, name: str, before: str, after: str) -> None:
        tokens = affected(before, after)
        for token, cell in self._read_with(incarnation, name, tokens):
            was, now = compare(token, before), compare(token, after)
            self._move(
                cell,
                changed=cell.changed + (now == CHANGED) - (was == CHANGED),
                unsure=cell.unsure + (now == UNSURE) - (was == UNSURE),
            )

    def _read_with(
        self, incarnation: int, name: str, tokens: tuple[str, ...] | None
    ) -> list[tuple[str, Cell]]:
        """Observed cells that read the name with one of these tokens, as they are by now."""
        changed = self._cells.cells
        mine: Mapping[str, set[str]] = self._readers.get((incarnation, name), {})
        return [
            *(
                (token, changed[cell_id])
                for token in (mine if tokens is None else tokens)
                for cell_id in sorted(mine.get(token, ()))
            ),
            *(
                (token, changed.get(cell.cell_id, cell))
                for token, cell in self._base.readers(incarnation, name, tokens)
                if cell.cell_id not in self.observations
            ),
        ]

    def _tell_owner(self, old: Name, new: Name) -> None:
        if old.bound_in is None or old.bound_by is None:
            return
        was, now = hold_of(old, old.bound_by), hold_of(new, old.bound_by)
        if was == now:
            return
        cell = self._cells.cell(old.bound_in)
        if (
            cell is not None
            and cell.heap
            and cell.execution_id == old.bound_by
            and cell.incarnation == old.incarnation
        ):
            more = {
                _FIELDS[was]: getattr(cell, _FIELDS[was]) - 1,
                _FIELDS[now]: getattr(cell, _FIELDS[now]) + 1,
            }
            self._move(cell, **more)

    def _move(self, cell: Cell, **counters: int) -> None:
        moved = replace(cell, **counters)
        verdict = heap_of(moved)
        self._cells.put_cell(cell, moved if verdict == cell.heap else replace(moved, heap=verdict))
