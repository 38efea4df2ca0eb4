"""The grammar of probes: one line of text in, one question of `core.claims` out.

An error says what was expected, at which column, and what stood there. docs/claims.md is the grammar
with an example of each kind. Nothing here looks at the world: a probe that can be read may still be
one that cannot be answered.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from msgspec import Struct

from kernel_runtime.core.claims import (
    Environment,
    Expression,
    File,
    Http,
    Managed,
    Name,
    Pid,
    Port,
    Probe,
)
from kernel_runtime.errors import BadProbe

LONGEST = 4_000
"""letters of a probe"""
KINDS = ("port", "pid", "process", "name", "file", "http", "env", "expr")


def parse(text: str) -> Probe:
    """The question a probe asks.

    Raises:
        BadProbe: it is none; says what was expected and where.
    """
    words = _Words(text)
    if len(text) > LONGEST:
        raise words.expected(f"at most {LONGEST:,} letters", LONGEST)
    kind = words.next(f"one of {', '.join(KINDS)}")
    reader = _READERS.get(kind.text)
    if reader is None:
        raise words.expected(f"one of {', '.join(KINDS)}", kind.at, kind.text)
    return reader(words)


class _Word(Struct, frozen=True):
    text: str
    at: int
    quoted: bool = False


_WORD = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|(\S+))', re.DOTALL)


class _Words:
    """The words of a probe, one after another."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0

    def expected(self, what: str, at: int | None = None, found: str | None = None) -> BadProbe:
        at = self._at if at is None else at
        where = f"at column {at + 1}" + (f", not {found!r}" if found is not None else "")
        return BadProbe(
            f"the probe {_short(self.text)!r}: expected {what} {where}",
            hint="e.g. `port 3000 listens`, `name df has 12 rows`, `file out.csv exists`; see docs/claims.md",
            probe=self.text,
            column=at + 1,
            expected=what,
        )

    def more(self) -> bool:
        """Whether another word follows."""
        return _WORD.match(self.text, self._at) is not None

    def next(self, what: str) -> _Word:
        """The next word; `what` is what it should be."""
        match = _WORD.match(self.text, self._at)
        if match is None:
            at = len(self.text.rstrip())
            raise self.expected(what, at, "the end")
        quoted = match.group(3) is None
        word = _Word(_unquoted(match), match.end() - len(match.group().lstrip()), quoted)
        if not quoted and word.text[0] in "\"'":
            raise self.expected(f"a closing {word.text[0]}", len(self.text))
        self._at = match.end()
        return word

    def keyword(self, *words: str) -> str:
        what = " or ".join(repr(word) for word in words)
        word = self.next(what)
        if word.text not in words:
            raise self.expected(what, word.at, word.text)
        return word.text

    def number(self, what: str, lowest: int = 0, highest: int = 2**63) -> int:
        word = self.next(what)
        digits = word.text.replace(",", "").replace("_", "")
        if not (digits.isascii() and digits.isdigit() and lowest <= int(digits) <= highest):
            raise self.expected(what, word.at, word.text)
        return int(digits)

    def rest(self, what: str) -> tuple[str, int]:
        """All that follows, as it is written, and where it begins."""
        left = self.text[self._at :].strip()
        at = len(self.text) - len(self.text[self._at :].lstrip())
        if not left:
            raise self.expected(what, len(self.text.rstrip()), "the end")
        self._at = len(self.text)
        return left, at

    def end(self) -> None:
        if (match := _WORD.match(self.text, self._at)) is not None:
            found = match.group().strip()
            raise self.expected("nothing more", match.end() - len(match.group().lstrip()), found)


def _unquoted(match: re.Match[str]) -> str:
    double, single, bare = match.groups()
    if double is not None:
        return re.sub(r"\\(.)", r"\1", double, flags=re.DOTALL)
    return str(single if single is not None else bare)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


# -- one reader per kind


def _port(words: _Words) -> Probe:
    word = words.next("a port, e.g. 3000, 53/udp or 127.0.0.1:3000")
    match = re.fullmatch(r"(?:(\[[0-9A-Fa-f:.]+\]|[0-9.]+|localhost):)?(\d{1,5})(?:/(tcp|udp))?", word.text)
    if match is None or not 1 <= int(match.group(2)) <= 65_535:
        raise words.expected(
            "a port from 1 to 65535, e.g. 3000, 53/udp or 127.0.0.1:3000", word.at, word.text
        )
    host = (match.group(1) or "").strip("[]")
    words.keyword("listens")
    words.end()
    return Port(int(match.group(2)), "" if host == "localhost" else host, match.group(3) or "tcp")


def _pid(words: _Words) -> Probe:
    pid = words.number("a process id", 1, 2**22)
    how = words.keyword("is", "contains", "runs")
    if how == "runs":
        words.end()
        return Pid(pid, how)
    word = words.next("a command line in quotes")
    if not word.text.strip():
        raise words.expected("a command line in quotes", word.at, "an empty one")
    if not word.quoted and words.more():
        raise words.expected("a command line in quotes", word.at, word.text)
    words.end()
    return Pid(pid, how, word.text)


