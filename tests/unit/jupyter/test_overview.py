"""What a page is told of a report: which cells it lists, counts and makes plans for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from kernel_runtime.core.projection import source_digest
from kernel_runtime.core.reconcile import reconcile
from kernel_runtime.jupyter.overview import Overviews, _is_as_late, document_of
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


class Line:
    """A line to a session in this state, and what is asked on it."""

    def __init__(self, *, tells: bool = True) -> None:
        self.state = {"state": "idle", "incarnation": 1, "heap_lost": False}
        self.attached: dict[str, Any] = {}
        self.heap_lost = False
        self.asked: list[str] = []
        self._tells = tells

    def observer_of(self, file: Any, principal: str) -> Line:
        del file, principal
        return self

    async def row(self, *, within: float) -> dict[str, Any]:
        del within
        self.asked.append("row")
        return {k: v for k, v in self.state.items() if self._tells or k != "heap_lost"}

    async def attach(self) -> None:
        self.asked.append("attach")
        self.attached = dict(self.state)
        self.heap_lost = bool(self.state["heap_lost"])


def polled(line: Line, times: int = 3, **state: Any) -> bool:
    """What the last of some polls said."""
    line.state.update(state)
    line.asked.clear()
    kernels: Any = SimpleNamespace(clients=line)
    file: Any = None

    async def poll() -> bool:
        overviews = Overviews(kernels)
        return [(await overviews.loss(file, "human:ada"))[0] for _ in range(times)][-1]

    return asyncio.run(poll())


def test_a_page_that_polls_joins_an_incarnation_once() -> None:
    """It joined anew with each poll; joining makes a report and checks every claim."""
    line = Line()
    assert not polled(line)
    assert line.asked == ["row", "attach", "row", "row"]
    # the heap went: they are told so, and join the next one when they have accepted that
    assert polled(line, incarnation=2, heap_lost=True)
    assert line.asked == ["row", "row", "row"]
    assert not polled(line, heap_lost=False)
    assert line.asked == ["row", "attach", "row", "row"]
    # nothing is there to be joined
    assert not polled(line, state="starting", incarnation=3)
    assert line.asked == ["row", "row", "row"]


def test_a_supervisor_of_before_is_asked_as_before() -> None:
    line = Line(tells=False)
    assert not polled(line)
    assert polled(line, heap_lost=True, incarnation=2)
    assert line.asked == ["row", "attach"] * 3


def test_a_loss_is_told_beside_what_was_looked_at_after_it() -> None:
    """The two are asked one after the other. A kernel that died in between made a document of living cells
    with a loss in it, which the page could only understand as that of an earlier incarnation's heap.
    """
    died = {"incarnation": 1, "state": "dead"}
    assert not _is_as_late(shown(cell("a")), died)
    assert _is_as_late(shown(cell("a"), state="dead"), died)
    again = {"incarnation": 2, "state": "idle"}
    assert not _is_as_late(shown(cell("a"), state="dead"), again)
    assert _is_as_late(shown(cell("a"), incarnation=2), again)
    assert _is_as_late(shown(cell("a"), incarnation=2), died)
