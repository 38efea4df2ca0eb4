"""Managed processes and terminals, as a client asks for them.

All of it goes through the supervisor but the live terminal itself: that is a line of the client's own to
the holder's socket (`TerminalLine`), so that it goes on when the supervisor is replaced.
"""

from __future__ import annotations

import os
import signal as signals
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime import places
from kernel_runtime.client.connection import ControlLine
from kernel_runtime.errors import NoSuchProcess, SpawnFailed, StillRunning
from kernel_runtime.frames import JSON, RAW, BadFrame, Unpacker, pack

_SPAWN = 60.0
_WAIT = 30.0


class Spawned(Struct, frozen=True, kw_only=True):
    """A process that runs, and is in the journal."""

    process_id: str
    pid: int


class Cursor(Struct, frozen=True, kw_only=True):
    row: int
    col: int
    hidden: bool = False


class Screen(Struct, frozen=True, kw_only=True):
    """What is on a terminal now, or was when its process ended."""

    process_id: str
    lines: list[str]
    cursor: Cursor
    rows: int
    cols: int
    since: str
    """what it is made from: `start` (all that was said), `clear` (the last clearing), `cut` (less)"""
    title: str = ""

    @property
    def text(self) -> str:
        """The lines down to the last that is not empty."""
        return "\n".join(self.lines).rstrip()


class Tail(Struct, frozen=True, kw_only=True):
    """The end of a process's log."""

    process_id: str
    text: str
    bytes: int
    complete: bool
    """all that the process ever said"""
    dropped_bytes: int
    dropped_lines: int
    """what the log had no room for, before what is left of it"""
    log: str


class TerminalCalls:
    """The part of `AsyncSession` that deals with managed processes."""

    name: str
    _line: ControlLine

    async def spawn(
        self,
        argv: Sequence[str] = (),
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        interactive: bool = False,
        rows: int = 24,
        cols: int = 80,
    ) -> Spawned:
        """Start a process that belongs to the session: it ends with `stop`, and with nothing else of ours.

        It has a terminal of that size. `interactive` is a shell for people: without an `argv`, theirs. `name`
        is its name in the session; without one it is the next of p1, p2, … (t1, t2, …).

        Raises:
            SpawnFailed: no such program or directory, or one of that name lives; nothing was started.
        """
        arguments: dict[str, Any] = {
            "argv": list(argv),
            "interactive": interactive,
            "rows": rows,
            "cols": cols,
            "env": dict(env or {}),
        }
        if cwd is not None:
            arguments["cwd"] = os.fspath(cwd)
        if name is not None:
            arguments["process_id"] = name
        return msgspec.convert(await self._line.request("spawn", arguments, within=_SPAWN), Spawned)

    async def processes(self) -> list[dict[str, Any]]:
        """Managed processes: all that live, and the latest that ended with how they ended."""
        return list((await self._line.request("processes"))["processes"])

    async def type(self, process_id: str, text: str) -> None:
        r"""Type on its terminal; a line is ended by `\r`, as the Enter key does.

        Raises:
            NoSuchProcess: none of that name.
            SpawnFailed: it has ended, or has not read what was typed before.
        """
        await self._line.request("process_input", {"process_id": process_id, "text": text})

    async def type_eof(self, process_id: str) -> None:
        """End of file, as Ctrl-D at the start of a line is."""
        await self._line.request("process_input", {"process_id": process_id, "eof": True})

    async def signal(self, process_id: str, number: int = signals.SIGTERM) -> None:
        """Signal its process group; SIGINT, SIGQUIT and SIGTSTP go to the terminal's foreground group."""
        await self._line.request("process_signal", {"process_id": process_id, "signal": int(number)})

    async def tail(self, process_id: str, size: int = 1 << 16) -> Tail:
        """The last `size` bytes of what it said, 1 MiB at most."""
        reply = await self._line.request("process_tail", {"process_id": process_id, "bytes": size})
        return msgspec.convert(reply, Tail)

    async def screen(self, process_id: str) -> Screen:
        """What is on its terminal, by lines."""
        return msgspec.convert(await self._line.request("screen", {"process_id": process_id}), Screen)

    async def wait_process(self, process_id: str, timeout: float | None = None) -> dict[str, Any]:
        """Its row, once it has ended.

        Raises:
            StillRunning: the time is up; it goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = _WAIT if deadline is None else min(_WAIT, max(0.0, deadline - time.monotonic()))
            arguments = {"process_id": process_id, "timeout": wait}
            row = await self._line.request("process_wait", arguments, within=wait + 60.0)
            if row["ended"]:
                return row
            if deadline is not None and time.monotonic() >= deadline:
                raise StillRunning(
                    f"session {self.name}: process {process_id} runs after {timeout:g} s; it goes on",
                    hint=f"`krt term {self.name} {process_id}` shows it",
                    session=self.name,
                    process_id=process_id,
                )


class TerminalLine:
    """A terminal's live line, blocking: for a program that hands a person's keys on."""

    def __init__(self, session_id: str, process_id: str, name: str) -> None:
        """Meet the holder.

        Raises:
            NoSuchProcess: nobody is there: it has ended, or never was.
        """
        directory = places.socket_dir(session_id) / "processes"
        self._unpack = Unpacker()
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            # a path may be longer than an address holds: through a descriptor it is not
            at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.sock.connect(f"/proc/self/fd/{at}/{process_id}.sock")
            finally:
                os.close(at)
        except OSError as error:
            self.sock.close()
            raise NoSuchProcess(
                f"session {name}: the terminal of {process_id} cannot be reached ({error.strerror})",
                hint=f"`krt term {name} {process_id} --tail 50` prints what it said last",
                session=name,
                process_id=process_id,
            ) from error

    def ask(self, op: str, **arguments: Any) -> None:
        """Send a request; its reply comes with the rest."""
        self._send(JSON, msgspec.json.encode({"op": op, **arguments}))

    def type(self, data: bytes) -> None:
        self._send(RAW, data)

    def _send(self, kind: int, content: bytes) -> None:
        try:
            self.sock.sendall(pack(kind, content))
        except OSError as error:
            raise SpawnFailed(f"the terminal is gone: {error.strerror}", hint="`krt ps` shows why") from error

    def receive(self) -> list[bytes | dict[str, Any]] | None:
        """What came: output as bytes, everything else as documents; None when the holder has gone."""
        try:
            data = self.sock.recv(1 << 16)
            frames = self._unpack.feed(data)
        except (OSError, BadFrame):
            return None
        if not data:
            return None
        return [content if kind == RAW else msgspec.json.decode(content) for kind, content in frames]

    def close(self) -> None:
        self.sock.close()
