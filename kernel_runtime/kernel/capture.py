"""File descriptors 1 and 2, per execution: what a child process writes belongs to its starter.

Each execution gets fresh pipes on 1 and 2. A child keeps the pipe it was born with, so what it
writes a day later is still known to be that execution's. One thread reads all pipes that anybody
still holds. The kernel's real 1 and 2 (its log) live on as `log_fds`, for crashes and tracebacks.

What Python writes itself takes another way, and what a child wrote before that is put before it: whoever
writes calls `catch_up` first. So `subprocess.run(...); print(...)` comes out in the order in which it
happened, each time, which stock ipykernel does not promise and a replay relies on.

Beyond MAX_PIPES pairs in use, executions share one whose output belongs to nobody: unowned is
true, another's would not be. What is still in a pipe when the kernel dies is lost with it.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import selectors
import termios
import threading

from kernel_runtime.kernel.outbox import OutboxWriter

MAX_PIPES = 64
_CHUNK = 1 << 16
_DRAIN_READS = 4
"""a pipe holds 64 KiB, so one read gets what was there"""
_PATIENCE = 0.5
"""seconds that a print waits for what is to stand before it"""
_NAMES = ("stdout", "stderr")
_decoder = codecs.getincrementaldecoder("utf-8")


class _Pipe:
    """The read end of one pipe, and whose it is."""

    __slots__ = ("decoder", "fd", "lock", "name", "parent", "reads")

    def __init__(self, fd: int, name: str, parent: bytes) -> None:
        self.fd = fd
        self.name = name
        self.parent = parent
        self.decoder = _decoder("backslashreplace")
        self.lock = threading.RLock()  # a signal handler may print in the middle of a drain
        self.reads = 0


class FdCapture:
    """Owns fds 1 and 2 of this process from `start` to `stop`."""

    def __init__(self, outbox: OutboxWriter) -> None:
        self.outbox = outbox
        self.log_fds = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (1, 2))
        self._selector = selectors.DefaultSelector()
        self._current: list[_Pipe] = []
        self._shared: list[tuple[_Pipe, int]] = []
        self._count = 0
        self._fds: set[int] = set()
        self._thread = threading.Thread(target=self._watch, name="krt-fd-capture", daemon=True)
        self._running = False
        self._news = threading.Condition()
        """a pipe was read"""
        self.has_children = False
        """whether a process was started since `begin`; until then only native code writes there"""

    def start(self) -> None:
        """Take the descriptors over; output belongs to nobody until the first execution."""
        self._running = True
        self.begin(b"{}")
        self._thread.start()

    def begin(self, parent: bytes) -> None:
        """From here on, what is written to fds 1 and 2 belongs to the request with this header."""
        self.has_children = False
        if self._count >= 2 * MAX_PIPES:
            self._begin_shared()
            return
        pipes = []
        for fd, name in enumerate(_NAMES, 1):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            os.dup2(write, fd)  # dup2 makes the copy inheritable; the last one's writer goes here
            os.close(write)
            pipe = _Pipe(read, name, parent)
            pipes.append(pipe)
            self._count += 1
            self._fds.add(read)
            self._selector.register(read, selectors.EVENT_READ, pipe)
        self._current = pipes

    def fds(self) -> frozenset[int]:
        """Our ends of the pipes that are open now."""
        return frozenset(self._fds)

    def started(self) -> None:
        """A process is about to be started."""
        self.has_children = True

    def catch_up(self) -> None:
        """Have what was written to fds 1 and 2 so far in the outbox; in mid-cell, from any thread.

        An interrupt, or a signal handler that raises, may come at any time here, and what was read would be
        lost. So it is the watching thread that reads, which gets no signals; this one waits for it.
        """
        # held: a signal handler prints in the middle of a print, for whose end the watching thread may wait
        if self.outbox.is_child or self.outbox.is_held or not self._running:
            return
        for pipe in self._current:
            with pipe.lock:
                seen, waits = pipe.reads, pipe.fd >= 0 and _holds_something(pipe.fd)
            if waits:
                with self._news:
                    self._news.wait_for(lambda pipe=pipe, seen=seen: pipe.reads != seen, _PATIENCE)  # type: ignore[misc]

    def drain(self) -> None:
        """The same at the end of a cell, when nothing comes in between.

        The cell's own bytes are complete then: half a character is no character.
        """
        for pipe in self._current:
            with pipe.lock:
                for _ in range(_DRAIN_READS):  # a child may write faster than we read, for ever
                    if pipe.fd < 0:
                        break
                    if not self._read(pipe):
                        self._put(pipe, b"", final=True)
                        break

    def stop(self) -> None:
        """Give the descriptors back to the log."""
        if not self._running:
            return
        self._running = False
        self.drain()
        for fd, log in enumerate(self.log_fds, 1):
            os.dup2(log, fd)

    def _begin_shared(self) -> None:
        if not self._shared:
            for name in _NAMES:
                read, write = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(read, False)
                pipe = _Pipe(read, name, b"{}")
                self._shared.append((pipe, write))
                self._fds |= {read, write}
                self._selector.register(read, selectors.EVENT_READ, pipe)
        for fd, (_, write) in enumerate(self._shared, 1):
            os.dup2(write, fd)
        self._current = [pipe for pipe, _ in self._shared]

    def _watch(self) -> None:
        while self._running:
            for key, _ in self._selector.select():
                pipe: _Pipe = key.data
                with pipe.lock:
                    if pipe.fd >= 0 and self._read(pipe) is None:
                        self._close(pipe)
                    pipe.reads += 1
                with self._news:
                    self._news.notify_all()

    def _read(self, pipe: _Pipe) -> bool | None:
        """One chunk into the outbox: True, or False when there is none now, None at the end."""
        try:
            data = os.read(pipe.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            return None
        self._put(pipe, data)
        return True

    def _put(self, pipe: _Pipe, data: bytes, *, final: bool = False) -> None:
        text = pipe.decoder.decode(data, final)
        if final:
            pipe.decoder.reset()
        if text:
            self.outbox.stream(pipe.name, pipe.parent, text)

    def _close(self, pipe: _Pipe) -> None:
        """Nobody holds the other end any more."""
        self._put(pipe, b"", final=True)
        self._selector.unregister(pipe.fd)
        self._fds.discard(pipe.fd)  # before its number can be another's
        os.close(pipe.fd)
        pipe.fd = -1
        self._count -= 1


def _holds_something(fd: int) -> bool:
    return fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0") != b"\0\0\0\0"
