"""What the entries amount to: executions, cells, and what each principal has seen.

Pure folds: a row and the next entry give the next row. The journal materialises them in the
transaction that writes the entry, and `verify` folds all entries again and compares.

Invariants:
- The folds are total: any sequence of entries folds, also one that breaks the laws. The first
  outcome stands, and what comes for an execution that is done or was never queued changes nothing.
- A cell's row tells of its execution that started last, since that is what the heap holds; while
  none has started, of the one queued last. So an execution that was aborted before it started never
  hides what an earlier one did.
- A `silent` execution is an execution, not a cell: its client asked that nobody see it. Nor is what an editor
  asks on its own account (`ExecutionQueued.is_cell`).

Names and what hangs on them are core.heap's part. They do not judge: whether a cell is `lost` or
`live` is for reconcile.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace

from kernel_runtime.core.blocked import blocked_of
from kernel_runtime.core.heap import MOVES_HEAP, HeapFold, HeapRows
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Execution, Seen
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionQueued,
    ExecutionStarted,
    Fact,
    HeapLossAccepted,
    HeapLossTold,
    InputAnswered,
    InputRequested,
    InputWithdrawn,
    PrincipalAttached,
    escape_text,
)

MOVES_EXECUTION: frozenset[type[Fact]] = frozenset(
    {
        ExecutionQueued,
        ExecutionStarted,
        InputRequested,
        InputAnswered,
        InputWithdrawn,
        ExecutionFinished,
    }
)
"""facts that can change an execution's row; all others leave it as it is"""

MOVES_SEEN: frozenset[type[Fact]] = frozenset(
    {PrincipalAttached, ExecutionStarted, HeapLossTold, HeapLossAccepted}
)

TELLING_ACCEPTS = frozenset({"status", "brief", "stderr"})
"""ways of being told of a heap's loss after which the next execution runs: a principal that read
the truth knows it. Being refused or attaching are not among them, or the first refusal would be the
only one and a client that attaches before each execution would never be stopped."""

CellCount = tuple[int, str, str | None, str]
"""`(incarnation, status, outcome, heap)` of a cell's row"""


def source_digest(source: str) -> str:
    """sha256 of a cell's source, hexadecimal: what `Execution.source_digest` holds.

    Lone surrogates are digested as they are stored, escaped.
    """
    try:
        data = source.encode("utf-8")
    except UnicodeEncodeError:
        data = escape_text(source).encode("utf-8")
    return hashlib.sha256(data).hexdigest()


def step_execution(row: Execution | None, entry: Entry) -> Execution | None:
    """The execution's row after one of its entries; None while it was never queued."""
    fact = entry.fact
    if row is None:
        return _queued(fact, entry) if isinstance(fact, ExecutionQueued) else None
    if row.status == "done":
        return row
    match fact:
        case ExecutionStarted() if row.status == "queued":
            return replace(row, status="running", started_at=entry.at, incarnation=entry.incarnation)
        case InputRequested() if row.status != "queued":
            return replace(row, status="blocked", blocked=blocked_of(fact, entry.at))
        case InputAnswered() | InputWithdrawn() if row.status == "blocked":
            return replace(row, status="running", blocked=None)
        case ExecutionFinished():
            return replace(
                row,
                status="done",
                outcome=fact.outcome,
                execution_count=fact.execution_count,
                finished_at=entry.at,
                finished_seq=entry.seq,
                error=fact.error,
                evidence=fact.evidence,
                blocked=None,
            )
    return row


def _queued(fact: ExecutionQueued, entry: Entry) -> Execution:
    return Execution(
        execution_id=fact.execution_id,
        cell_id=fact.cell_id,
        principal=entry.principal,
        msg_id=fact.msg_id,
        source_digest=source_digest(fact.source),
        queued_seq=entry.seq,
        queued_at=entry.at,
        key=fact.key,
        incarnation=entry.incarnation,
    )


def step_cell(
    cell: Cell | None, before: Execution | None, after: Execution | None, entry: Entry
) -> Cell | None:
    """The cell's row after an entry that took one of its executions from `before` to `after`.

    None while it has only executions that are no cells.
    """
    if after is None or after is before:
        return cell
    if before is None:
        if isinstance(entry.fact, ExecutionQueued) and not entry.fact.is_cell:
            return cell
        if cell is None:
            return _cell(after, position=after.queued_seq, executions=1)
        if _never_started(cell):
            return _cell(after, position=cell.position, executions=cell.executions + 1)
        return replace(cell, executions=cell.executions + 1)
    if cell is None:
        return None
    if cell.execution_id == after.execution_id:
        return replace(cell, incarnation=after.incarnation, status=after.status, outcome=after.outcome)
    if before.started_at is None and after.started_at is not None:
        return _cell(after, position=cell.position, executions=cell.executions)
    return cell


def _never_started(cell: Cell) -> bool:
    return cell.status == "queued" or cell.outcome == "aborted"


def _cell(execution: Execution, *, position: int, executions: int) -> Cell:
    return Cell(
        cell_id=execution.cell_id,
        execution_id=execution.execution_id,
        source_digest=execution.source_digest,
        incarnation=execution.incarnation,
        status=execution.status,
        outcome=execution.outcome,
        position=position,
        executions=executions,
    )


