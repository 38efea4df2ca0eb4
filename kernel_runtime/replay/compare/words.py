"""One token against another: which rule, if any, lets these two pass for the same.

A rule looks at what stands around a token, never at the token alone, where the token alone could be a
result: an address follows `at`, a process id follows `pid`, a duration stands where the text says that
something took time, a date is compared with the time of its run.
"""

from __future__ import annotations

import re

from kernel_runtime.replay.compare import moments
from kernel_runtime.replay.compare.bridge import Bridge
from kernel_runtime.replay.compare.tokens import Token, near_as_shown, number, one_in_last_digit, tokens

_BEFORE = 200
"""characters before a token that may say what it is"""
_AT = re.compile(r"(?:<|&lt;)[^>\n]*\bat $")
"""within `<…>`: an address in a listing of machine code is a result"""
_PID = re.compile(
    r"(?:\bpid\b|\bPID\b|\b[Pp]rocess id\b|\btid\b|\bthread id\b)[^\w\n]{1,3}$|\bpid=\d{1,10} parent=$"
    r"|\b(?:Thread|Dummy|Process|ForkProcess|SpawnProcess|ForkPoolWorker)-$"
)
_THREAD = re.compile(r"(?:<|&lt;)[^>\n]*, started(?: daemon)? $")
_PORT = re.compile(
    r"(?:\b[Pp]ort\b[^\w\n]{1,3}|(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):|127\.0\.0\.1', )$"
)
_FIRST_PORT = 32768
"""ports from here on are given out by the system (Linux: ip_local_port_range)"""
_TIMED = re.compile(
    r"""(?:\b(?:took|taken|elapsed|wall[ _-]?time|cpu[ _-]?times?|wall[ _-]?clock|time\ spent
        |(?:execution|training|fit|score|processing|loading|computation)[ _]time)\b
      | ^\s{0,8}time\b
      | \b(?:done|finished|completed|ran|executed|loaded|built|passed|failed|trained|fitted|computed
        |processed|installed|resolved|downloaded|saved|wrote|read)\ in\b
      )[^\d\n]{0,24}$""",
    re.VERBOSE | re.IGNORECASE,
)
_CPU_TIMES = re.compile(r"^\s{0,8}(?:CPU times:|Wall time:)")
_TIMED_AFTER = re.compile(r"\s?(?:elapsed\b|per loop\b|/(?:step|it|epoch|batch|sample)\b)")
_DECIMAL = re.compile(r"[.e]")
_LOOPS = re.compile(r"(?P<runs>\d{1,9}) runs?, [\d,]{1,20} loops? each")
_PER_LOOP = re.compile(r" per loop \(mean (?:±|\+-) std\. dev\. of ")
_TEMP_ROOT = re.compile(
    r"(?P<root>(?:/[^/\s]{1,64}){1,9}/krt-replay-\d{1,10}/\w{1,16}/tmp"  # of a replay under the guard
    r"|/tmp|/var/tmp|/private/tmp|/(?:private/)?var/folders/\w{2}/\w{1,64}/T)"
    r"/(?P<name>[\w.+@%=~-]++)(?P<rest>.*)",
    re.DOTALL,
)
_RANDOM_NAME = re.compile(
    r"(?P<before>[\w.-]*?)(?P<random>(?<![A-Za-z])tmp[a-z0-9_]{8}|(?<=[_.-])(?=[a-z_]{0,7}[0-9])(?=[0-9_]{0,7}[a-z])[a-z0-9_]{8})(?P<after>\.\w{1,12})?"
)
_KERNEL_CELL = re.compile(r"ipykernel_\d{1,9}")
_CELL_FILE = re.compile(r"/\d{1,12}\.py")
_LIBRARY = re.compile(
    r"(?P<root>.*?/(?:site-packages|dist-packages)|.*?/lib(?:64)?/python3\.\d{1,2})/(?P<path>.+)", re.DOTALL
)
_UUID_VERSIONS = frozenset("1467")
"""time-based and random ones; 3 and 5 are digests of a name, and so a result"""
_MAX_PATH = 4096


