"""The plan of a notebook file: tags, orders, what a plain file does not tell."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.errors import InvalidNotebook, NoSuchNotebook, UsageError
from kernel_runtime.replay.plan_notebook import plan_of_notebook


def cell(source: str, *outputs: dict[str, Any], tags: list[str] | None = None, **more: Any) -> dict[str, Any]:
    metadata = more.pop("metadata", {}) | ({"tags": tags} if tags else {})
    return {
        "cell_type": "code",
        "id": more.pop("id", hashlib.sha256(source.encode()).hexdigest()[:8]),
        "metadata": metadata,
        "source": source.splitlines(keepends=True),
        "outputs": list(outputs),
        "execution_count": more.pop("count", 1),
    }


def stream(text: str | list[str]) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def error(name: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": name, "evalue": "", "traceback": ["line"]}


def write(path: Path, *cells: dict[str, Any], metadata: dict[str, Any] | None = None) -> Path:
    document = {"cells": list(cells), "metadata": metadata or {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "n.ipynb"


def test_cells_run_from_top_to_bottom_beside_their_file(path: Path) -> None:
    write(
        path,
        {"cell_type": "markdown", "id": "m", "metadata": {}, "source": "# title"},
        cell("x = 1\nprint(x)", stream(["1\n"])),
        cell("", count=None),
        cell("x"),
        metadata={"kernelspec": {"name": "ir", "display_name": "R"}, "language_info": {"name": "R"}},
    )
    plan = plan_of_notebook(path)
    assert (plan.order, plan.kind, plan.kernel, plan.language) == ("document", "notebook", "ir", "R")
    assert plan.cwd == str(path.parent)
    assert [step.source for step in plan.steps] == ["x = 1\nprint(x)", "x"]
    assert [step.number for step in plan.steps] == [1, 2]
    assert plan.steps[0].outputs == [stream("1\n")]
    assert plan.steps[0].outcome == "ok"


def test_a_file_without_a_kernelspec_runs_in_python(path: Path) -> None:
    assert plan_of_notebook(write(path, cell("1"))).kernel == "python3"


@pytest.mark.parametrize(
    "made, skip, uncompared",
    [
        (cell("1", tags=["skip-execution"]), "it is tagged skip-execution", None),
        (cell("1", tags=["nbval-skip"]), "it is tagged nbval-skip", None),
        (cell("# NBVAL_SKIP\n1"), "it is tagged nbval-skip", None),
        (cell("1", tags=["nbval-ignore-output"]), None, "it is tagged nbval-ignore-output"),
        (cell("#NBVAL_IGNORE_OUTPUT\n1"), None, "it is tagged nbval-ignore-output"),
        (cell("1", count=None), None, "the file holds no output of it"),
        (cell("1", tags=["parameters"]), None, None),
    ],
)
def test_tags_and_comments(
    path: Path, made: dict[str, Any], skip: str | None, uncompared: str | None
) -> None:
    (step,) = plan_of_notebook(write(path, made)).steps
    assert (step.skip, step.uncompared) == (skip, uncompared)


def test_a_cell_that_raised_is_expected_to_raise_with_the_tag_or_without(path: Path) -> None:
    write(
        path,
        cell("1/0", error("ZeroDivisionError"), tags=["raises-exception"]),
        cell("[][0]", error("IndexError")),
    )
    steps = plan_of_notebook(path).steps
    assert [step.outcome for step in steps] == ["error", "error"]
    assert [step.error and step.error["ename"] for step in steps] == ["ZeroDivisionError", "IndexError"]


def test_a_stream_in_pieces_is_one_stream(path: Path) -> None:
    """nbclient writes a stream in as many pieces as its messages came in.

    How many there are depends on the machine's load, so a file that it wrote differed from its own replay.
    """
    write(path, cell("print(1)", stream("1"), stream("\n"), stream("10 %\r100 %\n")))
    assert plan_of_notebook(path).steps[0].outputs == [stream("1\n100 %\n")]


def test_json_stays_json_and_lines_are_joined(path: Path) -> None:
    data = {"text/plain": ["a\n", "b"], "application/json": ["a", "b"], "application/vnd.x+json": {"k": [1]}}
    shown = {"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": 3}
    (output,) = plan_of_notebook(write(path, cell("1", shown))).steps[0].outputs
    assert output["data"] == data | {"text/plain": "a\nb"}


def test_a_cleared_file_says_that_there_is_nothing_to_compare(path: Path) -> None:
    plan = plan_of_notebook(write(path, cell("1", count=None)))
    assert any("nothing to compare" in note for note in plan.notes)


def ours(source: str, number: int, *, incarnation: int = 1, at: int = 0, **more: Any) -> dict[str, Any]:
    """A cell as our export writes it."""
    told = {
        "execution_id": f"e{number}",
        "incarnation": incarnation,
        "outcome": "ok",
        "principal": "agent:a",
        "source_digest": hashlib.sha256(more.pop("ran", source).encode()).hexdigest(),
    } | more.pop("told", {})
    execution = {
        "iopub.execute_input": f"2026-01-01T00:00:{at:02}.000000Z",
        "shell.execute_reply": f"2026-01-01T00:00:{at + 1:02}.500000Z",
    }
    return cell(source, metadata={"kernel_runtime": told, "execution": execution}, count=number, **more)


def test_an_export_runs_in_the_order_in_which_it_ran(path: Path) -> None:
    write(
        path,
        ours("a", 3, incarnation=2, at=9),
        ours("b", 1, at=5),
        ours("c", 2, at=2),
        cell("new", count=None),
    )
    plan = plan_of_notebook(path)
    assert plan.order == "executed"
    assert [step.source for step in plan.steps] == ["c", "b", "a", "new"]
    assert [step.incarnation for step in plan.steps[:3]] == [1, 1, 2]
    assert plan.steps[0].seconds == 1.5
    assert plan.steps[0].principal == "agent:a"
    assert "ever run" in (plan.steps[3].skip or "")
    assert any("last execution only" in note for note in plan.notes)


def test_an_export_can_run_from_top_to_bottom(path: Path) -> None:
    write(path, ours("a", 2, incarnation=2), ours("b", 1), metadata={"kernel_runtime": {"session": "s"}})
    plan = plan_of_notebook(path, order="document")
    assert [step.source for step in plan.steps] == ["a", "b"]
    assert [step.incarnation for step in plan.steps] == [1, 1]
    assert any("top to bottom" in note for note in plan.notes)


def test_a_cell_that_was_edited_since_is_run_and_not_compared(path: Path) -> None:
    write(path, ours("x = 2", 1, ran="x = 1"))
    assert "edited" in (plan_of_notebook(path).steps[0].uncompared or "")


def test_an_execution_that_cannot_be_repeated_is_not(path: Path) -> None:
    write(path, ours("x", 1, told={"outcome": "interrupted"}), ours("y", 2, told={"outcome": None}))
    assert [step.skip for step in plan_of_notebook(path).steps] == [
        "it ended as interrupted",
        "it had not ended when the file was written",
    ]


def test_a_plain_file_does_not_know_its_order(path: Path) -> None:
    with pytest.raises(UsageError, match="does not say in which order"):
        plan_of_notebook(write(path, cell("1")), order="executed")


def test_a_file_that_somebody_ran_on_is_taken_from_top_to_bottom(path: Path) -> None:
    """Of some cells the metadata does not tell when they ran, so there is no order to follow."""
    write(path, ours("a", 1), cell("b", stream("2\n")))
    assert plan_of_notebook(path).order == "document"


def test_nothing_there_and_no_notebook(path: Path) -> None:
    with pytest.raises(NoSuchNotebook):
        plan_of_notebook(path)
    path.write_text("{}")
    with pytest.raises(InvalidNotebook):
        plan_of_notebook(path)
