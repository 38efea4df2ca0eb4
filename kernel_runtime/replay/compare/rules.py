"""The rules by which two outputs that differ may still count as the same, by name.

Without rules, outputs are the same if their content is equal. Each rule lets one kind of difference pass
that a second run of the same code shows although its result is the same. A rule is on or off, and is told
wherever it was needed.

Invariant: a rule passes differences of *how* a result is shown or *where and when* it was made, never of
the result. Where a rule cannot tell the two apart it is off by default (`durations`, `last-digit`).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from kernel_runtime.errors import UsageError


class Rule(Struct, frozen=True):
    """One kind of difference that may pass."""

    name: str
    description: str
    """one sentence, for people"""
    applies: tuple[str, ...]
    """where: `stream`, `error`, mime types (`text/*`)"""
    default: bool = True


_TEXT = ("stream", "error", "text/*", "JSON strings")

RULES: tuple[Rule, ...] = (
    Rule(
        "interleaving",
        "What stdout and stderr say between two other outputs may be mixed in any order.",
        ("stream",),
    ),
    Rule(
        "carriage-returns",
        "Text counts as a terminal shows it in the end: what a cursor overwrote is gone.",
        ("stream", "text/plain"),
    ),
    Rule(
        "ansi", "Colours and other escape sequences of terminals do not count.", ("stream", "error", "text/*")
    ),
    Rule(
        "progress-bars",
        "Bar, times and rate of a progress bar do not count; its label, percentage, count and total do.",
        ("stream", "text/plain"),
    ),
    Rule("addresses", "A memory address within `<…>`, after the word `at`, may be any address.", _TEXT),
    Rule("process-ids", "The number of a process or thread, named as such, may be any number.", _TEXT),
    Rule("ports", "A port that the system picked (32768 and above) may be another of these.", _TEXT),
    Rule(
        "temp-paths",
        "The random part of a path in the directory for temporary files may be another one.",
        _TEXT,
    ),
    Rule(
        "library-paths",
        "Where Python and its packages are installed does not count; the path within them does.",
        _TEXT,
    ),
    Rule("working-directory", "The copied working directory of a replay counts as the one it copies.", _TEXT),
    Rule("uuids", "A random or time-based UUID may be another one of the same version.", _TEXT),
    Rule(
        "now",
        "A date or time of the run itself may be the date or time of the other run.",
        _TEXT,
    ),
    Rule(
        "timings",
        "How long something took may be another duration, where the text says that it tells this"
        " (%time, %timeit, `took 0.1 s`).",
        _TEXT,
    ),
    Rule("durations", "Any number with a unit of time may be another one.", _TEXT, default=False),
    Rule("set-order", "The order in which a set or frozenset shows its elements does not count.", _TEXT),
    Rule(
        "number-tolerance",
        "Decimal numbers may differ by the tolerance (relative 1e-9); whole numbers may not.",
        (*_TEXT, "JSON numbers"),
    ),
    Rule(
        "last-digit",
        "Decimal numbers may differ by one in the last digit that is shown.",
        _TEXT,
        default=False,
    ),
    Rule(
        "alignment",
        "How many spaces align the columns of a table or the numbers of an array does not count; cells stay"
        " in their columns.",
        ("stream", "text/plain"),
    ),
    Rule(
        "markup",
        "How HTML or XML is written down does not count: order of attributes, quotes, space between tags.",
        ("text/html", "image/svg+xml"),
    ),
    Rule(
        "random-ids",
        "Generated ids (pandas, scikit-learn, Vega, Plotly, Bokeh, matplotlib, widgets) may have other names,"
        " if each is renamed in the same way everywhere in the output.",
        ("text/html", "image/svg+xml", "JSON"),
    ),
    Rule("json-key-order", "The order of keys in a JSON object does not count.", ("JSON",)),
    Rule(
        "image-metadata",
        "Images with equal pixels are the same, whatever else their files hold; an SVG's <metadata> does not"
        " count.",
        ("image/*",),
    ),
    Rule(
        "image-perceptual",
        "Pixels may differ as nobody sees: no channel by more than 8 of 255, and in at most 1 % of the pixels"
        " by more than 2.",
        ("image/*",),
    ),
    Rule(
        "execution-counts",
        "The number N of a cell in `Cell In[N]` of a traceback does not count.",
        ("error",),
    ),
    Rule(
        "library-frames",
        "A traceback's frame within a library is its file's path there, its function and the line that ran;"
        " line number and surrounding lines do not count.",
        ("error",),
    ),
    Rule(
        "name-digests",
        "What a name holds at the end is told, and does not count in the verdict.",
        ("names",),
        default=False,
    ),
)

NAMES = tuple(rule.name for rule in RULES)
_DEFAULT = frozenset(rule.name for rule in RULES if rule.default)


class RuleSet(Struct, frozen=True, kw_only=True):
    """Which rules are on, and their numbers."""

    on: frozenset[str] = _DEFAULT
    relative: float = 1e-9
    """of `number-tolerance`: of the larger of the two numbers"""
    absolute: float = 0.0
    """of `number-tolerance`: beside `relative`, for numbers that ought to be 0"""
    image_levels: int = 8
    """of `image-perceptual`: by how much of 255 any channel of any pixel may differ"""
    image_share: float = 0.01
    """of `image-perceptual`: which share of the pixels may differ by more than 2 of 255"""
    directory: tuple[str, str] | None = None
    """of `working-directory`: (as recorded, of the replay)"""

    def only(self, names: Iterable[str]) -> RuleSet:
        """The same numbers with only these rules on."""
        return replace(self, on=frozenset(names))

    def without(self, name: str) -> RuleSet:
        return replace(self, on=self.on - {name})


STRICT = RuleSet(on=frozenset())
"""no rule is on"""


def choose(
    *,
    on: Iterable[str] = (),
    off: Iterable[str] = (),
    strict: bool = False,
    relative: float = 1e-9,
    absolute: float = 0.0,
    directory: tuple[str, str] | None = None,
) -> RuleSet:
    """The rules of `--rule`, `--no-rule`, `--strict` and `--tolerance`. `strict` starts from none.

    Raises:
        UsageError: no rule of that name, or a tolerance that is negative or no number.
    """
    on, off = set(on), set(off)
    for name in sorted(on | off):
        if name not in NAMES:
            raise UsageError(f"no rule is called {name!r}", hint=f"one of: {', '.join(NAMES)}", rule=name)
    for name in sorted(on & off):
        raise UsageError(f"rule {name!r} is both on and off", hint="leave one of the two out", rule=name)
    for what, value in (("relative", relative), ("absolute", absolute)):
        if not 0 <= value < float("inf"):
            raise UsageError(f"a {what} tolerance of {value} makes no sense", hint="a number from 0, as 1e-9")
    start = frozenset[str]() if strict else _DEFAULT
    return RuleSet(on=(start | on) - off, relative=relative, absolute=absolute, directory=directory)
