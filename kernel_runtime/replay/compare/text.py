r"""Two texts: streams, `text/plain`, text within HTML, JSON and tracebacks.

Lines that are equal are skipped; two that differ are walked token by token, and every token that differs
needs a rule (`words`). Where the numbers of lines differ, what stands between the equal beginning and
the equal end is walked as one, since numbers of other lengths make an array break elsewhere.

Whatever is on, a word that changed is a difference, and so is a whole number that nothing names as an
address, a process, a port or a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from kernel_runtime.core.stream_text import StreamText
from kernel_runtime.replay.compare import tables
from kernel_runtime.replay.compare.bridge import Bridge, Differs
from kernel_runtime.replay.compare.sets import order_sets
from kernel_runtime.replay.compare.tokens import Token, spaced, token
from kernel_runtime.replay.compare.words import same, same_loops

_ANSI = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)|[@-Z\\^_])")
_BAR = re.compile(
    r"(?P<percent>\d{1,3})%\|[^|\n]{0,400}\|\ ?(?P<done>[^\s/]{1,40})/(?P<total>[^\s/]{1,40})\ "
    r"\[(?P<times>[^]\n]{0,200})\]"
)
_COUNTER = re.compile(r"(?P<done>\d{1,20})(?P<unit>[A-Za-z]{1,20})\ \[(?P<times>\d\d:\d\d[^]\n]{0,200})\]")
_POSTFIX = re.compile(r"(?:[\d:?]+<)?[\d:?]+(?:,\ *[^,]*?(?:/s|s/\w+|\?\w+/s))?(?P<postfix>,.*)?", re.DOTALL)
_TIMING_LINE = re.compile(
    r"The slowest run took [\d.]{1,20} times longer than the fastest\. .{0,100}"
    r"|(?:Compiler|Parser) {0,8}: [\d.]{1,20} m?s"
)
_ENOUGH = 1000
"""differing lines after which nobody asks for more"""
_LINE_END = re.compile(r" *\n *")


def clean(bridge: Bridge, text: str) -> str:
    """The text as a terminal shows it, as far as rules on that are on."""
    if "\x1b" in text and bridge.on("ansi"):
        text = _ANSI.sub("", text)
    if bridge.on("carriage-returns") and ("\r" in text or "\b" in text):
        shown = StreamText()
        shown.write(text)
        text = shown.text()
    return text


def compare(bridge: Bridge, recorded: str, replayed: str) -> None:
    """Hold two texts against each other; the bridge is told what differs."""
    if recorded == replayed:
        return
    one, two = clean(bridge, recorded), clean(bridge, replayed)
    _tell_cleaning(bridge, recorded, replayed, one, two)
    if one == two:
        return
    if _agree(bridge, one, two):
        return
    if bridge.on("set-order") and "{" in one and "{" in two:
        ordered, other = order_sets(one), order_sets(two)
        if (ordered, other) != (one, two) and (ordered == other or _agree(bridge, ordered, other)):
            bridge.use("set-order", *_first_that_differs(one, two))
            return
    if bridge.quick:
        bridge.differ(one, two)
    _lines(bridge, one, two)


def _agree(bridge: Bridge, one: str, two: str) -> bool:
    if attempt(bridge, lambda: _lines(bridge, one, two)):
        return True
    if not bridge.on("alignment"):
        return False
    first, second = one.split("\n"), two.split("\n")
    if (
        len(first) == len(second)
        and "  " in one
        and "  " in two
        and attempt(bridge, lambda: _table(bridge, first, second))
    ):
        return True
    # an array breaks its lines elsewhere if its numbers have other lengths
    return (
        "[" in one
        and "[" in two
        and len(first) > 1
        and attempt(bridge, lambda: _region(bridge, first, second))
    )


def _table(bridge: Bridge, one: list[str], two: list[str]) -> None:
    if not tables.cells(one, two, lambda a, b: attempt(bridge, lambda: _line(bridge, a, b))):
        bridge.differ("", "")
    bridge.use("alignment", *_first_that_differs("\n".join(one), "\n".join(two)))


def passes(bridge: Bridge, recorded: str, replayed: str) -> bool:
    """Whether the rules let these two pass for the same; if not, nothing is told."""
    return recorded == replayed or attempt(bridge, lambda: compare(bridge, recorded, replayed))


def attempt(bridge: Bridge, trial: Callable[[], None]) -> bool:
    """Whether the trial found no difference. One that did leaves no trace."""
    mark, quick = bridge.mark(), bridge.quick
    bridge.quick = True
    try:
        trial()
    except Differs:
        bridge.take_back(mark)
        return False
    finally:
        bridge.quick = quick
    return True


def _tell_cleaning(bridge: Bridge, recorded: str, replayed: str, one: str, two: str) -> None:
    if (recorded, replayed) == (one, two):
        return
    # which of the two is needed is found out by leaving one off
    example = _first_that_differs(recorded, replayed)
    for rule, marks in (("ansi", "\x1b"), ("carriage-returns", "\r\b")):
        if bridge.on(rule) and any(mark in text for text in (recorded, replayed) for mark in marks):
            bridge.use(rule, *example)


def _first_that_differs(recorded: str, replayed: str) -> tuple[str, str]:
    """The first lines that differ."""
    at = common(recorded, replayed)
    start = recorded.rfind("\n", 0, at) + 1
    return recorded[start:].partition("\n")[0], replayed[start:].partition("\n")[0]


def common(one: str, two: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one.startswith(two[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _lines(bridge: Bridge, recorded: str, replayed: str) -> None:
    one, two = recorded.split("\n"), replayed.split("\n")
    if len(one) != len(two) and bridge.on("timings"):
        one, two = _without_timing_lines(bridge, one, two)
    if len(one) != len(two):
        _region(bridge, one, two)
        return
    for number, (first, second) in enumerate(zip(one, two, strict=True), 1):
        if first == second or attempt(bridge, partial(_line, bridge, first, second)):
            continue
        bridge.differ(*_around(first, second), line=number)
        if bridge.count > _ENOUGH:
            return


def _around(one: str, two: str) -> tuple[str, str]:
    """Two long lines from shortly before the point where they part."""
    start = max(0, common(one, two) - 40) if max(len(one), len(two)) > 120 else 0
    mark = "…" if start else ""
    return mark + one[start:], mark + two[start:]


def _line(bridge: Bridge, one: str, two: str) -> None:
    if same_loops(bridge, one, two):
        return
    if bridge.on("progress-bars") and ("[" in one and "[" in two):
        first, second = _without_bars(one), _without_bars(two)
        if (first, second) != (one, two):
            if first != second:
                _walk(bridge, first, second)
            bridge.use("progress-bars", one, two)
            return
    _walk(bridge, one, two)


def _without_timing_lines(bridge: Bridge, one: list[str], two: list[str]) -> tuple[list[str], list[str]]:
    """Without the lines that %time and %timeit print only if something was slow."""
    kept = [line for line in one if not _TIMING_LINE.fullmatch(line)]
    other = [line for line in two if not _TIMING_LINE.fullmatch(line)]
    if len(kept) == len(other) and (len(kept), len(other)) != (len(one), len(two)):
        more = next(line for line in (*one, *two) if _TIMING_LINE.fullmatch(line))
        bridge.use("timings", *(("", more) if len(two) > len(one) else (more, "")))
        return kept, other
    return one, two


def _without_bars(line: str) -> str:
    shown = _BAR.sub(lambda bar: f"{bar['percent']}% {bar['done']}/{bar['total']} [{_postfix(bar)}]", line)
    shown = _COUNTER.sub(lambda bar: f"{bar['done']}{bar['unit']} [{_postfix(bar)}]", shown)
    # tqdm covers what a longer line before it left with spaces
    return shown if shown == line else shown.rstrip(" ")


def _postfix(bar: re.Match[str]) -> str:
    """What a program itself wrote behind the times of a bar, as `loss=0.3`."""
    found = _POSTFIX.fullmatch(bar["times"])
    return (found["postfix"] or "") if found else bar["times"]


def _region(bridge: Bridge, one: list[str], two: list[str]) -> None:
    """What lies between equal beginning and end, as one text."""
    head = 0
    while head < min(len(one), len(two)) and one[head] == two[head]:
        head += 1
    tail = 0
    while tail < min(len(one), len(two)) - head and one[-1 - tail] == two[-1 - tail]:
        tail += 1
    first, second = one[head : len(one) - tail], two[head : len(two) - tail]
    # from the last line in which both still agree: the array begins before it breaks
    before = max(0, head - 1)
    whole, other = "\n".join(one[before : len(one) - tail]), "\n".join(two[before : len(two) - tail])
    if "[" in whole and "[" in other and attempt(bridge, lambda: _walk(bridge, whole, other)):
        return
    bridge.differ(
        "\n".join(first[:20])[:2000],
        "\n".join(second[:20])[:2000],
        why=f"{len(one)} lines are {len(two)}",
        line=head + 1,
    )


def _walk(bridge: Bridge, one: str, two: str) -> None:
    """Both sides token by token, spaces apart. The first difference ends it: most lie near the beginning."""
    depth = 0
    previous = ""
    for (space, word), (other_space, other) in zip(spaced(one), spaced(two), strict=False):
        if space != other_space:
            aligned = (
                depth > 0
                and bridge.on("alignment")
                and _aligns(space, other_space, previous, word=token(word), other=token(other))
            )
            if not aligned:
                bridge.differ(one, two)
                return
            bridge.use("alignment", one, two)
        if word is None or other is None:
            if word is not other:
                bridge.differ(one, two)
            return
        text = word[0]
        if text != other[0] and not same(bridge, one, token(word), two, token(other)):
            bridge.differ(one, two)
            return
        if text == "[":
            depth += 1
        elif text == "]":
            depth -= 1
        previous = "number" if word.lastgroup == "number" else text


def _aligns(space: str, other_space: str, previous: str, *, word: Token | None, other: Token | None) -> bool:
    """Whether two spaces within brackets differ as those of an array do, whose numbers have other lengths.

    Never between two words, nor where one side has no space between two numbers.
    """
    if word is None or other is None:
        return False
    by_number = previous == "number" or "number" in (word.kind, other.kind)
    if "\n" in space or "\n" in other_space:
        # an array breaks its lines between numbers, or between rows
        if _LINE_END.fullmatch(space) and _LINE_END.fullmatch(other_space):
            return True
        return by_number and bool(space) and bool(other_space)
    if set(space + other_space) != {" "}:
        return False
    if previous == "[" or word.text == other.text == "]":
        return by_number
    return by_number and bool(space) and bool(other_space)
