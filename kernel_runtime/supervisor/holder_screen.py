"""What is on a terminal's screen, by pyte: as text for a program, as escape codes for another terminal.

The holder feeds it the last output only (`holder_drawing`). `since` says what a screen stands on:
`start` (all that was ever said), `clear` (the last time that the program cleared its screen), `cut` (neither
was within the window: what was drawn before and never again is missing, and colours may be those of a moment
before).

Not promised: graphics, mouse reports, answers to a program that asks its terminal who it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyte

_CLEARS = (b"\x1b[2J", b"\x1bc", b"\x1b[?1049h", b"\x1b[?1047h", b"\x1b[?47h")
_ALTERNATE = {1049, 1047, 47}
_KEPT_MODES = (1, 1000, 1002, 1003, 1004, 1005, 1006, 2004)
"""private modes that a terminal which joins later has to be put into"""
_NAMED = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")
_STYLES = (("bold", 1), ("italics", 3), ("underscore", 4), ("blink", 5), ("reverse", 7), ("strikethrough", 9))


def beginning(recent: bytes, *, complete: bool) -> tuple[int, str]:
    """Where to begin to read what was said last, and what a screen made of it stands on."""
    if complete:
        return 0, "start"
    clear = max(recent.rfind(mark) for mark in _CLEARS)
    if clear >= 0:
        return clear, "clear"
    return recent.find(b"\n") + 1, "cut"


class _Screen(pyte.Screen):
    """pyte's screen, with the second one that full-screen programs switch to and back from."""

    def __init__(self, columns: int, lines: int) -> None:
        self._main: tuple[Any, Any, Any] | None = None
        super().__init__(columns, lines)

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private") and _ALTERNATE.intersection(modes) and self._main is None:
            self._main = (self.buffer.copy(), self.cursor, self.margins)
            cursor = pyte.screens.Cursor(self.cursor.x, self.cursor.y)
            self.buffer.clear()
            self.cursor, self.margins = cursor, None
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and _ALTERNATE.intersection(modes) and self._main is not None:
            buffer, self.cursor, self.margins = self._main
            self._main = None
            self.buffer.clear()
            self.buffer.update(buffer)
            self.cursor.x = min(self.cursor.x, self.columns - 1)
            self.cursor.y = min(self.cursor.y, self.lines - 1)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """As terminals do it: lines go from the bottom while the cursor is above them, then from the top."""
        if lines is not None and lines < self.lines:
            above = max(0, self.cursor.y + 1 - lines)
            kept = {y - above: row for y, row in self.buffer.items() if above <= y < above + lines}
            self.buffer.clear()
            self.buffer.update(kept)
            self.cursor.y -= above
            self.lines = lines
            self.set_margins()
        super().resize(lines, columns)
        self.ensure_hbounds()
        self.ensure_vbounds()

    def reset(self) -> None:
        self._main = None
        super().reset()


def _tolerant(handle: Callable[..., None]) -> Callable[..., None]:
    def handled(self: _Screen, *args: Any, **kwargs: Any) -> None:
        try:
            handle(self, *args, **kwargs)
        except (TypeError, ValueError, IndexError, KeyError, AssertionError):
            # a sequence that pyte does not know in this form (`CSI > 4;1 m`): a terminal ignores it
            return

    return handled


for _event in pyte.Stream.events:
    if _event != "draw":
        setattr(_Screen, _event, _tolerant(getattr(_Screen, _event)))


class TerminalScreen:
    """The screen of one terminal, from what was fed to it."""

    def __init__(self, rows: int, cols: int) -> None:
        self._screen = _Screen(cols, rows)
        self._stream = pyte.ByteStream(self._screen)

    def resize(self, rows: int, cols: int) -> None:
        self._screen.resize(rows, cols)

    def feed(self, data: bytes) -> None:
        self._stream.feed(data)

    def document(self) -> dict[str, Any]:
        """`lines` without the blanks at their ends, and where the cursor stands, from 0."""
        screen = self._screen
        return {
            "lines": [self._text(y).rstrip() for y in range(screen.lines)],
            "cursor": {
                "row": screen.cursor.y,
                "col": min(screen.cursor.x, screen.columns - 1),
                "hidden": bool(screen.cursor.hidden),
            },
            "rows": screen.lines,
            "cols": screen.columns,
            "title": screen.title,
        }

    def _text(self, y: int) -> str:
        line = self._screen.buffer[y]
        # the second half of a wide character is an empty one
        return "".join(line[x].data for x in range(self._screen.columns))

    def render(self) -> bytes:
        """What puts a terminal that has just joined into the state of this one."""
        screen = self._screen
        on = {mode >> 5 for mode in screen.mode if mode >= 32}
        parts = ["\x1b[!p\x1b[0m"]
        parts.append("\x1b[?1049h" if on & _ALTERNATE else "")
        parts.append("\x1b[H\x1b[2J")
        parts += [f"\x1b[{y + 1};1H{self._styled(y)}" for y in range(screen.lines)]
        if screen.margins is not None:
            parts.append(f"\x1b[{screen.margins.top + 1};{screen.margins.bottom + 1}r")
        parts += [f"\x1b[?{mode}h" for mode in _KEPT_MODES if mode in on]
        parts.append(_sgr(screen.cursor.attrs))
        parts.append(f"\x1b[{screen.cursor.y + 1};{min(screen.cursor.x, screen.columns - 1) + 1}H")
        parts.append("\x1b[?25l" if screen.cursor.hidden else "\x1b[?25h")
        return "".join(parts).encode("utf-8", "replace")

    def _styled(self, y: int) -> str:
        line = self._screen.buffer[y]
        end = self._screen.columns
        blank = self._screen.default_char
        while end and line[end - 1] == blank:
            end -= 1
        out: list[str] = []
        before = None
        for x in range(end):
            char = line[x]
            style = char._replace(data="")
            if style != before:
                out.append(_sgr(char))
                before = style
            out.append(char.data)
        if before is not None:
            out.append("\x1b[0m")
        return "".join(out)


def _sgr(char: Any) -> str:
    codes = ["0"]
    codes += [str(code) for name, code in _STYLES if getattr(char, name, False)]
    codes += _colour(char.fg, 30) + _colour(char.bg, 40)
    return f"\x1b[{';'.join(codes)}m"


def _colour(name: str, base: int) -> list[str]:
    if name == "default":
        return []
    plain = name.removeprefix("bright")
    if plain in _NAMED:
        return [str(base + _NAMED.index(plain) + (60 if plain != name else 0))]
    try:
        red, green, blue = (int(name[at : at + 2], 16) for at in (0, 2, 4))
    except ValueError:
        return []
    return [str(base + 8), "2", str(red), str(green), str(blue)]
