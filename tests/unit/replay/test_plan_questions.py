"""Which recorded answer a question of the replay gets."""

from __future__ import annotations

import pytest

from kernel_runtime.replay.orders import Order
from kernel_runtime.replay.plan import Input
from kernel_runtime.replay.runner import Running


def given(*answers: str) -> Running:
    """A step that was asked these: `prompt=answer`, or `prompt` where nobody answered."""
    inputs = []
    for text in answers:
        prompt, equals, value = text.partition("=")
        inputs.append(Input(prompt=prompt, value=value) if equals else Input(prompt=prompt, withdrawn="gone"))
    return Running(Order(number=1, source="", incarnation=1, inputs=inputs))


@pytest.mark.parametrize(
    "recorded, asked, got",
    [
        (["a=1", "b=2"], ["a", "b"], ["1", "2"]),
        (["a=1", "a=2"], ["a", "a", "a"], ["1", "2", None]),
        (["a=1"], ["other"], ["1"]),
        ([], ["a"], [None]),
        (["look", "a=1"], ["a"], ["1"]),
        (["a", "a=1"], ["a"], ["1"]),
        (["a", "b=1"], ["a", "b"], ["gone", "1"]),
        (["look", "b=1"], ["other"], ["1"]),
        (["look"], ["look", "look"], ["gone", None]),
        (["look"], ["other"], [None]),
    ],
)
def test_answers_come_in_their_order(recorded: list[str], asked: list[str], got: list[str | None]) -> None:
    running = given(*recorded)
    found = [running.recorded(prompt) for prompt in asked]
    assert [one and (one.value or one.withdrawn) for one in found] == got
