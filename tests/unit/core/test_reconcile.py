"""Truth of cells, as a transcript: a cell's latest execution >> its truth."""

from typing import Any

import pytest

from kernel_runtime.core.reconcile import TRUTHS, heap_loss, reconcile, summary, summary_counts, view
from kernel_runtime.model.execution import Cell, Observation
from kernel_runtime.model.truth import Report


def cell(
    cell_id: str = "c1",
    outcome: str | None = "ok",
    *,
    ran_in: int = 1,
    status: str = "done",
    position: int = 1,
    **more: Any,
) -> Cell:
    return Cell(
        cell_id=cell_id, execution_id=f"x-{cell_id}", source_digest="d1", incarnation=ran_in,
        status=status, outcome=outcome, position=position, **more,
    )  # fmt: skip


def report(*cells: Cell, incarnation: int = 1, state: str = "idle", **more: Any) -> Report:
    return reconcile(session="s", incarnation=incarnation, state=state, cells=cells, **more)


@pytest.mark.parametrize(
    "outcome, ran_in, state, truth",
    [
        ("ok", 2, "idle", "live"),
        ("ok", 2, "busy", "live"),
        ("ok", 2, "unresponsive", "live"),
        ("ok", 1, "idle", "lost"),
        ("ok", 2, "dead", "lost"),
        ("ok", 2, "stopped", "lost"),
        ("error", 2, "idle", "partial"),
        ("interrupted", 2, "idle", "partial"),
        ("died", 2, "idle", "partial"),
        ("died", 2, "dead", "lost"),
        ("error", 1, "idle", "lost"),
        ("unknown", 2, "idle", "unknown"),
        ("unknown", 1, "idle", "unknown"),
        ("aborted", 1, "idle", "not-run"),
        ("aborted", 2, "dead", "not-run"),
        ("ok", 3, "idle", "unknown"),
        ("ok", 2, "on-fire", "unknown"),
        ("split", 2, "idle", "unknown"),
        (None, 2, "idle", "unknown"),
    ],
)
def test_the_latest_execution_decides(outcome, ran_in, state, truth):
    [found] = report(cell(outcome=outcome, ran_in=ran_in), incarnation=2, state=state).cells
    assert found.truth == truth
    assert found.evidence["outcome"] == outcome
    assert (found.evidence["ran_in"], found.evidence["current"]) == (ran_in, 2)


@pytest.mark.parametrize("status", ["queued", "running", "blocked"])
def test_what_is_not_done_is_unknown_and_says_where_it_is(status):
    found = report(cell(outcome=None, status=status))
    assert found.cells[0].truth == "unknown"
    assert found.cells[0].evidence["status"] == status
    assert [step.action for step in found.plan] == ["wait"]


def test_an_edited_cell_tells_what_it_would_be_otherwise():
    found = report(cell(), incarnation=2, notebook_sources={"c1": "d2"})
    assert found.cells[0].truth == "edited"
    assert found.cells[0].evidence["was"] == "lost"
    assert found.cells[0].evidence["notebook_digest"] == "d2"


def test_a_cell_that_never_started_is_not_run_however_it_was_edited():
    assert report(cell(outcome="aborted"), notebook_sources={"c1": "d2"}).counts["not-run"] == 1


def test_cells_that_people_added_are_not_run_and_those_they_took_out_say_so():
    found = report(cell("gone"), notebook_sources={"new": "d9"})
    assert [(c.cell_id, c.truth) for c in found.cells] == [("new", "not-run"), ("gone", "live")]
    assert found.cells[1].evidence["in_notebook"] is False


def test_worst_first_then_in_the_notebooks_order():
    cells = [cell("a", position=1), cell("b", "error", position=2), cell("c", position=3, ran_in=0)]
    cells += [cell("d", position=4), cell("e", "error", position=5)]
    notebook = dict.fromkeys("edcba", "d1")
    assert [c.cell_id for c in report(*cells, notebook_sources=notebook).cells] == ["c", "e", "b", "d", "a"]
    assert [c.cell_id for c in report(*cells).cells] == ["c", "b", "e", "a", "d"]


def test_a_limit_cuts_cells_and_never_counts():
    found = report(*(cell(f"c{i}", position=i) for i in range(50)), limit=3, incarnation=2)
    assert len(found.cells) == 3
    assert found.counts == dict.fromkeys(TRUTHS, 0) | {"lost": 50}


def test_the_plan_offers_and_aggregates_what_is_well():
    found = report(cell("a"), cell("b", ran_in=0), cell("c", "unknown"), state="idle")
    assert [(step.action, step.target) for step in found.plan] == [
        ("re-run", "b"),
        ("ask", "c"),
        ("keep", "s"),
    ]
    assert report(cell(), state="dead").plan[0].action == "restart"
    assert report(cell(), state="unresponsive").plan[0].action == "wait"


def test_what_died_unobserved_is_not_simply_run_again():
    """Half a migration is in the database, and nobody saw how much of it."""
    names = view(
        incarnation=1,
        observations={"seen": Observation(cell_id="seen", execution_id="x-seen", incarnation=1, seq=3)},
    )
    cells = [cell("seen", position=1), cell("ok", position=2), cell("half", "died", position=3)]
    found = report(*cells, state="dead", heap=names)
    assert {c.cell_id: c.evidence.get("observed") for c in found.cells} == {
        "seen": None,
        "ok": False,
        "half": False,
    }
    assert {step.target: step.action for step in found.plan} == {
        "s": "restart",
        "seen": "re-run",
        "ok": "re-run",
        "half": "ask",
    }
    assert "not observed" in found.plan[-1].reason
    # a kernel that tells of no names is not said to have been observed, or not
    assert "observed" not in report(cell("half", "died"), state="dead").cells[0].evidence


def test_the_source_that_ran_is_shown_by_its_first_line():
    found = report(cell(), sources={"x-c1": "\n\nimport pandas" + " " * 100 + "\nx"})
    assert found.cells[0].evidence["source"].startswith("import pandas")
    assert len(found.cells[0].evidence["source"]) == 80


def test_a_summary_counts_all_and_lists_the_worst():
    rows = [(1, "done", "ok", 10_000), (2, "done", "ok", 5), (2, "running", None, 1)]
    found = summary(session="s", incarnation=2, state="idle", rows=rows, worst=[cell("w")])
    assert found.counts["lost"] == 10_000
    assert (found.counts["live"], found.counts["unknown"]) == (5, 1)
    assert [c.cell_id for c in found.cells] == ["w"]
    assert not found.all_live
    assert found.plan[-1].reason == "5 cells are live"


def test_no_cells_are_all_live():
    assert summary_counts([], incarnation=1, state="idle") == dict.fromkeys(TRUTHS, 0)
    assert report().all_live


def test_heap_loss_lists_what_is_lost_only():
    found = report(cell("a", ran_in=0), cell("b", "error"), cell("c", "unknown", ran_in=0))
    document = heap_loss(found)
    assert document["lost"] == 1
    assert [c["cell_id"] for c in document["cells"]] == ["a"]
    assert [step["target"] for step in document["plan"]] == ["a"]
    assert document["counts"]["partial"] == 1
