"""Sees that a process waits for the kernel's terminal, and puts answers there.

A cell that ends soon is never looked at; a longer one is looked at after FIRST seconds and then ever more
seldom. While no cell runs nobody looks. A process is held against a cell only if the cell started it, as far
as anybody can tell: what an earlier cell left in the background does not block this one.
Not promised: that a process which stops reading between two looks is seen; that a background process does
not take what was meant for another one.
"""

from __future__ import annotations

import logging
import os
import shlex
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_runtime import process
from kernel_runtime.core.blocked import on_terminal
from kernel_runtime.core.lifecycle import Running, State
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.masking import mask_argv
from kernel_runtime.errors import EnvironmentFault
from kernel_runtime.supervisor.launch import STARTED_BY, KernelRecord
from kernel_runtime.supervisor.reactor import Timer
from kernel_runtime.supervisor.tty import readers, screen
from kernel_runtime.supervisor.tty.readers import Reader
from kernel_runtime.supervisor.world import procfs
from kernel_runtime.testing.failpoints import reach

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

log = logging.getLogger("kernel_runtime.supervisor")

FIRST = 0.25
"""seconds from a cell's start to the first look"""
SELDOMER = 1.5
LONGEST = 2.0
"""seconds between looks at most"""
SOON = 0.05
"""seconds until what a reader has just shown is in the terminal's log, or the cell's output in the journal"""
TAKEN_WITHIN = 10.0
"""seconds after which a read that an answer did not end is a question again: the answer was not enough"""
_END_OF_FILE = b"\x04"


