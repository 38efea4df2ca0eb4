"""What a page is told of a report: which cells it lists, counts and makes plans for."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel_runtime.core.projection import source_digest
from kernel_runtime.core.reconcile import reconcile
from kernel_runtime.jupyter.overview import document_of
from kernel_runtime.model.execution import Cell


def cell(cell_id: str, outcome: str | None = "ok", *, status: str = "done", ran_in: int = 1) -> Cell:
    return Cell(
        cell_id=cell_id,
        execution_id=f"x-{cell_id}",
        source_digest="d",
        incarnation=ran_in,
        status=status,
        outcome=outcome,
        position=1,
    )


def shown(*cells: Cell, state: str = "idle", incarnation: int = 1, **more: Any) -> Any:
    report = reconcile(session="s", incarnation=incarnation, state=state, cells=cells, **more)
    return document_of(msgspec.to_builtins(report), 7, {}, None)


def test_what_waits_or_runs_is_that_and_no_unknown_cell() -> None:
    """A cell under way has no verdict: `unknown`, which the report has for it, is not counted as one.

    Also where most cells wait, which would make `unknown` the truth of all that are not listed.
    """
    waiting = [cell(f"w{n}", None, status="queued") for n in range(5)]
    found = shown(cell("a"), cell("b", None, status="running"), *waiting, state="busy")
    assert {name: one["status"] for name, one in found["cells"].items()} == {
        "b": "running",
        **{f"w{n}": "queued" for n in range(5)},
    }
    assert found["under_way"] == {"queued": 5, "running": 1, "blocked": 0}
    assert (found["default_truth"], found["counts"]["unknown"], found["counts"]["live"]) == ("live", 0, 1)


def test_an_edited_cell_that_runs_is_under_way_and_says_both() -> None:
    found = shown(cell("a", None, status="running"), state="busy", notebook_sources={"a": "other"})
    assert (found["cells"]["a"]["status"], found["cells"]["a"]["truth"]) == ("running", "edited")
    assert found["counts"]["edited"] == 0


def test_what_began_in_a_kernel_that_has_ended_is_not_under_way() -> None:
    found = shown(cell("a", None, status="running"), cell("b"), state="dead")
    assert found["under_way"] == {"queued": 0, "running": 0, "blocked": 0}
    assert found["counts"]["unknown"] == 1
    assert all(one["status"] is None for one in found["cells"].values())


def test_an_empty_cell_that_never_ran_is_nothing() -> None:
    """JupyterLab ends every notebook with one; it is not what somebody has still to run."""
    sources = {"a": "d", "b": "d", "new": source_digest("x = 1"), "empty": source_digest("")}
    found = shown(cell("a"), cell("b"), notebook_sources=sources)
    assert found["counts"]["not-run"] == 1
    assert set(found["cells"]) == {"new"}


def test_a_cell_that_ran_and_was_emptied_is_edited() -> None:
    found = shown(cell("a"), notebook_sources={"a": source_digest("")})
    assert found["counts"]["edited"] == 1


def test_where_nothing_was_lost_there_is_no_plan() -> None:
    """A report plans for every cell that is not live; that is no plan after a loss."""
    found = shown(cell("a"), cell("b", "error"), cell("c", "aborted"), notebook_sources={"new": "d"})
    assert (found["lost"], found["plan"]) == (False, [])
    never = shown(state="stopped", incarnation=0)
    assert (never["lost"], never["plan"]) == (False, [])


def test_after_a_loss_the_plan_is_for_what_was_lost() -> None:
    cells = (cell("a"), cell("b", "error"), cell("c", "error", ran_in=2))
    found = shown(*cells, incarnation=2, notebook_sources={"a": "d", "b": "d", "c": "d", "new": "d"})
    assert found["lost"]
    assert [(step["action"], step["target"]) for step in found["plan"]] == [("re-run", "a"), ("re-run", "b")]


def test_a_kernel_that_has_ended_is_to_be_started_again() -> None:
    found = shown(cell("a"), state="dead", notebook_sources={"a": "d", "new": "d"})
    assert found["lost"]
    assert [(step["action"], step["target"]) for step in found["plan"]] == [("restart", "s"), ("re-run", "a")]
