"""From what a cell of a shared document shows to what it shall show, in steps that every page can follow.

A page follows fewer changes than a shared document can make: text grows and shrinks at the end of the
cell's last output and nowhere else, one text in one transaction; an output that is inserted is shown
last, wherever it was put; and text put in after a removal is joined to what the page last added. So a
change anywhere else takes out everything from there on and puts it in again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kernel_runtime.core.outputs import Output


class Cut(Struct, frozen=True):
    """Shorten the last output's text to so many bytes of UTF-8."""

    keep: int


class Grow(Struct, frozen=True):
    """Add to the end of the last output's text."""

    text: str


class Replace(Struct, frozen=True):
    """Take out the outputs from that one on, and put these there."""

    start: int
    outputs: Sequence[Output]


Step = Cut | Grow | Replace
"""each is a transaction of its own"""


def steps(old: Sequence[Output], new: Sequence[Output]) -> list[Step]:
    """What makes `new` of `old`; nothing where they are equal."""
    same = 0
    while same < len(old) and same < len(new) and old[same] == new[same]:
        same += 1
    if same == len(old) == len(new):
        return []
    found: list[Step] = []
    if same == len(old) - 1 and same < len(new) and _same_stream(old[same], new[same]):
        found += _text_steps(old[same]["text"], new[same]["text"])
        same += 1
        if same == len(new):
            return found
    if same < len(old) and same < len(new) and new[same]["output_type"] == "stream":
        # a page would join it to whatever it holds last
        same = 0
    return [*found, Replace(same, list(new[same:]))]


def _same_stream(old: Output, new: Output) -> bool:
    return bool(old["output_type"] == new["output_type"] == "stream" and old["name"] == new["name"])


def _text_steps(old: str, new: str) -> list[Step]:
    same = common_prefix(old, new)
    found: list[Step] = []
    if same < len(old):
        found.append(Cut(len(old[:same].encode())))
    if same < len(new):
        found.append(Grow(new[same:]))
    return found


def common_prefix(one: str, other: str) -> int:
    """How many characters both begin with."""
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
