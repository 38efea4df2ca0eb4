# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc,assignment,override"
"""sys.stdout and sys.stderr, and the IOPub "socket": everything goes into the outbox, now.

The caller's thread does the writing, so a message that `print` or `display` returned from is in
memory that outlives the process. Nothing is buffered, and `flush` has nothing to do.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from io import TextIOBase
from typing import Any

from ipykernel.iostream import IOPubThread, OutStream

from kernel_runtime.kernel.attribution import ParentHeader, current
from kernel_runtime.kernel.capture import FdCapture
from kernel_runtime.kernel.outbox import OutboxWriter

_FDS = {"stdout": 1, "stderr": 2}


class OutboxThread(IOPubThread):
    """Takes what ipykernel wants published. The thread itself serves only fork children's displays."""

    def __init__(self, socket: Any, outbox: OutboxWriter, session: Any) -> None:
        self.outbox = outbox
        super().__init__(socket, pipe=True, session=session)

    async def _run_event_pipe_gc(self) -> None:
        """Nothing schedules across threads here, so there is nothing to collect every ten seconds."""

    def schedule(self, f: Callable[[], object]) -> None:
        f()

    def send_multipart(self, msg: list[Any], *args: Any, **kwargs: Any) -> None:
        if self.outbox.is_child:
            self._really_send(msg, *args, **kwargs)
        else:
            self.outbox.message("iopub", msg)


class OutboxStream(ParentHeader, OutStream):
    """A text stream into the outbox. In a fork child it writes to the file descriptor instead.

    Looks like ipykernel's OutStream to programs that look (attributes, hooks, parent_header), and
    shares none of its buffering.
    """

    def __init__(
        self, session: Any, pub_thread: OutboxThread, name: str, *, capture: FdCapture, **_: Any
    ) -> None:
        TextIOBase.__init__(self)
        self.session = session
        self.pub_thread: OutboxThread | None = pub_thread
        self.name = name
        self.topic = b"stream." + name.encode()
        self.echo = None
        self._fd = _FDS[name]
        self._isatty = False
        self._should_watch = False
        self._exc = None
        self._original_stdstream_copy: int | None = None
        self._local = threading.local()
        self._outbox = pub_thread.outbox
        self._put = pub_thread.outbox.stream
        self._capture = capture
        self._hooked = False

    @property
    def errors(self) -> str:
        return "backslashreplace"

    def write(self, string: str) -> int:
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        if self.pub_thread is None:
            raise ValueError("I/O operation on closed file")
        if self._outbox.is_child:
            _write_all(self._fd, str.encode(string, "utf-8", "backslashreplace"))
            return len(string)
        if self._capture.has_children:
            self._capture.catch_up()
        if self._hooked and self._hooks:
            self._write_hooked(string)
        else:
            self._put(self.name, current.get().raw, string)
        return len(string)

    def writelines(self, sequence: Iterable[str]) -> None:
        for string in sequence:
            self.write(string)

    def flush(self) -> None:
        """Nothing is waiting."""

    def register_hook(self, hook: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Have this thread's messages pass through `hook`, which may change or take them."""
        self._hooked = True
        super().register_hook(hook)

    def _write_hooked(self, string: str) -> None:
        text = str.encode(string, "utf-8", "backslashreplace").decode()
        message = self.session.msg("stream", {"name": self.name, "text": text}, parent=self.parent_header)
        for hook in self._hooks:
            message = hook(message)
            if message is None:
                return
        self.session.send(self.pub_thread, message, ident=self.topic)

    def _flush(self) -> None:
        """Called by ipykernel's own classes; nothing is waiting."""

    def _is_master_process(self) -> bool:
        return not self._outbox.is_child

    def close(self) -> None:
        self.pub_thread = None

    def __del__(self) -> None:
        """A stream that a program drops is not closed: others may hold its name."""


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def plain_stderr(text: str, fd: int) -> None:
    """Text for the log, whatever state sys.stderr is in."""
    try:
        _write_all(fd, text.encode("utf-8", "backslashreplace"))
    except OSError:
        sys.exc_info()  # the log's own disk is full: there is nowhere left to say so