def same(bridge: Bridge, text: str, recorded: Token, other: str, replayed: Token) -> bool:
    """Whether a rule that is on lets these differing tokens pass; it is told to the bridge.

    `text` and `other` are what the tokens stand in.
    """
    one, two = recorded.text, replayed.text
    kinds = {recorded.kind, replayed.kind}
    if kinds == {"uuid"}:
        made_up = one[14] == two[14] and one[14] in _UUID_VERSIONS and bridge.on("uuids")
        return made_up and bridge.rename(one, two) and _pass(bridge, "uuids", one, two)
    if kinds == {"hex"}:
        return (
            6 <= len(one) - 2 <= 16
            and 6 <= len(two) - 2 <= 16
            and bool(_AT.search(_before(text, recorded)) and _AT.search(_before(other, replayed)))
            and _pass(bridge, "addresses", one, two)
        )
    if kinds == {"path"}:
        return _paths(bridge, one, two)
    if kinds <= {"moment", "number", "duration"}:
        return _quantities(bridge, text, recorded, other, replayed)
    return False


def _quantities(bridge: Bridge, text: str, recorded: Token, other: str, replayed: Token) -> bool:
    one, two = recorded.text, replayed.text
    kinds = {recorded.kind, replayed.kind}
    if kinds == {"moment"} and moments.both_now(one, two, bridge.recorded, bridge.replayed):
        return _pass(bridge, "now", one, two)
    if kinds == {"number"} and _numbers(bridge, text, recorded, other, replayed):
        return True
    if kinds == {"duration"} and _same_durations(bridge, one, two):
        return True
    if bridge.on("timings") and _is_timed(text, recorded) and _is_timed(other, replayed):
        return _pass(bridge, "timings", one, two)
    return kinds == {"duration"} and _pass(bridge, "durations", one, two)


def _numbers(bridge: Bridge, text: str, recorded: Token, other: str, replayed: Token) -> bool:
    one, two = recorded.text, replayed.text
    first, second = number(one), number(two)
    if first is None or second is None:
        return False
    if numbers_pass(bridge, one, two):
        return True
    if bridge.on("now") and moments.both_epochs(first.value, second.value, bridge.recorded, bridge.replayed):
        return _pass(bridge, "now", one, two)
    if first.is_decimal or second.is_decimal:
        return False
    before, behind = _before(text, recorded), _before(other, replayed)
    if any(known.search(before) and known.search(behind) for known in (_PID, _THREAD)):
        return _pass(bridge, "process-ids", one, two)
    if bridge.on("ports") and _PORT.search(before) and _PORT.search(behind):
        system = all(_FIRST_PORT <= port.value <= 65535 for port in (first, second))
        return system and _pass(bridge, "ports", one, two)
    return False


def numbers_pass(bridge: Bridge, one: str, two: str) -> bool:
    """Whether two numbers as shown are the same within what the rules on numbers allow."""
    first, second = number(one), number(two)
    if first is None or second is None:
        return False
    rules = bridge.rules
    if bridge.on("number-tolerance") and near_as_shown(first, second, rules.relative, rules.absolute):
        return _pass(bridge, "number-tolerance", one, two)
    return (
        bridge.on("last-digit") and one_in_last_digit(first, second) and _pass(bridge, "last-digit", one, two)
    )


def _same_durations(bridge: Bridge, one: str, two: str) -> bool:
    """Whether two durations are the same numbers, within the tolerance, of the same units."""
    first, second = _parts(one), _parts(two)
    if len(first) != len(second):
        return False
    return all(a == b or numbers_pass(bridge, a, b) for a, b in zip(first, second, strict=True))


def _parts(duration: str) -> list[str]:
    return re.split(r"([-+]?[\d.]+(?:e-?\d+)?)", duration)


def _is_timed(text: str, token: Token) -> bool:
    """Whether the text says that something took so long; `took 12` does not, it may tell of rounds."""
    if token.kind == "number" and not _DECIMAL.search(token.text):
        return False
    after = token.kind == "duration" and _TIMED_AFTER.match(text, token.start + len(token.text))
    return bool(after or _TIMED.search(_before(text, token)) or _CPU_TIMES.match(_line_start(text, token)))


