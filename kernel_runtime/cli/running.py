"""Be at an execution: stream it, answer for it, interrupt it, and leave it running when told to.

Ctrl-C is handled in a signal handler that starts an `interrupt` in the client's own loop and lets
the streaming go on: so it works while this process is blocked in a write or a prompt, and what the
cell still says is seen. When the ladder is climbed and the cell runs on, the next Ctrl-C leaves.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kernel_runtime.cli.frame import BLOCKED, OUTCOME_STATUS, STILL_RUNNING
from kernel_runtime.cli.printing import Printer, write
from kernel_runtime.cli.report import clean, note
from kernel_runtime.client.blocking import Session
from kernel_runtime.client.results import Interrupted
from kernel_runtime.errors import KernelRuntimeError, NotBlocked
from kernel_runtime.model.execution import Execution as Row

_WATCH = 0.3
"""seconds between looks at whether somebody else has answered, while a person types"""


class Left(Exception):
    """The person leaves; the execution goes on."""


class Watch:
    """At one execution of a session, until it is done or this client leaves it."""

    def __init__(
        self,
        session: Session,
        execution_id: str,
        *,
        after: int,
        deadline: float | None = None,
        quiet: bool = False,
        interrupts: bool = True,
    ) -> None:
        self.session = session
        self.execution_id = execution_id
        self.after = after
        self.deadline = deadline
        self.printer = None if quiet else Printer()
        self._interrupts = interrupts
        self._can_answer = sys.stdin.isatty() and sys.stderr.isatty()
        self._interrupt: Future[Interrupted] | None = None
        self._exhausted = False

    def row(self) -> Row:
        """The execution as the journal has it now."""
        return self.session.peek(self.execution_id)

    def to_end(self) -> int:
        """Stream until it ends; the exit status. `self.row()` then tells more."""
        try:
            with self._interrupting():
                return self._stream()
        except Left:
            self._say_left("left")
            return STILL_RUNNING

    def _stream(self) -> int:
        row = self.row()
        if row.status == "queued":
            self._say_queued(row)
        while True:
            left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            asked = False
            for batch in self.session.follow_batches(
                self.after, until=self.execution_id, only=True, timeout=left
            ):
                for entry in batch:
                    if self.printer is not None:
                        self.printer.entry(entry)
                    asked = entry.kind == "InputRequested" or (asked and entry.kind == "OutputRecorded")
                self.after = batch[-1].seq
                if asked:
                    break
            row = self.row()
            if row.status == "done":
                if self.printer is not None:
                    self.printer.end()
                return self._ended(row)
            if row.status == "blocked":
                if (status := self._blocked(row)) is not None:
                    return status
            elif not asked:
                self._say_left("the time is up")
                return STILL_RUNNING

    def _ended(self, row: Row) -> int:
        if self.printer is not None and row.outcome not in ("ok", "error"):
            detail = ", ".join(f"{k} {v}" for k, v in row.evidence.items() if isinstance(v, str | int))
            note(f"[krt: {row.outcome}{f' ({detail})' if detail else ''}]")
        return OUTCOME_STATUS.get(row.outcome or "unknown", 5)

    # blocked on input

    def _blocked(self, row: Row) -> int | None:
        """Ask the person; an exit status when there is none."""
        blocked = row.blocked or {}
        prompt, password = str(blocked.get("prompt") or ""), str(blocked.get("on")).endswith("password")
        name = self.session.name
        if not self._can_answer:
            if self.printer is not None:
                self.printer.end()
                note(f"[krt: session {name} is blocked: execution {self.execution_id} asks {prompt!r}]")
                note(
                    f"  next: `krt answer {name} TEXT` (or --eof), then `krt wait {name} {self.execution_id}`"
                )
            return BLOCKED
        answer = ask(prompt, hidden=password, still=lambda: self.row().status == "blocked")
        if answer is None:
            return None
        try:
            if answer == "":
                self.session.answer(eof=True, execution_id=self.execution_id)
            else:
                self.session.answer(answer.removesuffix("\n"), execution_id=self.execution_id)
        except NotBlocked as late:
            note(f"[krt: {late.message}]")
        return None

    # interrupting

    @contextmanager
    def _interrupting(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._on_sigint)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_sigint(self, _signal: int, _frame: FrameType | None) -> None:
        if self._exhausted or not self._interrupts:
            raise Left
        if self._interrupt is not None and not self._interrupt.done():
            os.write(2, b"\n[krt: still interrupting]\n")
            return
        self._interrupt = asyncio.run_coroutine_threadsafe(self._climb(), self.session.loop)
        self._interrupt.add_done_callback(self._interrupted)

    async def _climb(self) -> Interrupted:
        # this one only: what runs may be somebody else's, and while it is queued it is taken back
        return await self.session.coroutines.interrupt(self.execution_id)

    def _interrupted(self, done: Future[Interrupted]) -> None:
        """Say what the ladder reached. Runs in the client's thread."""
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, KernelRuntimeError):
            self._exhausted = True
            note(f"[krt: {error.message}]\n  next: Ctrl-C again leaves it running")
        elif error is not None:
            self._exhausted = True
            note(f"[krt: the interrupt failed: {error!r}]\n  next: Ctrl-C again leaves it running")
        elif not (result := done.result()).ended:
            self._exhausted = True
            note(f"[krt: the interrupt reached {result.reached}, and the execution has not ended]")
            note(f"  next: {result.offer or 'wait'}; Ctrl-C again leaves it running")

    # leaving

    def _say_queued(self, row: Row) -> None:
        if self.printer is None:
            return
        running = self.session.running()
        if running is not None and running.execution_id != row.execution_id:
            note(
                f"[krt: queued; {running.principal} is running {running.execution_id} "
                f"({running.status}) in session {self.session.name}]"
            )

    def _say_left(self, why: str) -> None:
        if self.printer is None:
            return
        self.printer.end()
        name = self.session.name
        note(
            f"[krt: {why}; execution {self.execution_id} goes on in session {name}]\n"
            f"  next: `krt wait {name} {self.execution_id}`, or `krt interrupt {name}`"
        )


def ask(prompt: str, *, hidden: bool, still: Callable[[], bool]) -> str | None:
    """A line from the person at the terminal, with its newline; "" at end of file.

    None when somebody else answered meanwhile, or the question was withdrawn.
    """
    with _echo(0, on=not hidden):
        write(2, clean(prompt))  # what is typed is echoed then and there, so the echo is off by now
        while not select.select([0], [], [], _WATCH)[0]:
            if not still():
                write(2, "\n[krt: no longer asked]\n")
                return None
        line = os.read(0, 65536)
        while line and not line.endswith(b"\n"):
            more = os.read(0, 65536)
            if not more:
                break
            line += more
    if hidden:
        write(2, "\n")
    return line.decode("utf-8", "replace")


@contextmanager
def _echo(fd: int, *, on: bool) -> Iterator[None]:
    if on:
        yield
        return
    before: list[Any] = termios.tcgetattr(fd)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
