r"""A person's terminal put through to one of the session's: raw keys there, raw output here.

The keys: Ctrl-\ then d detaches, Ctrl-\ twice sends one Ctrl-\, and Ctrl-\ before any other key sends
both. Whatever ends this program, SIGKILL apart, gives the person's terminal back as it was.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kernel_runtime.client.terminals import TerminalLine

PREFIX = b"\x1c"
DETACH = b"d"
_UNDO = "\x1b[0m\x1b[r\x1b[?25h\x1b[?1l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l"
"""what a full-screen program may have left switched on"""


class Attachment:
    """Until the person detaches or the process ends."""

    def __init__(self, session_id: str, name: str, process_id: str, *, read_only: bool) -> None:
        self._line = TerminalLine(session_id, process_id, name)
        self._process_id = process_id
        self._read_only = read_only
        self._prefixed = False
        self._alternate = False
        """our own terminal shows its second screen"""

    def run(self) -> dict[str, Any] | None:
        """How it ended; None when the person detached."""
        wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        poller = select.poll()
        for fd in (0, self._line.sock.fileno(), wake):
            poller.register(fd, select.POLLIN)
        try:
            with self._raw(), self._signals():
                if not self._read_only:
                    self._resize()
                self._line.ask("subscribe")
                while True:
                    for fd, _ in poller.poll():
                        if fd == wake:
                            if self._woken(os.read(wake, 4096)):
                                return None
                        elif fd == 0:
                            if self._keys(os.read(0, 4096)):
                                return None
                        elif (ended := self._output()) is not None:
                            return ended
        finally:
            self._line.close()
            os.close(wake)
            os.close(self._waker)

    def _output(self) -> dict[str, Any] | None:
        received = self._line.receive()
        if received is None:
            return {"evidence": {"found": f"the holder of {self._process_id} is gone"}}
        for piece in received:
            if isinstance(piece, bytes):
                on, off = piece.rfind(b"\x1b[?1049h"), piece.rfind(b"\x1b[?1049l")
                if on != off:
                    self._alternate = on > off
                _write(piece)
            elif piece.get("event") == "ended":
                return piece
            elif piece.get("ended"):
                return dict(piece["ended"])
        return None

    def _keys(self, data: bytes) -> bool:
        """Hand keys on; True when the person detaches."""
        if not data:
            return True
        out = bytearray()
        for at in range(len(data)):
            key = data[at : at + 1]
            if self._prefixed:
                self._prefixed = False
                if key == DETACH:
                    self._type(bytes(out))
                    return True
                out += PREFIX if key == PREFIX else PREFIX + key
            elif key == PREFIX:
                self._prefixed = True
            else:
                out += key
        self._type(bytes(out))
        return False

    def _type(self, data: bytes) -> None:
        if data and not self._read_only:
            self._line.type(data)

    def _resize(self) -> None:
        size = os.get_terminal_size(0)
        if size.lines and size.columns:
            self._line.ask("resize", rows=size.lines, cols=size.columns)

    def _woken(self, numbers: bytes) -> bool:
        """After signals; True when one of them says to leave."""
        if signal.SIGWINCH in numbers and not self._read_only:
            self._resize()
        return any(number in numbers for number in (signal.SIGTERM, signal.SIGHUP))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handled(_number: int, _frame: FrameType | None) -> None:
            return

        before = {
            number: signal.signal(number, handled)
            for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)
        }
        waker = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(waker)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _raw(self) -> Iterator[None]:
        before = termios.tcgetattr(0)
        tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead is not thrown away
        try:
            yield
        finally:
            # told to leave a second screen that it is not on, a terminal moves its cursor
            _write((_UNDO + ("\x1b[?1049l" if self._alternate else "") + "\r\n").encode())
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
