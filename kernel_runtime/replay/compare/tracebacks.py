"""Errors: name, message, and the frames of the traceback by function and line of source.

IPython shows a frame as a head (`Cell In[3], line 2`, `File PATH:LINE, in NAME(…)`) and lines of source
with an arrow at the one that ran. A frame of the user's own code is compared whole; of a library's frame
only what says where the error went through (`library-frames`).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from kernel_runtime.replay.compare import text
from kernel_runtime.replay.compare.bridge import Bridge
from kernel_runtime.replay.compare.words import library_path

_CELL = re.compile(r"(?:Cell |Input )?In ?\[(?P<count>[\d* ]{1,12})\](?P<rest>, [^\n]*)?")
_FILE = re.compile(r"File (?P<path>[^\n]{1,2000}?)(?:(?::|, line )\d{1,9})?(?:, in (?P<function>[^\n]*))?")
_ARROW = re.compile(r"-{1,40}> ?(?P<number>\d{1,9})(?P<code>[^\n]*)")
_LISTED = re.compile(r" {1,12}\d{1,9}(?: [^\n]*)?")
_OLDER = re.compile(r"(?P<path>\S[^\n]{0,2000}?) in (?P<function>[^\n]{1,200})")
"""IPython 7: `PATH in NAME(…)`"""


class _Frame(Struct):
    head: str
    path: str
    function: str
    lines: list[str]
    """of source, as shown"""

    def arrow(self) -> str:
        """The line that ran, without its number."""
        for line in self.lines:
            if found := _ARROW.match(line):
                return found["code"].strip()
        return ""


def compare(bridge: Bridge, recorded: dict[str, Any], replayed: dict[str, Any]) -> None:
    """Hold two `error` outputs against each other; the bridge is told what differs."""
    if recorded["ename"] != replayed["ename"]:
        bridge.differ(_told(recorded), _told(replayed), why="another error")
        return
    if not text.passes(bridge, recorded["evalue"], replayed["evalue"]):
        bridge.differ(_told(recorded), _told(replayed), why="the same error with another message")
        return
    one, two = "\n".join(recorded["traceback"]), "\n".join(replayed["traceback"])
    if one == two or text.passes(bridge, one, two):
        return
    if not (bridge.on("library-frames") or bridge.on("execution-counts")):
        text.compare(bridge, one, two)
        return
    plain, other = text.clean(bridge, one), text.clean(bridge, two)
    if (plain, other) != (one, two):
        bridge.use("ansi", one.partition("\n")[0], two.partition("\n")[0])
    first, second = _frames(plain), _frames(other)
    if len(first) != len(second):
        bridge.differ(_heads(first), _heads(second), why=f"{len(first) - 1} frames are {len(second) - 1}")
        return
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        if not _same(bridge, a, b):
            bridge.differ("\n".join([a.head, *a.lines]), "\n".join([b.head, *b.lines]), frame=number)


def _told(error: dict[str, Any]) -> str:
    return f"{error['ename']}: {error['evalue']}"


def _heads(frames: list[_Frame]) -> str:
    return "; ".join(frame.head for frame in frames[1:30])


def _frames(traceback: str) -> list[_Frame]:
    """What comes before the first frame, then the frames. What follows the last one belongs to it."""
    frames = [_Frame("", "", "", [])]
    for line in traceback.split("\n"):
        if _ARROW.match(line) or _LISTED.fullmatch(line):
            frames[-1].lines.append(line)
        elif _CELL.fullmatch(line):
            frames.append(_Frame(line, "", "", []))
        elif found := _FILE.fullmatch(line):
            frames.append(_Frame(line, found["path"], found["function"] or "", []))
        elif (found := _OLDER.fullmatch(line)) and ("/" in found["path"] or found["path"].startswith("<")):
            frames.append(_Frame(line, found["path"], found["function"], []))
        else:
            frames[-1].lines.append(line)
    return frames


def _same(bridge: Bridge, one: _Frame, two: _Frame) -> bool:
    head = text.passes(bridge, one.head, two.head) or _same_cell(bridge, one.head, two.head)
    if head and all_pass(bridge, one.lines, two.lines):
        return True
    if not bridge.on("library-frames"):
        return False
    inner, other = _within_library(one.path), _within_library(two.path)
    if inner is None or inner != other:
        return False
    if one.function != two.function or one.arrow() != two.arrow():
        return False
    rest, other_rest = _after_source(one.lines), _after_source(two.lines)
    if not all_pass(bridge, rest, other_rest):
        return False
    bridge.use("library-frames", one.head, two.head)
    return True


def _same_cell(bridge: Bridge, one: str, two: str) -> bool:
    first, second = _CELL.fullmatch(one), _CELL.fullmatch(two)
    if first is None or second is None or not bridge.on("execution-counts"):
        return False
    if first["rest"] != second["rest"]:
        # `, in <cell line: 1>()` and `, line 1, in f(x)` are results
        return False
    bridge.use("execution-counts", one, two)
    return True


def all_pass(bridge: Bridge, one: list[str], two: list[str]) -> bool:
    """Whether lists of lines are the same by the rules on text."""
    return text.passes(bridge, "\n".join(one), "\n".join(two))


def _within_library(path: str) -> str | None:
    if path.startswith("<frozen "):
        return path
    # IPython shows ~ for the home directory
    return library_path(path.removeprefix("~"))


def _after_source(lines: list[str]) -> list[str]:
    """What is no listed source: the error's own last lines, chains between tracebacks."""
    return [line for line in lines if not _ARROW.match(line) and not _LISTED.fullmatch(line)]
