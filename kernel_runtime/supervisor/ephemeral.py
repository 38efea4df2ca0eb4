"""A session that stands in for one Jupyter kernel: bound where a connection file says, gone with its owner.

`ephemeral.json` in the session's directory is all there is to it. `krt kernel` writes it before a
supervisor starts, and every supervisor of the session reads it, whoever started that one:

  - the front door binds what `connection_file` says, with its key and CurveZMQ keys;
  - when `owner` (the `krt kernel` process) is gone without a word, the kernel is stopped, the door is
    closed, and the supervisor lingers, holding neither lock nor port: a KernelManager that killed its
    kernel in order to restart it starts a new owner within that time, and the session goes on with
    its next incarnation; otherwise it is removed.

It does not promise to tell "killed for good" from "killed to be restarted": nobody can.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.errors import SupervisorFault
from kernel_runtime.supervisor.door import write_private
from kernel_runtime.supervisor.reactor import Reactor
from kernel_runtime.wire import BadMessage, Connection, read_connection

LINGER = 5.0
"""seconds in which a new owner may come; a KernelManager takes well under one"""

FILE = "ephemeral.json"


class Ephemeral(Struct, frozen=True, kw_only=True):
    """Whose kernel this session is, and where its door opens."""

    connection_file: str
    """absolute path"""
    owner: process.ProcessId
    arguments: list[str] = []
    """what the tool wants on the kernel's command line, after the kernelspec's own"""

    def connection(self) -> Connection:
        """What the front door has to bind.

        Raises:
            SupervisorFault: the file is gone or is no connection file.
        """
        try:
            return read_connection(Path(self.connection_file))
        except (OSError, BadMessage) as error:
            raise SupervisorFault(
                f"connection file {self.connection_file} cannot be used: {error}",
                hint="start the kernel again from the tool that wrote it",
            ) from error


def load(directory: Path) -> Ephemeral | None:
    """The session's record; None for an ordinary session.

    Raises:
        SupervisorFault: the record cannot be read.
    """
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Ephemeral)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise SupervisorFault(
            f"{directory / FILE} cannot be read: {error}", hint="remove the session: `krt rm`"
        ) from error


def save(directory: Path, record: Ephemeral) -> None:
    write_private(directory / FILE, msgspec.json.encode(record))


def watch_owner(reactor: Reactor, owner: process.ProcessId, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once, when the owner has ended; soon, when it has ended already."""
    try:
        fd = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        reactor.after(0, on_gone)
        return
    if not process.is_alive(owner):  # another process has its pid
        os.close(fd)
        reactor.after(0, on_gone)
        return

    def ended() -> None:
        reactor.forget(fd)
        os.close(fd)
        on_gone()

    reactor.watch(fd, ended)


def remove_unless_claimed(directory: Path, sockets: Path, linger: float = LINGER) -> bool:
    """Wait for a new owner, then remove the session; True when it was removed.

    To be called last, when the kernel has ended and `supervisor.lock` has been let go.
    """
    before = _record(directory)
    deadline = time.monotonic() + linger
    while time.monotonic() < deadline:
        if _record(directory) != before:
            return False
        time.sleep(0.1)
    try:
        spawn = os.open(directory / "spawn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return False  # removed by somebody else
    try:
        with contextlib.ExitStack() as held:
            for fd in (spawn, os.open(directory / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)):
                if fd != spawn:
                    held.callback(os.close, fd)
                # with both held nobody starts a supervisor in what is about to vanish
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _record(directory) != before:
                return False
            grave = directory.with_name(f".removed-{uuid.uuid4().hex}")
            directory.rename(grave)
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(spawn)
    shutil.rmtree(grave, ignore_errors=True)
    shutil.rmtree(sockets, ignore_errors=True)
    return True


def _record(directory: Path) -> bytes:
    try:
        return (directory / FILE).read_bytes()
    except FileNotFoundError:
        return b""
