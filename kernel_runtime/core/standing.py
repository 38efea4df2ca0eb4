"""What became of what a cell's execution left in the heap, judged by the names as they are now.

    superseded  it bound names, and other executions bound or deleted every one of them since
    stale       the content of a name it read is another one now
    unknown     that may be so, or something may have reached it that nobody saw
    live        none of these

`judge` looks at everything and says why. `heap_of` says the same from the counters in a cell's row,
which core.heap moves one change at a time; that both agree is held by tests/property.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kernel_runtime.core.names import BINDS, CHANGED, SAME, adrift, compare, how_of, token_in
from kernel_runtime.model.execution import Cell, Heap, Name, Observation
from kernel_runtime.model.facts import ExecutionObserved

Lookup = Callable[[str], Name | None]

CLOSED, OPEN, REACHED = 0, 1, 2
"""values of `Cell.open`"""

HELD, ADRIFT, GONE = "held", "adrift", "gone"


def observation_of(
    fact: ExecutionObserved, *, cell_id: str, incarnation: int, seq: int, name: Lookup
) -> Observation:
    """What is kept of a fact; `name` gives the names as that execution left them."""
    bound = sorted(n for n, change in fact.names.items() if how_of(change) in BINDS)
    return Observation(
        cell_id=cell_id,
        execution_id=fact.execution_id,
        incarnation=incarnation,
        seq=seq,
        bound=bound,
        mutated=sorted(fact.names.keys() - set(bound)),
        reads={n: token_in(name(n), incarnation) for n in sorted(set(fact.reads))},
        dynamic=list(fact.dynamic),
    )


def hold(row: Name | None, observation: Observation) -> str:
    """What became of a name that the execution bound."""
    if row is None or row.incarnation != observation.incarnation:
        return ADRIFT
    return hold_of(row, observation.execution_id)


def hold_of(row: Name, execution_id: str) -> str:
    if row.bound_by != execution_id:
        return GONE
    return ADRIFT if adrift(row) else HELD


def with_counters(cell: Cell, observation: Observation, name: Lookup) -> Cell:
    """The cell's row with an observation of its execution; nothing has happened since."""
    holds = [hold(name(n), observation) for n in observation.bound]
    cell = replace(
        cell,
        held=holds.count(HELD),
        adrift=holds.count(ADRIFT),
        gone=holds.count(GONE),
        changed=0,
        unsure=0,
        open=OPEN if observation.dynamic else CLOSED,
    )
    return replace(cell, heap=heap_of(cell))


def heap_of(cell: Cell) -> str:
    """What the counters amount to."""
    if cell.gone and not cell.held and not cell.adrift:
        return "superseded"
    if cell.changed:
        return "stale"
    if cell.unsure or cell.adrift or cell.open == REACHED:
        return "unknown"
    return "live"


def judge(
    observation: Observation, name: Lookup, heap: Heap | None, *, changed_now: bool = False
) -> tuple[str, dict[str, Any]]:
    """The verdict, and the evidence for it: entries (`seq`), executions and tokens.

    `changed_now`: some name is seen to be another one than the entries say.
    """
    rows = {n: name(n) for n in observation.bound}
    holds = {n: hold(row, observation) for n, row in rows.items()}
    evidence: dict[str, Any] = {"observed": observation.seq}
    gone = {n: row.bound_by for n, row in rows.items() if row is not None and holds[n] == GONE}
    if gone and len(gone) == len(holds):
        return "superseded", {**evidence, "superseded_by": gone}
    if gone:
        evidence["rebound_by"] = gone
    mutated = {
        n: row.changed_by
        for n, row in rows.items()
        if row is not None and holds[n] == HELD and row.changed_by != observation.execution_id
    }
    if mutated:
        evidence["mutated_by"] = mutated
    compared = {n: _differs(then, name(n), observation.incarnation) for n, then in observation.reads.items()}
    if changed := {n: told for n, (how, told) in compared.items() if how == CHANGED}:
        return "stale", {**evidence, "changed": changed}
    why: dict[str, Any] = {}
    if unsure := {n: told for n, (how, told) in compared.items() if how not in (SAME, CHANGED)}:
        why["unsure"] = unsure
    if drifted := {n: _drift(rows[n]) for n, how in holds.items() if how == ADRIFT}:
        why["drifted"] = drifted
    since = heap.changed_seq if heap is not None and heap.changed_seq > observation.seq else None
    if observation.dynamic and (since is not None or changed_now):
        why["dynamic"] = observation.dynamic
        why["changed_since"] = since
    if heap is not None and heap.blind_seq > observation.seq:
        why["unseen_before"] = heap.blind_seq
    return ("unknown", {**evidence, **why}) if why else ("live", evidence)


def _differs(then: str, row: Name | None, incarnation: int) -> tuple[int, dict[str, Any]]:
    now = token_in(row, incarnation)
    told: dict[str, Any] = {"then": then or None, "now": now or None, "by": None, "seq": None}
    if row is not None and row.incarnation == incarnation:
        told["by"], told["seq"] = row.changed_by, row.changed_seq or None
        if row.why is not None:
            told["why"] = row.why
    return compare(then, now), told


def _drift(row: Name | None) -> dict[str, Any]:
    if row is None:
        return {"seq": None}
    told: dict[str, Any] = {"seq": row.changed_seq or None}
    if row.shaky:
        told["why"] = f"{row.why or 'its content cannot be compared'}; code ran beside it"
    return told
