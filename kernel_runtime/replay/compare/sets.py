"""Sets within a text, their elements put into one order.

The order in which a set shows its elements follows their hashes, and hashes of strings and addresses
differ from process to process. A dict shows its keys in the order of insertion, which is a result.

A `{…}` counts as a set if it has no colon at its top, at least two elements, and each of them looks like
a value: a string, a number, a tuple, a call, `<…>`. `{a, b}` in prose or code does not. Linear in the text:
brackets nested deeper than 32 are text.
"""

from __future__ import annotations

import re

_MARK = re.compile(r"[][(){}<>,:'\"]")
_STRING = {quote: re.compile(rf"{quote}(?:[^{quote}\\\n]|\\.)*+{quote}") for quote in "'\""}
_CLOSES = {")": "(", "]": "[", "}": "{"}
_DEEPEST = 32
_VALUE = re.compile(
    r"""(?:[bru]{0,2}["'][\s\S]*+       # a string (its end was found already)
    | [-+]?(?:\d|\.\d|inf\b|nan\b)[\w.+-]*+
    | None | True | False | Ellipsis
    | \([\s\S]*+ | <[\s\S]*+
    | [A-Za-z_][\w.]*+\([\s\S]*+        # frozenset({…}), Timestamp('…')
    )""",
    re.VERBOSE,
)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]++")
_NOT_BEFORE = frozenset("\\$}^_)]")


class _Frame:
    __slots__ = ("angles", "before", "colon", "current", "elements", "opener")

    def __init__(self, opener: str, before: str) -> None:
        self.opener = opener
        self.before = before
        self.current: list[str] = []
        self.elements: list[str] = []
        self.colon = False
        """one stands at its top, and not within a `<Color.RED: 1>`"""
        self.angles = 0

    def raw(self) -> str:
        parts = [*self.elements, "".join(self.current)]
        return self.opener + ",".join(parts)


def order_sets(text: str) -> str:
    """The text with the elements of each set in one order, whatever order they came in."""
    bottom = _Frame("", "")
    stack = [bottom]
    at = 0
    too_deep = 0
    unclosed = dict.fromkeys(_STRING, -1)
    """by quote: no string that begins before this index is ever closed"""
    while found := _MARK.search(text, at):
        mark, start = found.group(), found.start()
        top = stack[-1]
        top.current.append(text[at:start])
        at = start + 1
        if mark in "([{":
            if len(stack) > _DEEPEST:
                too_deep += 1
                top.current.append(mark)
            else:
                stack.append(_Frame(mark, text[start - 1 : start]))
        elif mark in ")]}":
            if too_deep:
                too_deep -= 1
                top.current.append(mark)
            else:
                _close(stack, mark)
        elif mark in "'\"" and len(stack) > 1:
            string = _STRING[mark].match(text, start) if start >= unclosed[mark] else None
            if string is not None:
                top.current.append(string.group())
                at = string.end()
            else:
                top.current.append(mark)
                if start >= unclosed[mark]:
                    end = text.find("\n", start)
                    unclosed[mark] = len(text) if end < 0 else end
        elif mark == "," and top.opener == "{":
            top.elements.append("".join(top.current))
            top.current = []
            top.angles = 0
        else:
            top.angles = max(0, top.angles + {"<": 1, ">": -1}.get(mark, 0))
            top.colon = top.colon or (mark == ":" and not top.angles)
            top.current.append(mark)
    stack[-1].current.append(text[at:])
    while len(stack) > 1:
        open_frame = stack.pop()
        stack[-1].current.append(open_frame.raw())
    return "".join(bottom.current)


def _close(stack: list[_Frame], mark: str) -> None:
    top = stack[-1]
    if top.opener != _CLOSES[mark]:
        top.current.append(mark)
        return
    stack.pop()
    stack[-1].current.append(_ordered(top) if mark == "}" else top.raw() + mark)


def _ordered(frame: _Frame) -> str:
    elements = [*frame.elements, "".join(frame.current)]
    values = [element.strip() for element in elements]
    if values[-1] == "":
        values.pop()
    if (
        frame.colon
        or len(values) < 2
        or frame.before in _NOT_BEFORE
        or frame.before.isalnum()
        or not all(_VALUE.fullmatch(value) for value in values)
    ):
        return frame.raw() + "}"
    values.sort(key=lambda value: (_ADDRESS.sub("0x", value), value))
    return "{" + ", ".join(values) + "}"
