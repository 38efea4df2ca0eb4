"""Which executions made a value what it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.core.why import History, Why
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionObserved,
    ExecutionStarted,
    Fact,
    NamesDrifted,
)
from tests.unit.core.support import entry


def ran(execution_id: str, reads: str = "", dynamic: list[str] | None = None, **how: str) -> list[Fact]:
    """An execution that read some names, and what it did to others."""
    names = {name: {"how": what} for name, what in how.items()}
    observed = ExecutionObserved(
        execution_id=execution_id, names=names, reads=reads.split(), dynamic=dynamic or []
    )
    return [
        ExecutionStarted(execution_id=execution_id),
        ExecutionFinished(execution_id=execution_id, outcome="ok"),
        observed,
    ]


def why(name: str, *lives: list[Fact]) -> Why | None:
    """One list of facts for each incarnation."""
    history = History()
    seq = 0
    for incarnation, facts in enumerate(lives, 1):
        for fact in facts:
            seq += 1
            history.take([entry(seq, fact, incarnation)])
    return history.why(name)


def who(found: Why | None) -> list[str]:
    assert found is not None
    return [origin.execution_id for origin in found.executions]


STORY = [
    *ran("rate", rate="bound"),
    *ran("data", data="bound"),
    *ran("noise", noise="bound"),
    *ran("scale", scale="bound"),
    *ran("append", "data", data="mutated"),
    *ran("total", "scale rate data", total="bound"),
    *ran("data-again", data="rebound"),
    *ran("total-again", "total", total="rebound"),
]


def test_back_through_reads_to_what_they_were_then():
    """`data` was bound anew after `total` had read it: that is not part of how total came to be."""
    assert who(why("total", STORY)) == ["rate", "data", "scale", "append", "total", "total-again"]
    assert who(why("data", STORY)) == ["data-again"]
    found = why("total", STORY)
    assert found is not None
    assert [(c.name, c.how) for c in found.executions[3].because] == [("data", "mutated")]


def test_a_name_that_is_gone_is_told_as_it_was():
    found = why("x", [*ran("a", x="bound"), *ran("b", "x", x="mutated"), *ran("c", x="deleted")])
    assert found is not None
    assert (found.present, who(found)) == (False, ["a", "b"])


def test_what_was_bound_after_a_deletion_has_no_older_past():
    assert who(why("x", [*ran("a", x="bound"), *ran("b", x="deleted"), *ran("c", x="bound")])) == ["c"]


def test_incarnations_share_nothing():
    """The same name in the next kernel is another value."""
    found = why("x", ran("a", x="bound", y="bound"), [*ran("b", y="bound"), *ran("c", "y", x="bound")])
    assert found is not None
    assert (found.incarnation, who(found)) == (2, ["b", "c"])
    old = why("x", ran("a", x="bound"), ran("b", y="bound"))
    assert old is not None
    assert (old.incarnation, who(old)) == (1, ["a"])


def test_an_observation_that_comes_after_the_next_start_counts_as_before_it():
    """Two executions in a row: the second's start is in the journal before the first is told of."""
    first, second = ran("a", x="bound"), ran("b", "x", y="bound")
    facts: list[Fact] = [first[0], first[1], second[0], first[2], second[1], second[2]]
    assert who(why("y", facts)) == ["a", "b"]


def test_a_change_by_no_execution_is_told_and_goes_no_further():
    drift = NamesDrifted(names={"x": {"how": "mutated"}, "z": {"how": "read"}}, found="idle")
    found = why("y", [*ran("a", x="bound"), drift, *ran("b", "x z", y="bound")])
    assert found is not None
    assert who(found) == ["a", "b"]
    assert [(d.name, d.how, d.found) for d in found.drifts] == [("x", "mutated", "idle")]


def test_a_drift_found_before_an_execution_came_before_what_it_read():
    drift = NamesDrifted(names={"x": {"how": "rebound"}}, found="before")
    second = ran("b", "x", y="bound")
    found = why("y", [*ran("a", x="bound"), second[0], drift, *second[1:]])
    assert found is not None
    assert (who(found), len(found.drifts)) == (["b"], 1)


def test_what_is_not_known_is_said():
    unseen: list[Fact] = [ExecutionStarted(execution_id="u")]
    aborted: list[Fact] = [
        ExecutionStarted(execution_id="n"),
        ExecutionFinished(execution_id="n", outcome="aborted"),
    ]
    found = why("y", [*ran("a", dynamic=["exec"], y="bound"), *unseen, *aborted])
    assert found is not None
    assert found.executions[0].dynamic == ["exec"]
    assert found.unobserved == ["u"]
    assert why("nothing", STORY) is None


NAMES = "abc"


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(NAMES)),
            st.dictionaries(
                st.sampled_from(NAMES), st.sampled_from(["bound", "rebound", "mutated", "touched", "deleted"])
            ),
        ),
        max_size=12,
    )
)
def test_as_a_slow_and_obvious_slice_says(cells):
    """Against a slice that carries, for each name, the set of all executions that made its value."""
    facts: list[Fact] = []
    made: dict[str, set[str]] = {}
    for number, (reads, names) in enumerate(cells):
        me = f"e{number}"
        facts += ran(me, " ".join(reads), **names)
        from_reads = {me}.union(*(made.get(name, set()) for name in reads))
        for name, how in names.items():
            if how == "deleted":
                made.pop(name, None)
            elif how in ("bound", "rebound"):
                made[name] = set(from_reads)
            else:
                made[name] = made.get(name, set()) | from_reads
    for name in NAMES:
        found = why(name, facts)
        if name in made:
            assert found is not None
            assert found.present
            assert set(who(found)) == made[name]
        else:
            assert found is None or not found.present
