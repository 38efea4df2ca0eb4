"""What IPython's magics read and bind, from the call that a magic is compiled to.

Invariant: a magic that is not known here is a reason why more may have been touched. Nothing is run.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache
from types import CodeType
from typing import Final, NamedTuple

_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_OPTIONS = re.compile(r"^(?:\s*-(?:[nr]\s*\d+|[tcpqov]+|-no-raise-error)(?=\s|$))*\s*")
_RUNS_LINE: Final = frozenset({"time", "timeit", "prun"})
_RUNS_CELL: Final = frozenset({"time", "timeit", "capture", "prun"})
_HARMLESS_LINE: Final = frozenset(
    {"matplotlib", "load_ext", "pip", "conda", "mamba", "uv", "cd", "pwd", "ls", "env", "set_env", "lsmagic"}
    | {"precision", "config", "xmode", "colors", "alias", "mkdir", "rm", "cp", "mv", "cat", "system", "sx"}
    | {
        "quickref",
        "pinfo",
        "pinfo2",
        "psource",
        "pdoc",
        "pfile",
        "history",
        "notebook",
        "dirs",
        "pushd",
        "popd",
    }
)
_HARMLESS_CELL: Final = frozenset(
    {
        "bash",
        "sh",
        "script",
        "writefile",
        "html",
        "HTML",
        "javascript",
        "js",
        "latex",
        "markdown",
        "svg",
        "SVG",
    }
    | {"perl", "ruby", "system", "sx", "!"}
)


class MagicRead(NamedTuple):
    codes: tuple[CodeType, ...] = ()
    names: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    reasons: tuple[str, ...] = ()


def read_magic(method: str, arguments: tuple[str, ...]) -> MagicRead:
    """What `get_ipython().METHOD(*arguments)` may touch."""
    if method in {"system", "getoutput", "system_raw", "system_piped"} and len(arguments) == 1:
        return _expanded(arguments[0], "system")
    if method == "run_line_magic" and len(arguments) == 2:
        return _line(*arguments)
    if method == "run_cell_magic" and len(arguments) == 3:
        return _cell(*arguments)
    if method in {"set_next_input", "show_usage"}:
        return MagicRead()
    return MagicRead(reasons=("get_ipython",))


def _line(name: str, line: str) -> MagicRead:
    reason = f"magic {name}"
    if name in _RUNS_LINE:
        return _both(_expanded(line, reason), _code(_OPTIONS.sub("", line), reason))
    if name in _HARMLESS_LINE:
        return _expanded(line, reason)
    return MagicRead(reasons=(reason,))


def _cell(name: str, line: str, cell: str) -> MagicRead:
    reason = f"magic {name}"
    if name == "capture":
        words = [word for word in line.split() if not word.startswith("-")]
        read = _code(cell, reason)
        return read._replace(binds=read.binds | frozenset(words))
    if name in _RUNS_CELL:
        return _both(
            _both(_code(_OPTIONS.sub("", line), reason), _code(cell, reason)), _expanded(line, reason)
        )
    if name in _HARMLESS_CELL and not re.search(r"--(out|err|proc)", line):
        return _expanded(line, reason)
    return MagicRead(reasons=(reason,))


def _both(one: MagicRead, other: MagicRead) -> MagicRead:
    return MagicRead(
        one.codes + other.codes,
        one.names | other.names,
        one.binds | other.binds,
        tuple(sorted({*one.reasons, *other.reasons})),
    )


def _code(source: str, reason: str) -> MagicRead:
    code = _compiled(source.strip(), "exec")
    return MagicRead(reasons=(reason,)) if code is None else MagicRead(codes=(code,))


def _expanded(text: str, reason: str) -> MagicRead:
    """`$name` and `{expression}`, which IPython replaces by values."""
    names = frozenset(_VARIABLE.findall(text))
    if "{" not in text:
        return MagicRead(names=names)
    codes: list[CodeType] = []
    try:
        for _, field, spec, _ in string.Formatter().parse(text):
            for expression in (field, spec):
                if expression and "{" not in expression:
                    code = _compiled(expression.strip(), "eval")
                    if code is not None:
                        codes.append(code)
    except ValueError:  # braces that are no format: IPython leaves the text as it is
        return MagicRead(names=names, reasons=() if _is_plain(text) else (reason,))
    return MagicRead(codes=tuple(codes), names=names)


def _is_plain(text: str) -> bool:
    return not re.search(r"\{\s*[A-Za-z_]", text)


@lru_cache(64)
def _compiled(source: str, mode: str) -> CodeType | None:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(source, "<magic>", mode, dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
