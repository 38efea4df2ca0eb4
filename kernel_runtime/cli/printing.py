"""A cell's outputs on this process's stdout and stderr, as they come.

On a terminal they go through as they are, and `clear_output` and display updates are done with the
cursor. Into a pipe or a file goes what is worth reading there: a line that is overwritten with
carriage returns is written once, in its last state, and of outputs that were cleared the last ones.
Holds a bounded amount however much comes; writes are unbuffered and block with their reader.
"""

from __future__ import annotations

import os
import re
import select
import shutil

import msgspec
from msgspec import Struct

from kernel_runtime.core.outputs import missing
from kernel_runtime.core.stream_text import StreamText
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import GapRecorded, OutputRecorded

_LINE = 4096
"""letters of the present line that are kept, to redraw it"""
_HELD = 64 * 1024
"""letters held back after a clear_output before they are written after all"""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)")


class _Content(Struct):
    name: str = "stdout"
    text: str = ""
    data: dict[str, msgspec.Raw] = {}
    transient: dict[str, msgspec.Raw] = {}
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []
    wait: bool = False


class _Message(Struct):
    type: str
    content: _Content = msgspec.field(default_factory=_Content)


_decode = msgspec.json.Decoder(_Message, strict=False).decode


class Channel:
    """One of stdout and stderr."""

    def __init__(self, fd: int, *, live: bool) -> None:
        self.fd = fd
        self.live = live
        """True: a terminal, which understands the cursor"""
        self.lines = 0
        """lines written since the last clear"""
        self._line = ""
        self._drawn: StreamText | None = None
        self._held: list[str] | None = None
        self._held_size = 0

    @property
    def at_start(self) -> bool:
        return not self._line and self._drawn is None

    def write(self, text: str) -> None:
        if not text:
            return
        if self._held is not None:
            self._held.append(text)
            self._held_size += len(text)
            if self._held_size > _HELD:
                self._release()
        else:
            self._show(text)

    def clear(self) -> None:
        """Take back what can be taken back."""
        if not self.live:
            self._held, self._held_size = [], 0
            return
        up = min(self.lines, shutil.get_terminal_size().lines - 1)
        write(self.fd, f"\r\x1b[{up}A\x1b[J" if up else "\r\x1b[J")
        self._line, self.lines = "", 0

    def end(self) -> None:
        """Write what is held back."""
        self._release()
        self._finish_line("")

    def _release(self) -> None:
        if self._held is not None:
            held, self._held, self._held_size = "".join(self._held), None, 0
            self._show(held)

    def _show(self, text: str) -> None:
        if self.live:
            write(self.fd, text)
            self.lines += text.count("\n")
            self._keep(text)
            return
        if self._drawn is None and "\r" not in text:
            write(self.fd, text)
            self._keep(text)
            return
        self._draw(text.replace("\r\n", "\n"))

    def _draw(self, text: str) -> None:
        """Pass whole lines on; hold back the state of one that is being overwritten."""
        plain: list[str] = []
        for piece in re.split(r"(?<=\n)", text):
            if not piece:
                continue
            if self._drawn is None and "\r" not in piece:
                plain.append(piece)
                continue
            if plain:
                self._pass("".join(plain))
                plain = []
            if self._drawn is None:
                self._drawn = StreamText()
                self._drawn.write(self._line)
            self._drawn.write(piece.rstrip("\n"))
            if piece.endswith("\n"):
                self._finish_line("\n")
        if plain:
            self._pass("".join(plain))

    def _pass(self, text: str) -> None:
        write(self.fd, text)
        self._keep(text)

    def _finish_line(self, end: str) -> None:
        if self._drawn is not None:
            text = self._drawn.text()
            self._drawn = None
            write(self.fd, ("\r" if self._line else "") + text + end)
            self._line = "" if end else text[-_LINE:]

    def _keep(self, text: str) -> None:
        last = text.rpartition("\n")
        self._line = (last[2] if last[1] else self._line + last[2])[-_LINE:]


class Printer:
    """Shows the outputs in a session's entries."""

    def __init__(self, *, out_fd: int = 1, err_fd: int = 2) -> None:
        self.out = Channel(out_fd, live=os.isatty(out_fd))
        self.err = Channel(err_fd, live=os.isatty(err_fd))
        self._clear_next = False
        self._updated: dict[str, str] = {}
        self._last_display: tuple[str, int] | None = None

    def entry(self, entry: Entry) -> None:
        """Show the outputs in one entry; others are nothing to show."""
        fact = entry.fact
        if isinstance(fact, OutputRecorded):
            for raw in fact.messages:
                self._message(raw)
        elif isinstance(fact, GapRecorded):
            self._start_line()
            self.err.write(f"[krt: {missing(fact.reason, fact.messages, fact.bytes)}]\n")

    def end(self) -> None:
        """The execution is over: show what was held back."""
        for text in self._updated.values():
            self._display(text, None)
        self._updated.clear()
        self.out.end()
        self.err.end()

    def _message(self, raw: msgspec.Raw) -> None:
        try:
            message = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.err.write("[krt: an output that cannot be shown; `krt log` has it]\n")
            return
        content = message.content
        kind = message.type
        if kind == "clear_output":
            self._clear_next = content.wait
            if not content.wait:
                self._clear()
            return
        if kind not in ("stream", "error", "display_data", "execute_result", "update_display_data"):
            return
        if self._clear_next:
            self._clear_next = False
            self._clear()
        if kind == "stream":
            self._last_display = None
            (self.err if content.name == "stderr" else self.out).write(content.text)
        elif kind == "error":
            self._error(content)
        elif kind == "update_display_data":
            self._update(_plain(content.data), _display_id(content))
        else:
            self._display(_plain(content.data), _display_id(content))

    def _clear(self) -> None:
        self.out.clear()
        if not self.err.live:
            self.err.clear()
        self._last_display = None

    def _start_line(self) -> None:
        if not self.out.at_start:
            self.out.write("\n")

    def _display(self, text: str, display_id: str | None) -> None:
        self._start_line()
        self.out.write(text if text.endswith("\n") else text + "\n")
        self._last_display = (display_id, text.count("\n") + 1) if display_id else None

    def _update(self, text: str, display_id: str | None) -> None:
        if display_id is None:
            return
        if self.out.live and self._last_display is not None and self._last_display[0] == display_id:
            write(self.out.fd, f"\r\x1b[{self._last_display[1]}A\x1b[J")
            self._display(text, display_id)
        else:
            self._updated[display_id] = text

    def _error(self, content: _Content) -> None:
        self._last_display = None
        self._start_line()
        text = "\n".join(content.traceback) or f"{content.ename}: {content.evalue}"
        self.err.write((text if self.err.live else _ANSI.sub("", text)) + "\n")


def _plain(data: dict[str, msgspec.Raw]) -> str:
    if (raw := data.get("text/plain")) is None:
        return f"<{', '.join(data) or 'nothing'}>"
    value = msgspec.json.decode(raw)
    return "".join(value) if isinstance(value, list) else str(value)


def _display_id(content: _Content) -> str | None:
    raw = content.transient.get("display_id")
    return None if raw is None else str(msgspec.json.decode(raw))


def write(fd: int, text: str) -> None:
    """All of a text to a file descriptor, however long that takes.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    data = memoryview(text.encode("utf-8", "backslashreplace"))
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # somebody we share it with made it non-blocking
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            poller.poll()
