"""Output that a journal holds only a part of."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.replay.gaps import what_is_there
from kernel_runtime.replay.plan import Plan, Ran, Run, Step
from kernel_runtime.replay.verdict import judged

ERROR = {"output_type": "error", "ename": "E", "evalue": "", "traceback": []}


def out(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def gap(reason: str = "execution-bound") -> list[dict[str, Any]]:
    return [{"reason": reason, "messages": 2, "bytes": 9}]


def step(*outputs: dict[str, Any], gaps: list[dict[str, Any]] | None = None) -> Step:
    return Step(number=1, outcome="ok", outputs=list(outputs), gaps=gaps or [])


def verdict(recorded: Step, *replayed: Step) -> tuple[str, str]:
    plan = Plan(source="s", kind="journal", order="executed", kernel="k", cwd="/", steps=[recorded])
    plan, runs, told = what_is_there(plan, [Run(ran=[Ran(number=1, step=one)]) for one in replayed])
    (row,) = judged(plan, runs, {}).executions
    return row["verdict"], row["reason"] or told.get(1, "")


@pytest.mark.parametrize(
    "recorded, replayed, expected",
    [
        (step(out("abc"), gaps=gap()), step(out("abcdef")), "same"),
        (step(out("abcdef"), gaps=gap()), step(out("abc"), gaps=gap()), "same"),
        (step(out("abcdef")), step(out("abc"), gaps=gap()), "same"),
        (step(out("abX"), gaps=gap()), step(out("abcdef")), "different"),
        (step(out("abcdef"), gaps=gap()), step(out("abc")), "different"),
        (step(out("abc"), ERROR, gaps=gap("disk")), step(out("abcdef"), ERROR), "same"),
        (step(out("a\n"), gaps=gap("session-bound")), step(out("a\n"), ERROR), "same"),
        (step(gaps=gap()), step(out("abc")), "same"),
    ],
)
def test_what_is_there_is_compared(recorded: Step, replayed: Step, expected: str) -> None:
    found, reason = verdict(recorded, replayed)
    assert found == expected
    assert reason.startswith("gap: 2 messages")


@pytest.mark.parametrize("reason", ["message-bound", "unreadable", "iopub-overflow", "outbox-bound"])
def test_a_hole_that_may_be_anywhere_leaves_nothing_to_compare(reason: str) -> None:
    found, why = verdict(step(out("abc"), gaps=gap(reason)), step(out("abcdef")))
    assert found == "skipped"
    assert why == f"gap: 2 messages of the record ({reason}) are missing"


def test_two_replays_are_cut_alike() -> None:
    recorded, cut = step(out("abcd"), gaps=gap()), step(out("ab"), gaps=gap())
    assert verdict(recorded, cut, step(out("abc"), gaps=gap()))[0] == "same"


def test_what_has_no_gap_is_left_alone() -> None:
    assert verdict(step(out("abc")), step(out("abcdef"))) == ("different", "")
