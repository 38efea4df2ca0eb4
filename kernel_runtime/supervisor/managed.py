"""One managed process: who it is, how its holder is started, what is looked at before."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.errors import SpawnFailed
from kernel_runtime.model.facts import ProcessEnded, ProcessSpawned
from kernel_runtime.supervisor.holder_line import HolderLine
from kernel_runtime.supervisor.reactor import Reactor

START_TIMEOUT = 20.0
"""seconds until a holder that has not said whether its command runs has failed"""


class HolderRecord(Struct, frozen=True, kw_only=True):
    """ID.json, as the holder wrote it once its command ran."""

    process_id: str
    pid: int
    start_time: int
    boot_id: str
    holder: process.ProcessId
    argv: list[str]
    cwd: str
    interactive: bool
    principal: str
    started_at: int

    @property
    def command(self) -> process.ProcessId:
        return process.ProcessId(self.pid, self.start_time, self.boot_id)


class Managed:
    """One process of the session, alive or not."""

    def __init__(self, fact: ProcessSpawned, principal: str, started_at: int) -> None:
        self.fact = fact
        self.principal = principal
        self.started_at = started_at
        self.holder: process.ProcessId | None = None
        self.line: HolderLine | None = None
        self.ended: ProcessEnded | None = None
        self.ended_at: int | None = None
        self.signalled: dict[str, Any] = {}
        """who sent it a signal last, through us"""

    @property
    def command(self) -> process.ProcessId:
        return process.ProcessId(self.fact.pid, self.fact.start_time, self.fact.boot_id)


class Start:
    """A holder that has not yet said whether its command runs."""

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        pid: int,
        on_answer: Callable[[Mapping[str, Any] | None, HolderLine], None],
    ) -> None:
        self._on_answer = on_answer
        self._who = process.identify(pid)
        self._timer = reactor.after(START_TIMEOUT, self._too_slow)
        self._line = HolderLine(reactor, sock)
        self._line.on_event = self._done
        self._line.on_broken = lambda: self._done(None)

    def _too_slow(self) -> None:
        if self._who is not None:
            process.signal_process(self._who, signal.SIGKILL)
        self._done({"ok": False, "error": f"its holder did not answer within {START_TIMEOUT:g} s"})

    def _done(self, answer: Mapping[str, Any] | None) -> None:
        self._timer.cancel()
        self._on_answer(answer, self._line)


def program(name: str, cwd: str, path: str | None, session: str) -> str:
    """The file that will be run; whatever is wrong is said before anything is started.

    Raises:
        SpawnFailed: no such program, or no such directory.
    """
    if not Path(cwd).is_dir():
        raise SpawnFailed(
            f"session {session}: {cwd} is no directory", hint="--cwd takes one that is there", session=session
        )
    wanted = os.path.join(cwd, name) if os.sep in name else name
    found = shutil.which(wanted, path=path)
    if found is None:
        there = Path(wanted).exists()
        raise SpawnFailed(
            f"session {session}: {name}: {'it cannot be executed' if there else 'no such program'}",
            hint="a pipe or `&&` needs a shell: -- sh -c '…'" if not there else f"chmod +x {wanted}?",
            session=session,
            program=name,
        )
    return str(Path(cwd, found).absolute())
