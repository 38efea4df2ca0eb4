"""`--set`: what is a value, where it goes, and what hangs on it."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.errors import UsageError
from kernel_runtime.replay.downstream import downstream
from kernel_runtime.replay.plan import Late, Plan, Ran, Step, Wait
from kernel_runtime.replay.what_if import parse_settings, with_settings


def plan(*steps: Step, language: str = "python") -> Plan:
    for number, step in enumerate(steps, 1):
        step.number = number
    return Plan(
        source="s", kind="journal", order="executed", kernel="python3", cwd="/", language=language,
        steps=list(steps),
    )  # fmt: skip


def step(binds: str = "", reads: str = "", *, digest: str | None = "d:1", **more: Any) -> Step:
    """A step that was observed."""
    names = {name: {"how": "bound", "digest": digest} for name in binds.split()}
    return Step(number=0, names=names, reads=reads.split(), observed=True, outcome="ok", **more)


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("rate=0.2", "rate", 0.2),
        ("n = -3", "n", -3),
        ("who='Ada=B'", "who", "Ada=B"),
        ("x={'a': [1, (2,)], 'b': {3}}", "x", {"a": [1, (2,)], "b": {3}}),
        ("x=None", "x", None),
    ],
)
def test_a_value_is_a_literal(text: str, name: str, value: object) -> None:
    assert parse_settings([text]) == {name: value}


@pytest.mark.parametrize(
    "texts",
    [["x"], ["=1"], ["class=1"], ["a.b=1"], ["x=oslo"], ["x=open('f')"], ["x=1+"], ["x="], ["x=1", "x=2"]],
)  # fmt: skip
def test_anything_else_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_settings(texts)


def test_it_goes_after_the_tagged_cell() -> None:
    made, put = with_settings(plan(step("x"), step("x y", tags=["parameters"]), step("z", "x")), {"x": 5})
    assert [one.injected for one in made.steps] == [False, False, True, False]
    assert made.steps[2].source == "x = 5"
    assert [one.number for one in made.steps] == [1, 2, 3, 4]
    assert put == [{"name": "x", "value": 5, "number": 3, "after": 2, "why": "the cell is tagged parameters"}]


def test_it_goes_after_the_first_step_that_binds_it_in_each_kernel() -> None:
    steps = plan(step("x"), step("x"), step("y", incarnation=2), step("x", incarnation=2))
    made, put = with_settings(steps, {"x": 5})
    assert [(one.injected, one.incarnation) for one in made.steps] == [
        (False, 1), (True, 1), (False, 1), (False, 2), (False, 2), (True, 2),
    ]  # fmt: skip
    assert [one["after"] for one in put] == [1, 5]


def test_a_step_that_is_not_run_binds_nothing() -> None:
    made, _ = with_settings(plan(step("x", skip="interrupted"), step("x")), {"x": 5})
    assert [one.injected for one in made.steps] == [False, False, True]


def test_without_a_place_it_goes_first_and_says_so() -> None:
    made, (put,) = with_settings(plan(step("y")), {"x": 5})
    assert made.steps[0].injected
    assert put["after"] is None
    assert "none is known to bind x" in put["why"]


def test_of_a_notebook_the_text_tells_what_binds() -> None:
    steps = plan(
        Step(number=0, source="%matplotlib inline\ndef f():\n    rate = 1"),
        Step(number=0, source="!ls\nfor rate in [1]: pass"),
    )
    _, (put,) = with_settings(steps, {"rate": 2})
    assert put["after"] == 2


def test_several_names_at_one_place_are_one_step() -> None:
    made, put = with_settings(plan(step("x y")), {"x": 1, "y": "b"})
    assert [one.source for one in made.steps if one.injected] == ["x = 1\ny = 'b'"]
    assert len(put) == 2


def test_waits_follow_their_steps() -> None:
    late = Late(lines=1)
    made, _ = with_settings(plan(step("x"), step("y"), step(waits=[Wait(number=2, late=late)])), {"x": 1})
    assert made.steps[3].waits == [Wait(number=3, late=late)]


def test_a_kernel_of_another_language_is_refused() -> None:
    with pytest.raises(UsageError, match="speaks R"):
        with_settings(plan(step("x"), language="R"), {"x": 1})


# downstream


def causes(recorded: Plan, *replayed: Step | None) -> dict[int, tuple[list[str], list[int], bool]]:
    ran = []
    for number, one in enumerate(replayed, 1):
        if one is not None:
            one.number = number
        ran.append(Ran(number=number, step=one))
    return {
        number: (cause.names, cause.steps, cause.sure) for number, cause in downstream(recorded, ran).items()
    }


def injected(name: str) -> Step:
    return Step(number=0, injected=True, names={name: {"how": "bound"}})


def test_what_reads_it_is_downstream_and_so_is_what_reads_that() -> None:
    steps = plan(step("x"), injected("x"), step("y", "x"), step("z", "y"), step("w", "q"))
    found = causes(
        steps,
        step("x"),
        step("x"),
        step("y", "x", digest="d:2"),
        step("z", "y", digest="d:2"),
        step("w", "q"),
    )
    assert found == {3: (["x"], [2], True), 4: (["y"], [2], True)}


def test_a_name_that_is_bound_to_the_recorded_content_again_ends_it() -> None:
    steps = plan(step("x"), injected("x"), step("x"), step("y", "x"))
    assert causes(steps, step("x"), step("x"), step("x"), step("y", "x")) == {}


def test_a_reader_whose_own_names_came_out_as_recorded_passes_nothing_on() -> None:
    steps = plan(step("x"), injected("x"), step("y", "x"), step("z", "y"))
    found = causes(steps, step("x"), step("x"), step("y", "x"), step("z", "y"))
    assert list(found) == [3]


def test_a_step_that_was_not_run_is_where_it_begins() -> None:
    steps = plan(step("x", skip="interrupted"), step("y", "x"))
    assert causes(steps, None, step("y", "x")) == {2: (["x"], [1], True)}


def test_what_came_out_otherwise_is_where_it_begins() -> None:
    steps = plan(step("r"), step("y", "r"))
    assert causes(steps, step("r", digest="d:9"), step("y", "r", digest="d:9")) == {2: (["r"], [1], True)}


def test_a_dynamic_step_may_have_read_it() -> None:
    steps = plan(injected("x"), step("y", dynamic=["exec"]))
    assert causes(steps, step("x"), step("y", dynamic=["exec"], digest="d:2")) == {2: (["x"], [1], False)}


def test_a_new_kernel_has_none_of_it() -> None:
    steps = plan(injected("x"), step("y", "x", incarnation=2))
    assert causes(steps, step("x"), step("y", "x", incarnation=2)) == {}


def test_of_a_notebook_the_replay_tells_what_was_read() -> None:
    steps = plan(injected("x"), Step(number=0), Step(number=0), Step(number=0))
    found = causes(steps, step("x"), step("y", "x"), step("z", "y"), step("w", "v"))
    assert found == {2: (["x"], [1], True), 3: (["y"], [1], True)}
