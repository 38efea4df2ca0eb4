"""Output that a journal holds only a part of."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.replay.gaps import with_gaps
from kernel_runtime.replay.plan import Plan, Ran, Run, Step
from kernel_runtime.replay.verdict import judged


def gap(reason: str = "execution-bound") -> list[dict[str, Any]]:
    return [{"reason": reason, "messages": 2, "bytes": 9}]


def step(text: str, *, gaps: list[dict[str, Any]] | None = None, outcome: str = "ok") -> Step:
    output = {"output_type": "stream", "name": "stdout", "text": text}
    return Step(number=1, outcome=outcome, outputs=[output], gaps=gaps or [])


def verdict(recorded: Step, replayed: Step | None) -> tuple[str, str | None]:
    plan = Plan(source="s", kind="journal", order="executed", kernel="k", cwd="/", steps=[recorded])
    run = Run(ran=[Ran(number=1, step=replayed, skip=None if replayed else "why")])
    (row,) = judged(with_gaps(plan, [run]), [run], {}).executions
    return row["verdict"], row["reason"]


@pytest.mark.parametrize("reason", ["execution-bound", "disk", "message-bound", "unreadable", "outbox-bound"])
def test_a_hole_may_be_anywhere(reason: str) -> None:
    """A bound leaves a large message out and takes the next small one: the hole is not at the end.

    What was there was once taken for the beginning of the output, and compared with the other's beginning.
    """
    missing = f"gap: in the {{}}, 2 messages, 9 bytes were not recorded: {reason}"
    assert verdict(step("abc", gaps=gap(reason)), step("abcdef")) == ("skipped", missing.format("record"))
    assert verdict(step("abcdef"), step("abc", gaps=gap(reason))) == ("skipped", missing.format("replay"))


def test_another_outcome_is_different_all_the_same() -> None:
    assert verdict(step("abc", gaps=gap()), step("abc", outcome="error"))[0] == "different"


def test_what_was_not_run_says_that_and_what_has_no_gap_is_compared() -> None:
    assert verdict(step("abc", gaps=gap()), None) == ("skipped", "why")
    assert verdict(step("abc"), step("abcdef"))[0] == "different"