def _process(words: _Words) -> Probe:
    word = words.next("the name of a process of the session, e.g. p1 (`krt ps` lists them)")
    words.keyword("runs")
    words.end()
    return Managed(word.text)


def _name(words: _Words) -> Probe:
    word = words.next("a name, e.g. df")
    if not word.text.isidentifier():
        raise words.expected("a Python name, e.g. df (anything else is an `expr`)", word.at, word.text)
    how = words.keyword("exists", "has", "is", "==")
    if how == "has":
        number = words.number("a number")
        unit = words.keyword("rows", "row", "columns", "column")
        words.end()
        return Name(word.text, unit.rstrip("s") + "s", number=number)
    if how == "is":
        kind = words.next("a type, e.g. DataFrame or pandas.DataFrame")
        words.end()
        return Name(word.text, "type", text=kind.text)
    if how == "==":
        literal, at = words.rest("a literal, e.g. 42 or 'text' or [1, 2]")
        try:
            ast.literal_eval(literal)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            what = "a literal, e.g. 42 or 'text' or [1, 2] (anything else is an `expr`)"
            raise words.expected(what, at, _short(literal)) from None
        return Name(word.text, "equals", text=literal)
    words.end()
    return Name(word.text, "exists")


def _file(words: _Words) -> Probe:
    path = words.next("a path, in quotes if it has spaces")
    if not path.text or "\0" in path.text:
        raise words.expected("a path", path.at, path.text)
    sha256 = ""
    size: int | None = None
    expected: tuple[str, ...] = ("exists", "missing", "sha256", "a size, e.g. 120 bytes")
    first = True
    while words.more() or first:
        word = words.next(" or ".join(expected))
        if word.text == "missing" and first:
            words.end()
            return File(path.text, exists=False)
        if word.text == "exists" and first:
            pass
        elif word.text == "sha256" and not sha256:
            digest = words.next("64 hexadecimal digits")
            if re.fullmatch(r"[0-9a-fA-F]{64}", digest.text) is None:
                raise words.expected("64 hexadecimal digits", digest.at, _short(digest.text))
            sha256 = digest.text.lower()
        elif (digits := re.sub("[,_]", "", word.text)).isdigit() and digits.isascii() and size is None:
            words.keyword("bytes", "byte")
            size = int(digits)
        else:
            raise words.expected(" or ".join(expected), word.at, word.text)
        first = False
        expected = ("sha256", "a size, e.g. 120 bytes", "the end")
    return File(path.text, sha256=sha256, bytes=size)


def _http(words: _Words) -> Probe:
    word = words.next("a status, e.g. 200, or 'answers'")
    status = None
    if word.text != "answers":
        if re.fullmatch(r"[1-5]\d\d", word.text) is None:
            raise words.expected("a status from 100 to 599, or 'answers'", word.at, word.text)
        status = int(word.text)
    words.keyword("at")
    url = words.next("a URL, e.g. http://127.0.0.1:3000/health")
    problem = url_problem(url.text)
    if problem:
        raise words.expected(f"a URL that {problem}", url.at, _short(url.text))
    words.end()
    return Http(url.text, status)


def url_problem(url: str) -> str:
    """What a URL must be and is not; empty when it can be asked."""
    try:
        parts = urlsplit(url)
        host, _port_number = parts.hostname, parts.port
    except ValueError:
        return "can be read, e.g. http://127.0.0.1:3000/health"
    if parts.scheme not in ("http", "https") or not host:
        return "begins with http:// or https:// and names a host"
    if parts.username or parts.password:
        return "holds no password: the journal keeps it"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "has ASCII letters only"
    return ""


def _env(words: _Words) -> Probe:
    word = words.next("the name of a variable")
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word.text) is None:
        raise words.expected("the name of a variable", word.at, word.text)
    if words.keyword("is", "exists") == "exists":
        words.end()
        return Environment(word.text)
    value = words.next("its value, in quotes if it has spaces")
    words.end()
    return Environment(word.text, value.text)


def _expr(words: _Words) -> Probe:
    source, at = words.rest("a Python expression, e.g. len(df) == 336776")
    try:
        ast.parse(source, mode="eval")
    except SyntaxError as error:
        place = at + max(0, (error.offset or 1) - 1)
        raise words.expected(f"a Python expression ({error.msg})", place) from None
    except (ValueError, MemoryError, RecursionError):
        raise words.expected("a Python expression", at, _short(source)) from None
    return Expression(source)


_READERS: dict[str, Callable[[_Words], Probe]] = {
    "port": _port,
    "pid": _pid,
    "process": _process,
    "name": _name,
    "file": _file,
    "http": _http,
    "env": _env,
    "expr": _expr,
}
