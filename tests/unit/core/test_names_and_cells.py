"""Truth of cells and names by what the probe told, as transcripts: what ran >> what is so."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.core import reconcile as rec
from kernel_runtime.core.projection import Projections, fold
from kernel_runtime.model import facts
from kernel_runtime.model.facts import Fact
from kernel_runtime.model.truth import Report
from tests.unit.core.support import entry
from tests.unit.journal.support import finished, queued, started


class Session:
    """What ran, and the report of it."""

    def __init__(self) -> None:
        self.said: list[tuple[Fact, int]] = []
        self.incarnation = 1

    def runs(
        self,
        cell: str,
        *,
        reads: str = "",
        outcome: str = "ok",
        observed: bool = True,
        more: dict[str, Any] | None = None,
        **names: str,
    ) -> str:
        """`x="bound d:1"`: what was done to x, and its digest then (`?` for none)."""
        name = f"x{len(self.said)}"
        self.say(queued(name, cell_id=cell), started(name), finished(name, outcome))
        if observed:
            self.say(
                facts.ExecutionObserved(
                    execution_id=name, names=changes(names), reads=reads.split(), **(more or {})
                )
            )
        return name

    def drifts(self, *, volatile: list[str] | None = None, **names: str) -> int:
        self.say(facts.NamesDrifted(names=changes(names), found="idle", volatile=volatile or []))
        return len(self.said)

    def say(self, *said: Fact) -> None:
        self.said += [(fact, self.incarnation) for fact in said]

    def folded(self) -> Projections:
        return fold(entry(seq, fact, incarnation) for seq, (fact, incarnation) in enumerate(self.said, 1))

    def report(self, *, state: str = "idle", running: str | None = None, snapshot: Any = None) -> Report:
        folded = self.folded()
        view = rec.view(
            incarnation=self.incarnation,
            names=folded.heap.names.values(),
            heap=folded.heap.heaps.get(self.incarnation),
            observations={k: seen for k, seen in folded.heap.observations.items() if seen is not None},
            running=running,
            snapshot=snapshot,
        )
        report = rec.reconcile(
            session="s",
            incarnation=self.incarnation,
            state=state,
            cells=folded.cells.values(),
            heap=view,
        )
        if snapshot is None:
            rows = [(*key, n) for key, n in folded.counts.items() if n]
            counted = rec.summary(
                session="s",
                incarnation=self.incarnation,
                state=state,
                rows=rows,
                heap=view,
                names=[(*key, n) for key, n in folded.heap.counts.items() if n],
            )
            assert counted.counts == report.counts
            assert counted.name_counts == report.name_counts
        return report

    def cells(self, **how: Any) -> dict[str, str]:
        return {cell.cell_id: cell.truth for cell in self.report(**how).cells}

    def cell(self, cell_id: str, **how: Any) -> tuple[str, dict[str, Any]]:
        (found,) = (cell for cell in self.report(**how).cells if cell.cell_id == cell_id)
        return found.truth, found.evidence

    def names(self, **how: Any) -> dict[str, str]:
        return {name["name"]: name["truth"] for name in self.report(**how).names}

    def name(self, name: str, **how: Any) -> dict[str, Any]:
        (found,) = (row for row in self.report(**how).names if row["name"] == name)
        return found


def changes(names: dict[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, said in names.items():
        how, _, digest = said.partition(" ")
        found[name] = {"how": how, "type": "list", "bytes": 8}
        found[name] |= {"digest": digest} if digest not in ("", "?") else {"why": "too large"}
    return found


def shows(volatile: list[str] | None = None, **names: str | None) -> dict[str, Any]:
    """A snapshot: `x="d:1"`."""
    rows = {name: {"type": "list", "bytes": 8, "digest": digest} for name, digest in names.items()}
    return {"names": rows, "volatile": volatile or []}


@pytest.fixture
def s() -> Session:
    return Session()


def test_what_stands_is_live(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", reads="x", y="bound d:2")
    assert s.cells() == {"a": "live", "b": "live"}
    assert s.names() == {"x": "live", "y": "live"}
    _truth, evidence = s.cell("b")
    assert (evidence["observed"], evidence["as_of"]) == (8, 8)
    assert s.report().all_live


def test_a_cell_whose_names_others_bound_since_is_superseded(s: Session):
    s.runs("a", x="bound d:1", y="bound d:1")
    b = s.runs("b", x="rebound d:2")
    assert s.cells() == {"a": "live", "b": "live"}
    assert s.cell("a")[1]["rebound_by"] == {"x": b}
    c = s.runs("c", y="deleted")
    assert s.cells() == {"a": "superseded", "b": "live", "c": "live"}
    assert s.cell("a")[1]["superseded_by"] == {"x": b, "y": c}
    assert s.report().all_live
    assert {step.target for step in s.report().plan} == {"s"}


def test_a_cell_whose_read_is_another_now_is_stale_and_says_who_changed_it(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", reads="x", y="bound d:2")
    c = s.runs("c", reads="x", x="mutated d:3")
    assert s.cells() == {"b": "stale", "a": "live", "c": "live"}
    assert s.cell("a")[1]["mutated_by"] == {"x": c}
    assert s.cell("b")[1]["changed"] == {"x": {"then": "d:1", "now": "d:3", "by": c, "seq": 12}}
    assert s.report().plan[0].action == "re-run"
    s.runs("c", reads="x", x="mutated d:1")
    assert s.cells() == {"a": "live", "b": "live", "c": "live"}


def test_a_name_that_was_deleted_or_came_after_it_was_missed_is_a_change(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", reads="x z")
    s.runs("c", x="deleted")
    assert s.cell("b")[1]["changed"]["x"]["now"] is None
    s.runs("d", z="bound ?")
    assert s.cell("b")[1]["changed"]["z"]["then"] is None


def test_what_cannot_be_compared_is_unknown_once_it_may_have_changed(s: Session):
    s.runs("a", x="bound ?")
    s.runs("b", reads="x")
    assert s.cells() == {"a": "live", "b": "live"}
    assert s.names() == {"x": "unreadable"}
    assert s.report().all_live
    c = s.runs("c", x="touched ?")
    assert s.cells() == {"b": "unknown", "a": "live", "c": "live"}
    assert s.cell("b")[1]["unsure"] == {
        "x": {"then": "?4", "now": "?12", "by": c, "seq": 12, "why": "too large"}
    }
    assert s.report().plan[0].reason == "what it left may have changed unseen: x"


def test_a_dynamic_cell_is_unknown_once_any_name_changed(s: Session):
    s.runs("a", x="bound d:1", more={"dynamic": ["exec"]})
    assert s.cells() == {"a": "live"}
    s.runs("b", reads="x")
    assert s.cells() == {"a": "live", "b": "live"}
    s.runs("b", y="bound d:1")
    assert s.cell("a")[0] == "unknown"
    assert s.cell("a")[1]["dynamic"] == ["exec"]
    assert s.cell("a")[1]["changed_since"] == 12


def test_drift_makes_readers_stale_and_the_binder_unknown(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", reads="x")
    seq = s.drifts(x="mutated d:2")
    assert s.cells() == {"a": "unknown", "b": "stale"}
    assert s.cell("a")[1]["drifted"] == {"x": {"seq": seq}}
    assert s.cell("b")[1]["changed"]["x"] == {"then": "d:1", "now": "d:2", "by": None, "seq": seq}
    assert s.name("x")["truth"] == "drifted"
    assert not s.report().all_live
    s.runs("c", x="mutated d:3")
    assert s.cell("a")[0] == "live"
    assert s.name("x")["truth"] == "live"


def test_a_binding_that_drift_replaced_does_not_come_back(s: Session):
    s.runs("a", x="bound d:1")
    s.drifts(x="rebound d:2")
    assert s.name("x")["bound_by"] is None
    s.runs("b", x="mutated d:3")
    assert s.cell("a")[0] == "unknown"
    s.runs("c", x="bound d:4")
    assert s.cell("a")[0] == "superseded"


def test_beside_running_code_what_cannot_be_compared_is_not_certain(s: Session):
    s.runs("a", q="bound ?", x="bound d:1")
    s.runs("b", reads="q")
    s.runs("c", reads="x")
    assert set(s.cells().values()) == {"live"}
    s.runs("d", t="bound ?", more={"volatile": ["thread t"]})
    assert s.cells() == {"a": "unknown", "b": "unknown", "d": "unknown", "c": "live"}
    assert s.names() == {"q": "unreadable", "t": "unreadable", "x": "live"}
    assert "code ran beside it" in s.cell("a")[1]["drifted"]["q"]["why"]


def test_what_an_execution_did_unseen_makes_the_earlier_uncertain(s: Session):
    s.runs("a", x="bound d:1")
    missed = s.runs("b", observed=False)
    assert s.cells() == {"a": "unknown", "b": "unknown"}
    assert s.cell("a")[1]["awaiting"] == missed
    assert s.cell("b")[1]["observed"] is False
    assert [step.action for step in s.report().plan] == ["wait", "ask"]
    s.runs("c", reads="x")
    assert s.cells() == {"a": "unknown", "b": "unknown", "c": "live"}
    assert s.cell("a")[1]["unseen_before"] == 11


def test_two_that_are_not_told_of_need_not_be_waited_for(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", observed=False)
    s.runs("c", observed=False)
    assert s.cell("a")[1].get("unseen_before") is None
    s.say(queued("r", cell_id="d"), started("r"))
    truth, evidence = s.cell("a", state="busy", running="r")
    assert (truth, evidence["unseen_before"]) == ("unknown", 12)
    assert s.folded().heap.heaps[1].awaited == ["x7", "r"]


def test_an_execution_that_never_ran_is_not_waited_for(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", outcome="aborted", observed=False)
    assert s.cells() == {"a": "live", "b": "not-run"}


def test_while_a_cell_runs_the_verdicts_are_those_of_the_last_observation(s: Session):
    s.runs("a", x="bound d:1")
    s.say(queued("r", cell_id="b"), started("r"))
    truth, evidence = s.cell("a", state="busy", running="r")
    assert (truth, evidence["as_of"]) == ("live", 4)
    truth, evidence = s.cell("a", state="busy", running="r", snapshot=shows(x="d:2"))
    assert (truth, evidence["while"]) == ("unknown", "r")
    shown = s.name("x", state="busy", running="r", snapshot=shows(x="d:2"))
    # seen now, and by all that can be told the running one's doing: no drift
    assert shown["truth"] == "live"
    assert shown["evidence"]["shown"] == {"then": "d:1", "now": "d:2", "while": "r"}
    assert s.cell("a", state="busy", running="r", snapshot=shows(x=None))[0] == "live"


def test_a_snapshot_is_held_against_the_names(s: Session):
    s.runs("a", x="bound d:1", y="bound d:1", u="bound ?")
    s.runs("b", reads="x")
    same = shows(x="d:1", y="d:1", u=None)
    assert s.cells(snapshot=same) == {"a": "live", "b": "live"}
    assert s.name("x", snapshot=same)["evidence"]["shown"] == "as it was"
    other = shows(x="d:9", u=None, new="d:5")
    assert s.names(snapshot=other) == {"x": "drifted", "y": "drifted", "new": "drifted", "u": "unreadable"}
    assert s.name("y", snapshot=other)["evidence"]["shown"] == {"then": "d:1", "now": None}
    assert s.cells(snapshot=other) == {"a": "unknown", "b": "stale"}
    assert s.cell("b", snapshot=other)[1]["changed"]["x"] == {
        "then": "d:1",
        "now": "d:9",
        "by": None,
        "seq": None,
    }
    unread = shows(x=None, y="d:1", u=None)
    assert s.cells(snapshot=unread) == {"a": "unknown", "b": "unknown"}
    assert s.name("x", snapshot=unread)["truth"] == "unreadable"


@pytest.mark.parametrize("snapshot", [{}, {"names": 3}, [], "no", {"names": {"x": None}}, {"names": {1: {}}}])
def test_a_snapshot_that_is_none_is_survived(s: Session, snapshot: Any):
    s.runs("a", x="bound d:1")
    assert s.cells(snapshot=snapshot)["a"] in ("live", "unknown")


def test_names_of_an_earlier_incarnation_are_lost_until_bound_again(s: Session):
    s.runs("a", x="bound d:1", y="bound d:1", z="bound d:1")
    s.runs("b", z="deleted")
    s.incarnation = 2
    s.runs("c", x="bound d:1")
    assert s.names() == {"y": "lost", "x": "live"}
    assert s.name("y")["evidence"]["was_in"] == 1
    assert s.cells() == {"a": "lost", "b": "lost", "c": "live"}
    assert s.names(state="dead") == {"x": "lost", "y": "lost"}
    assert s.report(state="stopped").name_counts["lost"] == 2


def test_a_name_s_row_says_what_is_known_of_it(s: Session):
    a = s.runs("a", x="bound d:1", y="bound d:1", more={"groups": [["x", "y"]]})
    b = s.runs("b", x="mutated d:2", y="mutated d:2", more={"unfollowed": ["y"]})
    assert s.name("x") == {
        "name": "x",
        "truth": "live",
        "type": "list",
        "bytes": 8,
        "bound_by": a,
        "shares_with": ["y"],
        "would_survive": False,
        "evidence": {"seq": 8, "digest": "d:2", "changed_by": b, "as_of": 8, "checkpoint": None},
    }
    s.runs("c", x="mutated d:3", more={"groups": [], "unfollowed": ["y"]})
    assert s.name("y")["shares_with"] == []
    assert "could be followed" in s.name("y")["evidence"]["sharing"]


def test_a_second_observation_of_the_same_execution_is_ignored(s: Session):
    name = s.runs("a", x="bound d:1")
    s.say(facts.ExecutionObserved(execution_id=name, names=changes({"x": "mutated d:2"})))
    assert s.folded().heap.names["x"].digest == "d:1"


def test_a_cell_that_runs_again_is_judged_by_what_it_did_last(s: Session):
    s.runs("a", x="bound d:1")
    s.runs("b", x="bound d:2")
    assert s.cells() == {"a": "superseded", "b": "live"}
    s.runs("a", x="bound d:3")
    assert s.cells() == {"b": "superseded", "a": "live"}


def test_a_digest_that_was_not_known_before_is_no_change(s: Session):
    s.runs("a", x="bound ?")
    s.runs("b", reads="x")
    s.drifts(x="read d:1")
    assert s.cells() == {"a": "live", "b": "live"}
    assert s.names() == {"x": "live"}
    s.runs("c", x="mutated d:2")
    assert s.cell("b")[0] == "unknown"


def test_what_may_have_drifted_is_not_said_to_have(s: Session):
    s.runs("a", x="bound ?")
    s.runs("b", reads="x")
    s.drifts(x="touched ?")
    assert s.names() == {"x": "unreadable"}
    assert s.cells() == {"a": "unknown", "b": "unknown"}
    s.runs("c", x="touched ?")
    assert s.cell("a")[0] == "unknown"
    s.runs("c", x="mutated d:1")
    assert s.cell("a")[0] == "live"
