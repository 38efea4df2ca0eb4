"""A line of text as words, numbers, paths, times and spaces, so that each is compared as what it is.

Invariant: the tokens of a text, joined, are the text. Every alternative is possessive or bounded, and none
looks further than the token that it finds or gives up on, so time is linear in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple, overload

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?+)?+"
_UNIT = (
    r"(?:ns|[uµμ]s|ms|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?"
    r"|nanoseconds?|microseconds?|milliseconds?)(?![\w%])"
)
_PLAIN = r"\d{1,40}(?:\.\d{0,40}+)?+"

_TOKEN = re.compile(
    rf"""
      (?P<space>\s++)
    | (?P<uuid>(?<!\w)[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}(?![\w-]))
    | (?P<moment>(?<![\w.])(?:
          \d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{{1,9}})?+)?+(?:\ ?(?:Z|UTC|[+-]\d\d:?\d\d))?+)?+
        | \d{{8}}[_T-]?\d{{6}}
        | {_DAY}\ {_MONTH}\ [ \d]\d\ {_CLOCK}\ (?:[A-Z]{{3,4}}\ )?\d{{4}}
        | (?:{_DAY},\ )?\d{{1,2}}\ {_MONTH}\ \d{{4}}(?:\ {_CLOCK}(?:\ (?:GMT|UTC|[+-]\d{{4}}))?+)?+
        | {_MONTH}[a-z]{{0,6}}\ \d{{1,2}},\ \d{{4}}
        | \d{{1,2}}/\d{{1,2}}/\d{{4}}
        | datetime\.(?:datetime|date)\(\d{{4}}(?:,\ \d{{1,6}}){{2,6}}\)
        | {_CLOCK}
      )(?![\w:]|\.\d))
    | (?P<hex>(?<!\w)0x[0-9a-fA-F]++(?!\w))
    | (?P<path>(?<!\w)(?:/[\w.+@%=~-]++)++/?)
    | (?P<duration>(?<![\w.])[-+]?{_PLAIN}(?:e-?\d{{1,3}})?\ ?{_UNIT}(?:\ ?{_PLAIN}\ ?{_UNIT}){{0,3}})
    | (?P<number>(?:(?<![\w.)\]])[-+])?(?<![\w.])
          (?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+[jJ]?+(?!\w|\.\d))
    | (?P<word>\w++)
    | (?P<other>[\s\S])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    text: str
    start: int


@overload
def token(found: re.Match[str]) -> Token: ...
@overload
def token(found: None) -> None: ...
def token(found: re.Match[str] | None) -> Token | None:
    """What `spaced` found, as a token."""
    return None if found is None else Token(found.lastgroup or "", found[0], found.start())


def tokens(text: str) -> list[Token]:
    """The text cut into tokens."""
    return [token(found) for found in _TOKEN.finditer(text)]


def spaced(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Each token that is no space, with the space before it; at the end the space that is left, and None."""
    space = ""
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "space":
            space = found[0]
        else:
            yield space, found
            space = ""
    yield space, None


_NUMBER = re.compile(
    r"[-+]?(?P<whole>\d*+)(?P<point>\.?)(?P<decimals>\d*+)(?:[eE](?P<exponent>[-+]?\d++))?+[jJ]?+"
)
_MAX_DIGITS = 60
"""longer numbers are compared digit by digit: no float tells them apart"""
_TELLING = 8
"""so many significant digits show that a number was written out as far as it goes"""


class Number(NamedTuple):
    value: float
    imaginary: bool
    is_decimal: bool
    """written with a point or an exponent"""
    decimals: int
    exponent: int | None
    digits: int
    """significant ones that are shown"""


def number(text: str) -> Number | None:
    """The number that a token shows; None where it is none that a float can hold."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _MAX_DIGITS:
        return None
    imaginary = text[-1] in "jJ"
    try:
        value = float(text[:-1] if imaginary else text)
    except ValueError:
        return None
    exponent = found["exponent"]
    return Number(
        value=value,
        imaginary=imaginary,
        is_decimal=bool(found["point"]) or exponent is not None,
        decimals=len(found["decimals"]),
        exponent=None if exponent is None else int(exponent),
        digits=len((found["whole"] + found["decimals"]).lstrip("0")),
    )


def near(recorded: float, replayed: float, relative: float, absolute: float) -> bool:
    """Whether two numbers differ by no more than the tolerance; infinities only if they are equal."""
    if recorded == replayed:
        return True
    gap = abs(recorded - replayed)
    if not math.isfinite(gap):
        return False
    return gap <= max(relative * max(abs(recorded), abs(replayed)), absolute)


def near_as_shown(recorded: Number, replayed: Number, relative: float, absolute: float) -> bool:
    """Whether two decimal numbers are the same within the tolerance, and shown in the same manner.

    `1.20` and `1.2` are not: the same number, but not the same answer (a version, a price). Numbers that
    are written out in full (8 digits and more) may have any number of digits.
    """
    if not (recorded.is_decimal and replayed.is_decimal) or recorded.imaginary != replayed.imaginary:
        return False
    alike = recorded.decimals == replayed.decimals and (recorded.exponent is None) == (
        replayed.exponent is None
    )
    if not alike and max(recorded.digits, replayed.digits) < _TELLING:
        return False
    return near(recorded.value, replayed.value, relative, absolute)


def one_in_last_digit(recorded: Number, replayed: Number) -> bool:
    """Whether two decimal numbers with as many decimals differ by one in the last of them."""
    if not (recorded.is_decimal and replayed.is_decimal) or recorded.imaginary != replayed.imaginary:
        return False
    if recorded.decimals != replayed.decimals or recorded.exponent != replayed.exponent:
        return False
    step = 10.0 ** (max(-300, min(300, (recorded.exponent or 0) - recorded.decimals)))
    return abs(recorded.value - replayed.value) <= step * 1.0000001
