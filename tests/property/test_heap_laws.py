"""Laws of names and of what became of cells, for any story that a probe could tell, and any it could not.

The counters that core.heap moves one change at a time say what looking at everything says.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_runtime.core.names import CHANGED, compare, state_of, token_in
from kernel_runtime.core.projection import Projections, fold
from kernel_runtime.core.standing import judge
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell
from kernel_runtime.model.facts import Fact
from tests.unit.core.support import FoldedRows, entry
from tests.unit.journal.support import finished, queued, started

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
digests = st.sampled_from(["d:1", "d:2", None])


@st.composite
def changes(draw: st.DrawFn, hows: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(draw(st.sets(names, max_size=2))):
        how = draw(st.sampled_from(hows))
        digest = None if how in ("touched", "deleted") else draw(digests)
        found[name] = {"how": how, "type": "int", "bytes": 8, "digest": digest}
        if digest is None:
            found[name]["why"] = "too large"
    return found


HOWS = ("bound", "rebound", "mutated", "deleted", "touched")
DRIFTS = (*HOWS, "touched", "read")
maybe_volatile = st.sampled_from([[], [], [], ["thread t"]])


@st.composite
def stories(draw: st.DrawFn) -> list[Entry]:
    """Executions one after another, in a few cells and incarnations, with drift between them.

    Now and then the probe is not heard, or is heard late, twice, or of what never ran.
    """
    said: list[Entry] = []
    incarnation, late = 1, list[Fact]()

    def say(fact: Fact) -> None:
        said.append(entry(len(said) + 1, fact, incarnation))

    for n in range(draw(st.integers(1, 12))):
        what = draw(st.sampled_from(["run", "run", "run", "run", "drift", "restart", "abort"]))
        name = f"x{n}"
        if what == "restart":
            incarnation += 1
            late = []
        elif what == "drift":
            say(facts.NamesDrifted(names=draw(changes(DRIFTS)), found="idle", volatile=draw(maybe_volatile)))
        else:
            say(queued(name, cell_id=f"c{draw(st.integers(0, 3))}", silent=draw(st.integers(0, 9)) == 0))
            say(started(name))
            while late:
                say(late.pop())
            if what == "abort":
                say(finished(name, "aborted"))
                continue
            observed = facts.ExecutionObserved(
                execution_id=name,
                names=draw(changes(HOWS)),
                reads=draw(st.lists(names, max_size=3)),
                dynamic=draw(st.sampled_from([[], [], [], ["exec"]])),
                volatile=draw(maybe_volatile),
                groups=draw(st.sampled_from([None, [], [["a", "b"]]])),
            )
            say(finished(name, draw(st.sampled_from(["ok", "ok", "ok", "error"]))))
            heard = draw(st.sampled_from(["now", "now", "now", "now", "late", "never", "twice"]))
            if heard in ("now", "twice"):
                say(observed)
            if heard in ("late", "twice"):
                late.append(observed)
    return said


def told(folded: Projections) -> list[tuple[Cell, str, dict[str, Any]]]:
    """Each observed cell of the latest incarnation, and what looking at everything says of it."""
    last = max(folded.heap.heaps, default=0)
    return [
        (folded.cells[seen.cell_id], *judge(seen, folded.heap.names.get, folded.heap.heaps.get(last)))
        for seen in folded.heap.observations.values()
        if seen is not None and seen.incarnation == last
    ]


@settings(max_examples=150)
@given(stories())
def test_the_counters_say_what_looking_at_everything_says(said: list[Entry]):
    folded = fold(said)
    for cell, truth, _evidence in told(folded):
        assert cell.heap == truth, cell
        assert min(cell.held, cell.adrift, cell.gone, cell.changed, cell.unsure) >= 0
    states = [(x.incarnation, state) for x in folded.heap.names.values() if (state := state_of(x))]
    assert dict(+folded.heap.counts) == {key: states.count(key) for key in states}
    for cell in folded.cells.values():
        seen = folded.heap.observations.get(cell.cell_id)
        assert (cell.heap != "") == (seen is not None and seen.execution_id == cell.execution_id)


@settings(max_examples=150)
@given(stories(), st.data())
def test_it_does_not_matter_where_a_fold_is_cut(said: list[Entry], data: st.DataObject):
    whole = fold(said)
    cut = data.draw(st.integers(0, len(said)))
    before = fold(said[:cut])
    change = Projections(FoldedRows(before))
    for one in said[cut:]:
        change.apply(one)
    assert {**before.cells, **change.cells} == whole.cells
    for part in ("names", "heaps"):
        assert {**getattr(before.heap, part), **getattr(change.heap, part)} == getattr(whole.heap, part)
    merged = {**before.heap.observations, **change.heap.observations}
    assert {k: v for k, v in merged.items() if v} == {k: v for k, v in whole.heap.observations.items() if v}
    reads = {**before.heap.reads, **change.heap.reads}
    assert {k for k, there in reads.items() if there} == {k for k, there in whole.heap.reads.items() if there}
    counts = before.heap.counts.copy()
    counts.update(change.heap.counts)
    assert +counts == +whole.heap.counts


@settings(max_examples=150)
@given(stories())
def test_no_cell_is_live_whose_read_changed_or_whose_names_are_gone(said: list[Entry]):
    folded = fold(said)
    heap = folded.heap
    firsts = list({(x.kind, x.execution_id or x.seq): x for x in reversed(said)}.values())
    for cell, truth, evidence in told(folded):
        seen = heap.observations[cell.cell_id]
        assert seen is not None
        later = [x for x in firsts if x.seq > seen.seq and x.incarnation == seen.incarnation]
        changed = {
            n: x
            for x in later
            if isinstance(x.fact, facts.ExecutionObserved | facts.NamesDrifted)
            for n, change in x.fact.names.items()
            if change.get("how") != "read"  # its digest could be told at last: that changes nothing
        }
        if truth == "live":
            for name, then in seen.reads.items():
                assert then == token_in(heap.names.get(name), seen.incarnation)
                row = heap.names.get(name)
                assert name not in changed or (row is not None and row.digest is not None) or not then
            assert not (seen.dynamic and changed)
            assert not any(heap.names[n].drifted for n in seen.bound)
        if truth == "stale":
            for how in evidence["changed"].values():
                assert compare(how["then"] or "", how["now"] or "") == CHANGED
                assert how["seq"] > seen.seq
                assert how["by"] != seen.execution_id
        if truth == "superseded":
            assert set(evidence["superseded_by"]) == set(seen.bound)
            assert seen.execution_id not in evidence["superseded_by"].values()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["queue", "start", "finish", "observe", "drift"]),
            st.sampled_from(["x", "y"]),
            st.integers(1, 2),
            st.dictionaries(st.sampled_from(NAMES), st.dictionaries(st.text(max_size=6), anything)),
        ),
        max_size=20,
    )
)
def test_any_entries_in_any_order_fold(said: list[tuple[str, str, int, dict[str, Any]]]):
    made: list[Entry] = []
    for seq, (what, name, incarnation, names_) in enumerate(said, 1):
        fact: Fact
        match what:
            case "queue":
                fact = queued(name, cell_id="c")
            case "start":
                fact = started(name)
            case "finish":
                fact = finished(name)
            case "observe":
                fact = facts.ExecutionObserved(execution_id=name, names=names_, reads=list(NAMES))
            case _:
                fact = facts.NamesDrifted(names=names_, found="idle", volatile=["task"])
        made.append(entry(seq, fact, incarnation))
    one, other = fold(made), fold(made)
    assert (one.heap.names, one.heap.heaps, one.cells) == (other.heap.names, other.heap.heaps, other.cells)