def step_seen(seen: Seen | None, entry: Entry) -> Seen | None:
    """What the entry's principal has seen after it; None while it has seen and accepted nothing."""
    match entry.fact:
        case PrincipalAttached() | ExecutionStarted():
            row = seen or Seen(principal=entry.principal, incarnation=0)
            return (
                row if row.incarnation >= entry.incarnation else replace(row, incarnation=entry.incarnation)
            )
        case HeapLossAccepted():
            return _accepted(seen, entry)
        case HeapLossTold(how=how) if how in TELLING_ACCEPTS:
            return _accepted(seen, entry)
    return seen


def _accepted(seen: Seen | None, entry: Entry) -> Seen:
    row = seen or Seen(principal=entry.principal, incarnation=0)
    return row if row.accepted >= entry.incarnation else replace(row, accepted=entry.incarnation)


def position_of(fact: Fact) -> int | None:
    """How far the outbox has been read when this fact is on disk, if it says so."""
    position: int | None = getattr(fact, "position", None)
    return position


def count_of(cell: Cell) -> CellCount:
    return (cell.incarnation, cell.status, cell.outcome, cell.heap)


class Rows(HeapRows, Protocol):
    """Rows that were folded before: what a store gives to go on from."""

    def execution(self, execution_id: str) -> Execution | None: ...

    def cell(self, cell_id: str) -> Cell | None: ...

    def seen(self, principal: str) -> Seen | None: ...


class _NoRows:
    """Before the first entry."""

    def nothing(self, _key: str) -> None:
        return None

    def no_heap(self, _incarnation: int) -> None:
        return None

    def none_at_all(self, _incarnation: int, *_more: object) -> tuple[()]:
        return ()

    execution = cell = seen = name = observation = nothing
    heap = no_heap
    readers = open_cells = observed_cells = unreadable = none_at_all


class Projections:
    """Rows folded from entries: from a journal's beginning, or those that change on top of `base`."""

    def __init__(self, base: Rows | None = None) -> None:
        self._base: Rows = base or _NoRows()
        self._begun: dict[str, Execution | None] = {}
        self.executions: dict[str, Execution] = {}
        self.cells: dict[str, Cell] = {}
        self.seen: dict[str, Seen] = {}
        self.positions: dict[int, int] = {}
        """per incarnation, the greatest outbox position recorded in it"""
        self.counts: Counter[CellCount] = Counter()
        """cells per state; the difference to `base`, so zero and negative numbers too"""
        self.heap_moved: HeapFold | None = None
        """`heap`, once an entry has touched it"""

    @property
    def heap(self) -> HeapFold:
        """Names, and what became of cells by them."""
        if self.heap_moved is None:
            self.heap_moved = HeapFold(self._base, self)
        return self.heap_moved

    def apply(self, entry: Entry) -> None:
        kind = type(entry.fact)
        if kind in MOVES_EXECUTION and entry.execution_id is not None:
            self._move(entry, entry.execution_id)
        if kind in MOVES_HEAP:
            self.heap.apply(entry, self._cell_of)
        if kind in MOVES_SEEN:
            before = self.seen.get(entry.principal) or self._base.seen(entry.principal)
            seen = step_seen(before, entry)
            if seen is not None and seen is not before:
                self.seen[seen.principal] = seen
        position = position_of(entry.fact)
        if position is not None:
            self.positions[entry.incarnation] = max(position, self.positions.get(entry.incarnation, position))

    def execution(self, execution_id: str) -> Execution | None:
        """The row as it is by now."""
        if execution_id in self.executions:
            return self.executions[execution_id]
        if execution_id not in self._begun:
            self._begun[execution_id] = self._base.execution(execution_id)
        return self._begun[execution_id]

    def _move(self, entry: Entry, execution_id: str) -> None:
        before = self.execution(execution_id)
        after = step_execution(before, entry)
        if after is None or after is before:
            return
        self.executions[execution_id] = after
        old = self.cell(after.cell_id)
        new = step_cell(old, before, after, entry)
        if new is None or new is old:
            return
        if old is not None and old.heap and not new.heap:
            self.heap.forget(new.cell_id)
        self.put_cell(old, new)

    def cell(self, cell_id: str) -> Cell | None:
        """The row as it is by now."""
        return self.cells.get(cell_id) or self._base.cell(cell_id)

    def put_cell(self, old: Cell | None, new: Cell) -> None:
        """Replace a row by the next one."""
        self.cells[new.cell_id] = new
        now = count_of(new)
        if old is not None:
            then = count_of(old)
            if then == now:
                return
            self.counts[then] -= 1
        self.counts[now] += 1

    def _cell_of(self, execution_id: str) -> str | None:
        execution = self.execution(execution_id)
        return None if execution is None else execution.cell_id


def fold(entries: Iterable[Entry]) -> Projections:
    """The projections of a whole journal."""
    projections = Projections()
    for entry in entries:
        projections.apply(entry)
    return projections
