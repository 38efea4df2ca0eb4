"""The first few of many, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def some(words: Sequence[object], most: int, *, joint: str = ", ") -> str:
    """`a, b and 3 more`: at most `most` of the words, and how many were left out."""
    shown = joint.join(map(str, words[:most]))
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown
