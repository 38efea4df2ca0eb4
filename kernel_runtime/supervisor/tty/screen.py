"""What a kernel's terminal is set to, and what it shows.

The foster parent appends all that the terminal shows to a file; the last line that has no end yet is the
prompt. A program that draws (an editor) has none: there, what the screen shows around the cursor is it.
"""

from __future__ import annotations

import os
import re
import termios
from typing import Any

from msgspec import Struct

PROMPT_MAX = 400
"""characters of a prompt that are told"""
_TAIL = 1 << 14
_SHOWN_LINES = 3
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_]|[()][0-9A-B])")
_LFLAG = 3


class Settings(Struct, frozen=True):
    echo: bool
    """what is typed is shown; if not, it is taken for a secret"""
    canonical: bool
    """input comes by lines; if not, by keys"""

    @property
    def sane(self) -> bool:
        return self.echo and self.canonical


def settings(terminal: str) -> Settings:
    """How the terminal is set now.

    Raises:
        OSError: it is gone.
    """
    fd = _open(terminal)
    try:
        local = _attributes(fd)[_LFLAG]
    finally:
        os.close(fd)
    return Settings(echo=bool(local & termios.ECHO), canonical=bool(local & termios.ICANON))


def make_sane(terminal: str) -> None:
    """Undo what a program did that was killed while it had the terminal in its own way.

    Raises:
        OSError: it is gone.
    """
    fd = _open(terminal)
    try:
        now = _attributes(fd)
        now[0] |= termios.ICRNL | termios.BRKINT
        now[1] |= termios.OPOST | termios.ONLCR
        now[_LFLAG] |= (
            termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ICANON | termios.ISIG | termios.IEXTEN
        )
        termios.tcsetattr(fd, termios.TCSANOW, now)
    except termios.error as error:
        raise OSError(*error.args) from error
    finally:
        os.close(fd)


def prompt(log: str, *, canonical: bool, since: int) -> str:
    """What the terminal's last line says, without colours.

    Empty if it has been ended, or nothing was shown since then (wall clock, ns).
    """
    tail = _tail(log, since)
    if not canonical:
        return _drawn(tail)
    line = tail[tail.rfind(b"\n") + 1 :]
    return last_line(_ESCAPE.sub(b"", line).decode("utf-8", "replace"))


def last_line(text: str) -> str:
    """The last line of a text that says anything, as it stands after its carriage returns."""
    lines = [line.rsplit("\r", 1)[-1] for line in text.rstrip("\r\n").splitlines()]
    said = next((line for line in reversed(lines) if line.strip()), "")
    return "".join(c for c in said if c.isprintable())[-PROMPT_MAX:]


def _drawn(tail: bytes) -> str:
    # loaded by whoever needs it: it costs a megabyte, and few cells open an editor
    from kernel_runtime.supervisor.holder_screen import TerminalScreen

    screen = TerminalScreen(24, 80)
    screen.feed(tail)
    shown = screen.document()
    said = [line for line in shown["lines"] if line.strip()]
    return "\n".join(said[-_SHOWN_LINES:])[-PROMPT_MAX:]


def _tail(log: str, since: int) -> bytes:
    try:
        fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        about = os.fstat(fd)
        if about.st_mtime_ns < since:
            return b""
        return os.pread(fd, _TAIL, max(0, about.st_size - _TAIL))
    finally:
        os.close(fd)


def _open(terminal: str) -> int:
    return os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)


def _attributes(fd: int) -> list[Any]:
    try:
        return termios.tcgetattr(fd)
    except termios.error as error:
        raise OSError(*error.args) from error
