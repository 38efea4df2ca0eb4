"""Tables that are drawn with spaces (`print(frame)`), compared by cells.

A number that is printed longer moves its whole column, so that lines differ in nothing but spaces. Such a
block of lines is cut into columns where all its lines have two spaces, and the cells are compared one by
one: an empty cell stays where it is. A block that is cut into other columns is compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_WORD = re.compile(r"\S+")
_FOOTER = re.compile(r"\[\d+ rows x \d+ columns\]|(?:Name|Length|Freq|dtype|Categories)\b.*")
_COLUMN = re.compile(rb"\x01++(?:\x00\x01++)*+")
"""two spaces part columns; one space is within a cell"""
_WIDEST = 10_000


def cells(recorded: list[str], replayed: list[str], same: Callable[[str, str], bool]) -> bool:
    """Whether lines, as many on both sides, agree by the cells of the tables among them, else as they are."""
    for start, end in _blocks(recorded, replayed):
        one, two = recorded[start:end], replayed[start:end]
        if one == two:
            continue
        first, second = cut(one), cut(two)
        if first is None or second is None or len(first[0]) != len(second[0]):
            first, second = [[line] for line in one], [[line] for line in two]
        pairs = (
            (a, b) for row, other in zip(first, second, strict=True) for a, b in zip(row, other, strict=True)
        )
        if not all(a == b or same(a, b) for a, b in pairs):
            return False
    return True


def _blocks(recorded: list[str], replayed: list[str]) -> Iterator[tuple[int, int]]:
    """Runs of lines that may be one table; what ends one (a blank line, a footer) is a run of its own."""
    start = 0
    for at, (one, two) in enumerate(zip(recorded, replayed, strict=True)):
        if not one.strip() or not two.strip() or _FOOTER.fullmatch(one) or _FOOTER.fullmatch(two):
            yield start, at
            yield at, at + 1
            start = at + 1
    yield start, len(recorded)


def cut(lines: list[str]) -> list[list[str]] | None:
    """Rows of cells; None for a single line, one column, or lines too wide for a table."""
    width = max(map(len, lines), default=0)
    if len(lines) < 2 or width > _WIDEST or any("\t" in line for line in lines):
        return None
    taken = bytearray(width)
    for line in lines:
        for word in _WORD.finditer(line):
            taken[word.start() : word.end()] = b"\1" * (word.end() - word.start())
    columns = [found.span() for found in _COLUMN.finditer(bytes(taken))]
    if len(columns) < 2:
        return None
    return [[line[start:end].strip() for start, end in columns] for line in lines]
