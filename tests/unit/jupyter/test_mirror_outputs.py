"""Steps from what a cell shows to what it shall show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.jupyter.mirror_outputs import Cut, Grow, Replace, common_prefix, steps

Output = dict[str, Any]


def stream(text: str, name: str = "stdout") -> Output:
    return {"output_type": "stream", "name": name, "text": text}


def image(data: str) -> Output:
    return {"output_type": "display_data", "data": {"image/png": data}, "metadata": {}}


class Shown:
    """A page, as far as it follows: see the docstring of `mirror_outputs`."""

    def __init__(self, outputs: list[Output]) -> None:
        self.outputs = [dict(one) for one in outputs]

    def follow(self, old: list[Output], new: list[Output]) -> list[Output]:
        last_added = old[-1].get("name") if old else None
        for step in steps(old, new):
            if isinstance(step, Cut):
                last = self.outputs[-1]
                last["text"] = last["text"].encode()[: step.keep].decode()
            elif isinstance(step, Grow):
                self.outputs[-1]["text"] += step.text
            else:
                del self.outputs[step.start :]
                for output in step.outputs:
                    if self.outputs and output.get("name") is not None and output["name"] == last_added:
                        self.outputs[-1]["text"] += output["text"]  # KeyError where a page would fail
                    else:
                        self.outputs.append(dict(output))
                    last_added = output.get("name")
        return self.outputs


def test_text_grows_at_its_end() -> None:
    assert steps([stream("a")], [stream("ab")]) == [Grow("b")]


def test_a_line_that_was_overwritten_is_cut_and_written_anew() -> None:
    assert steps([stream("é\n10 %")], [stream("é\n20 %")]) == [Cut(3), Grow("20 %")]


def test_the_same_needs_nothing() -> None:
    assert steps([stream("a"), image("x")], [stream("a"), image("x")]) == []


def test_a_new_output_follows_the_text_before_it() -> None:
    assert steps([stream("a")], [stream("ab"), image("x")]) == [Grow("b"), Replace(1, [image("x")])]


def test_an_earlier_output_changes_with_all_after_it() -> None:
    old, new = [image("x"), image("y")], [image("z"), image("y")]
    assert steps(old, new) == [Replace(0, new)]


def test_text_is_never_put_in_after_a_removal_behind_something_else() -> None:
    old, new = [image("x"), stream("a"), image("y")], [image("x"), stream("b"), image("y")]
    assert steps(old, new) == [Replace(0, new)]


@pytest.mark.parametrize("one, other, n", [("", "", 0), ("a", "", 0), ("abc", "abd", 2), ("ab", "abc", 2)])
def test_common_prefix(one: str, other: str, n: int) -> None:
    assert common_prefix(one, other) == n


def folded(outputs: list[Output]) -> list[Output]:
    """Streams of one name that follow each other are one, as in every fold."""
    found: list[Output] = []
    for output in outputs:
        if found and output.get("name") is not None and found[-1].get("name") == output["name"]:
            found[-1] = {**found[-1], "text": found[-1]["text"] + output["text"]}
        else:
            found.append(output)
    return found


outputs = st.lists(
    st.builds(stream, st.text("aé😀\n", min_size=1, max_size=4), st.sampled_from(["stdout", "stderr"]))
    | st.builds(image, st.text("xy", max_size=1)),
    max_size=5,
).map(folded)


@given(outputs, outputs)
def test_a_page_that_follows_shows_the_new(old: list[Output], new: list[Output]) -> None:
    assert Shown(old).follow(old, new) == new