class TerminalWatch:
    """Watches the terminal while a cell runs."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._timer: Timer | None = None
        self._pause = FIRST
        self._watched: str | None = None
        """execution"""
        self._since = 0.0
        self._began = 0
        """the same, wall clock, ns: for comparison with a file's"""
        self.unseen: tuple[int, ...] = ()
        """processes of the last look that have the terminal, sleep, and may not be looked into"""
        self._told: str | None = None
        """the execution whose client was told on stderr, once"""
        self._listened: set[Reader] = set()
        """who listened at the last look"""
        self._silent: int | None = None
        """a process that reads, and had shown nothing at the last look"""
        self._asked: int | None = None
        """the process that was asked for last"""
        self._answered: tuple[int, int | None, float] | None = None
        """the process that was answered last, how often it had read by then, and when"""
        supervisor.shell.performers[m.TypeInput] = self._type
        supervisor.shell.on_change.append(self._changed)

    # -- when to look

    def _changed(self, _before: State) -> None:
        running = self._s.shell.state.running
        if running is None:
            self._watched = None
            self.unseen = ()
            return
        if running.blocked is not None and on_terminal(running.blocked):
            # also what another supervisor has asked
            self._asked = running.blocked["pid"]
        if running.execution.execution_id == self._watched:
            return
        self._watched = running.execution.execution_id
        self._since = time.monotonic()
        # a file's time is that of the last clock tick
        self._began = time.time_ns() - 20_000_000
        self._pause = FIRST
        self._listened = set()
        self._silent = self._answered = None
        self._tidy()
        # a timer of a cell that has ended stays: short cells cost none
        if self._timer is None:
            self._timer = self._s.reactor.after(FIRST, self._due)

    def _tidy(self) -> None:
        """A cell finds the terminal as it should be, though a program before was killed in its own mode."""
        record = self._s.keeper.record
        if record is None or record.terminal is None or record.foster is None:
            return
        try:
            if screen.settings(record.terminal).sane:
                return
            found = readers.look(record.terminal, kernel=record.process.pid, foster=record.foster.pid)
            if found.others == 0 and process.is_alive(record.foster):
                screen.make_sane(record.terminal)
        except OSError as error:
            log.info("the kernel's terminal cannot be looked at: %s", error)

    def _due(self) -> None:
        self._timer = None
        running = self._s.shell.state.running
        if running is None:
            return
        left = self._since + FIRST - time.monotonic()
        if left > 0:
            self._timer = self._s.reactor.after(left, self._due)
            return
        soon = False
        try:
            soon = self._look(running)
        except EnvironmentFault as error:
            log.warning("what reads the terminal waits for the journal: %s", error.message)
        except OSError as error:  # the terminal went while we looked: so did the kernel, or it is about to
            log.info("the kernel's terminal cannot be looked at: %s", error)
        self._pause = min(self._pause * SELDOMER, LONGEST)
        self._timer = self._s.reactor.after(SOON if soon else self._pause, self._due)

    # -- what is seen

    def _look(self, running: Running) -> bool:
        """Whether to look again soon."""
        record = self._s.keeper.record
        # only while its holder lives is that path this terminal
        if record is None or record.terminal is None or record.foster is None:
            return False
        if not process.is_alive(record.foster) or self._s.shell.state.kernel != "up":
            return False
        if running.blocked is not None and not on_terminal(running.blocked):
            return False  # the cell itself asks
        seen = readers.look(record.terminal, kernel=record.process.pid, foster=record.foster.pid)
        settings = screen.settings(record.terminal)
        reader = self._reader_of(running, record, seen.readers, settings)
        if reader is None:
            if running.blocked is not None:
                self._nobody(running)
            return False
        soon = self._meet(running, record, reader, settings)
        reach("after-reader")
        return soon

    def _meet(
        self, running: Running, record: KernelRecord, reader: Reader, settings: screen.Settings
    ) -> bool:
        """Ask for a reader that is a new one; True if its prompt may be on its way."""
        if running.blocked is not None and running.blocked["pid"] == reader.pid:
            return False
        if self._has_yet_to_read(reader.pid):
            return False
        shown = screen.prompt(record.screen, canonical=settings.canonical, since=self._began)
        if not shown and self._silent != reader.pid:
            # a question is told once: its prompt is given the time to get here
            self._silent = reader.pid
            return True
        self._silent = None
        self._ask(running, reader, shown or self._last_output(running.execution.execution_id), settings)
        return False

    def _has_yet_to_read(self, pid: int) -> bool:
        """It was answered, and is in the same read still: the answer is on its way to it."""
        if self._answered is None:
            return False
        answered, reads, at = self._answered
        late = time.monotonic() - at > TAKEN_WITHIN
        return pid == answered and reads is not None and readers.reads(pid) == reads and not late

    def _nobody(self, running: Running) -> None:
        assert running.blocked is not None
        gone = procfs.stat(running.blocked["pid"]) is None
        reason = "the process that read has ended" if gone else "the process reads no longer"
        self._s.shell.apply(m.InputGone(execution_id=running.execution.execution_id, reason=reason))

    def _ask(self, running: Running, reader: Reader, prompt: str, settings: screen.Settings) -> None:
        command = mask_argv(procfs.command(reader.pid))
        event = m.InputAsked(
            msg_id=running.execution.msg_id,
            prompt=prompt,
            password=settings.canonical and not settings.echo,
            since=datetime.now(UTC).isoformat(),
            on="terminal",
            pid=reader.pid,
            command=tuple(command),
            echo=settings.echo,
        )
        self._s.shell.apply(event)
        self._tell(running.execution.execution_id, event, by_lines=settings.canonical)

    def _tell(self, execution_id: str, asked: m.InputAsked, *, by_lines: bool) -> None:
        """Ask the Jupyter client whose cell it is, if it lets itself be asked; else nobody can answer for it.

        Clients of ours see the session blocked. One that allows no stdin said that there is none: what
        reads gets the end of it, as it would from a kernel without a terminal.
        """
        queued, request = self._s.request(execution_id)
        by = f"{shlex.join(asked.command)[:200] or 'a process'} (pid {asked.pid})"
        if not queued.allow_stdin and by_lines:
            event = m.Answered(token=None, principal="system", text=None, eof=True, execution_id=execution_id)
            self._s.shell.apply(event)
            line = f"{by} reads the terminal; the request allows no input: it gets end of file"
        elif queued.allow_stdin and by_lines:
            if request is not None:
                content = {"prompt": asked.prompt, "password": not asked.echo}
                door = self._s.door
                frames = door.signer.build(
                    "input_request", content, session=door.session, parent=request.frames[1]
                )
                door.send("stdin", request.identities, frames)
            return
        else:
            line = f"{by} waits for keys on the kernel's terminal: `krt answer {self._s.identity.name} KEYS`"
        if request is not None and execution_id != self._told:
            self._told = execution_id
            content = {"name": "stderr", "text": f"\n[kernel_runtime: {line}]\n"}
            self._s.door.announce("stream", content, request.frames[1])

    def _reader_of(
        self,
        running: Running,
        record: KernelRecord,
        found: tuple[Reader, ...],
        settings: screen.Settings,
    ) -> Reader | None:
        """The process that holds this cell up."""
        self.unseen = tuple(reader.pid for reader in found if reader.how == "hidden")
        before, self._listened = self._listened, set()
        for reader in found:
            if not self._started_by(reader.pid, running, record):
                continue
            if reader.how == "reads":
                return reader
            if reader.how == "hidden":
                # nobody may look into it (sudo); but who turned the echo off and sleeps asks for a secret
                if settings.canonical and not settings.echo:
                    return reader
                continue
            # one look says little of a listener: it may have looked up from its work for a moment
            self._listened.add(reader)
            if reader in before:
                return reader
        return None

    def _started_by(self, pid: int, running: Running, record: KernelRecord) -> bool:
        """Whether this execution started it; what does not say so is its parent's."""
        for _ in range(64):
            if pid == record.process.pid or record.outbox is None:
                return True  # no other kernel tells its children what they belong to
            by = (process.environment_of(pid) or {}).get(STARTED_BY)
            if by is not None:
                return by == running.execution.msg_id
            stat = procfs.stat(pid)
            if stat is None:
                return False
            if stat.ppid in (0, 1, os.getpid()):
                return True  # it left the tree, and nobody knows
            pid = stat.ppid
        return False

    def _last_output(self, execution_id: str) -> str:
        """The last line that the cell printed: `read -p` in bash prompts on stderr."""
        entries = self._s.shell.reader.entries(execution_id=execution_id, kinds=["OutputRecorded"], last=1)
        for entry in entries:
            for raw in reversed(getattr(entry.fact, "messages", [])):
                message: dict[str, Any] = msgspec.json.decode(raw)
                if message.get("type") == "stream":
                    return screen.last_line(str(message["content"].get("text", "")))
        return ""

    # -- answering

    def _type(self, command: m.TypeInput) -> None:
        record = self._s.keeper.record
        if record is None or record.terminal is None:
            return
        try:
            canonical = screen.settings(record.terminal).canonical
            if command.eof:
                data = _END_OF_FILE
            else:
                # where input comes by keys, what is given is what is typed; and Enter is a key
                text = (command.text or "").encode("utf-8", "surrogateescape")
                data = text + b"\n" if canonical else text or b"\r"
            if self._asked is not None:
                self._answered = (self._asked, readers.reads(self._asked), time.monotonic())
            fd = os.open(record.keys, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
        except OSError as error:  # its holder is gone, and so will be the kernel
            log.warning("nothing could be typed on the kernel's terminal: %s", error)
        self._pause = FIRST
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._s.reactor.after(FIRST, self._due)
