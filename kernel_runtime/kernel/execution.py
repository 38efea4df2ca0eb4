"""Running one execute_request to exactly one reply, whatever the cell and whatever the signals.

SIGINT has one handler for the life of the process. It raises KeyboardInterrupt only while the
cell's own code is what an interrupt is meant for (`interruptible`); a signal a moment later is
noted and changes nothing, so the reply and the idle after it always come. A cell that awaits is
cancelled through the loop's own wake-up, so it ends at once and not with the next message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

_IMPATIENCE = 0.5


class Execution:
    """One execute_request on the main thread."""

    __slots__ = ("asked_at", "interruptible", "missed", "msg_id", "sigint_ns", "task")

    def __init__(self, msg_id: str) -> None:
        self.msg_id = msg_id
        self.interruptible = False
        self.missed = 0
        """SIGINTs that came while it was not"""
        self.sigint_ns: int | None = None
        """CLOCK_MONOTONIC of the first SIGINT that reached this process while this ran"""
        self.task: asyncio.Task[Any] | None = None
        self.asked_at = 0.0


class Interrupts:
    """The process's SIGINT handler and what it knows."""

    def __init__(self) -> None:
        self.execution: Execution | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ending = threading.Lock()
        """held while an execution is let go of, and by whoever signals one and must hit no later one"""
        self._handler = self._on_sigint

    def install(self) -> None:
        """Take SIGINT (again): a cell may have put its own handler there, for itself.

        Also unblocks it, since a mask is inherited from whoever started us.
        """
        signal.signal(signal.SIGINT, self._handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Work of ours in an execution that no interrupt may cut in two: one that comes is raised after."""
        execution = self.execution
        if execution is None or not execution.interruptible:
            yield
            return
        execution.interruptible = False
        before = execution.missed
        yield
        execution.interruptible = True
        if execution.missed != before:
            raise KeyboardInterrupt

    def let_go(self) -> None:
        """Nothing is executed any more; a signal that is on its way to this execution comes first."""
        with self.ending:
            self.execution = None

    def note(self) -> None:
        """A SIGINT went to this process, though the handler may not be what got it."""
        execution = self.execution
        if execution is not None and execution.sigint_ns is None:
            execution.sigint_ns = time.monotonic_ns()

    @classmethod
    def hide(cls, traceback: TracebackType | None) -> None:
        """Take our handler's frame off the end of a traceback: it is the cell that was interrupted."""
        while traceback is not None and traceback.tb_next is not None:
            if traceback.tb_next.tb_frame.f_code is cls._on_sigint.__code__:
                traceback.tb_next = None
            traceback = traceback.tb_next

    def _on_sigint(self, signum: int, frame: Any) -> None:
        execution = self.execution
        if execution is None:
            return
        self.note()
        if not execution.interruptible:
            execution.missed += 1
            return
        task, loop = execution.task, self.loop
        if task is None or loop is None or task.done():
            raise KeyboardInterrupt
        running = asyncio.current_task(loop)
        if running is task:
            raise KeyboardInterrupt
        now = time.monotonic()
        if running is not None and execution.asked_at and now - execution.asked_at > _IMPATIENCE:
            raise KeyboardInterrupt  # another task holds the loop, so a cancel would never be seen
        execution.asked_at = execution.asked_at or now
        # Not call_soon: the loop may be asleep in select, which restarts after a signal.
        loop.call_soon_threadsafe(task.cancel)


def watch_os_system(interrupts: Interrupts) -> None:
    """See a SIGINT that ended os.system's child: system(3) ignores it in this process meanwhile."""
    system = os.system

    def watched(command: Any) -> int:
        status = system(command)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT:
            interrupts.note()
        return status

    watched.__name__, watched.__doc__ = "system", system.__doc__
    os.system = watched


def leave_if_child(parent_pid: int, error: BaseException | None) -> None:
    """End a fork child that fell through the end of its cell, before it reaches our sockets.

    Its exit status is what a script's would be: 0, 1 after an exception, or what sys.exit said.
    """
    if os.getpid() == parent_pid:
        return
    status = 0 if error is None else 1
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    os._exit(status & 0xFF)