def same_loops(bridge: Bridge, recorded: str, replayed: str) -> bool:
    """Whether two lines of %timeit tell of as many runs: loops and times are the machine's."""
    if not bridge.on("timings") or not (_PER_LOOP.search(recorded) and _PER_LOOP.search(replayed)):
        return False
    one, two = _LOOPS.search(recorded), _LOOPS.search(replayed)
    if one is None or two is None or one["runs"] != two["runs"]:
        return False
    return recorded[one.end() :] == replayed[two.end() :] and _pass(bridge, "timings", recorded, replayed)


def _before(text: str, token: Token) -> str:
    """What stands on the token's line before it, no further than a few words."""
    start = max(token.start - _BEFORE, text.rfind("\n", max(0, token.start - _BEFORE), token.start) + 1)
    return text[start : token.start]


def _line_start(text: str, token: Token) -> str:
    start = text.rfind("\n", max(0, token.start - 400), token.start) + 1
    return text[start : start + 24]


def _paths(bridge: Bridge, one: str, two: str) -> bool:
    if len(one) > _MAX_PATH or len(two) > _MAX_PATH:
        return False
    if bridge.on("working-directory") and bridge.rules.directory is not None:
        recorded, replayed = bridge.rules.directory
        if two == replayed or two.startswith(replayed.rstrip("/") + "/"):
            there = recorded.rstrip("/") + two[len(replayed.rstrip("/")) :]
            if there == one:
                return _pass(bridge, "working-directory", one, two)
    if bridge.on("temp-paths") and _same_temp(bridge, one, two):
        return _pass(bridge, "temp-paths", one, two)
    if bridge.on("library-paths"):
        first, second = _LIBRARY.fullmatch(one), _LIBRARY.fullmatch(two)
        if first and second and library_path(one) == library_path(two):
            return _pass(bridge, "library-paths", one, two)
    return False


def library_path(path: str) -> str | None:
    """The path within a library's directory; None where it is in none.

    `…/python3.11/json/decoder.py` and `…/python3.11/site-packages/pandas/core/frame.py` lose what stands
    before `json` and `pandas`.
    """
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return path.rpartition(mark)[2]
    found = _LIBRARY.fullmatch(path)
    return found["path"] if found else None


def _same_temp(bridge: Bridge, one: str, two: str) -> bool:
    first, second = _TEMP_ROOT.fullmatch(one), _TEMP_ROOT.fullmatch(two)
    if first is None or second is None:
        return False
    if _KERNEL_CELL.fullmatch(first["name"]) and _KERNEL_CELL.fullmatch(second["name"]):
        # /tmp/ipykernel_PID/DIGEST.py: the second number is of the source and of the process's seed
        cells = _CELL_FILE.fullmatch(first["rest"]) and _CELL_FILE.fullmatch(second["rest"])
        return bool(cells) or first["rest"] == second["rest"]
    if first["rest"] != second["rest"]:
        return False
    if first["name"] == second["name"]:
        return True
    random, other = _RANDOM_NAME.fullmatch(first["name"]), _RANDOM_NAME.fullmatch(second["name"])
    return (
        random is not None
        and other is not None
        and (random["before"], random["after"]) == (other["before"], other["after"])
        and bridge.rename(first["name"], second["name"])
    )


def _pass(bridge: Bridge, rule: str, one: str, two: str) -> bool:
    if not bridge.on(rule):
        return False
    bridge.use(rule, one, two)
    return True


def strings_pass(bridge: Bridge, one: str, two: str) -> bool:
    """Whether two short strings are the same by the rules on tokens alone."""
    first, second = tokens(one), tokens(two)
    if len(first) != len(second):
        return False
    return all(
        a.text == b.text or (a.kind != "space" and same(bridge, one, a, two, b))
        for a, b in zip(first, second, strict=True)
    )
