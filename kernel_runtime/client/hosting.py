"""The host: a process whose children the supervisors are that clients ask for.

One for each KRT_RUNTIME_DIR: `host.lock` is held (flock) for its life, `host.sock` is where it listens, in a
directory that only its user can enter. A request names a session of the host's own KRT_HOME and carries one
descriptor, the pipe on which the new supervisor says that it is ready. The supervisor gets the environment of
the host, not of the client: a server's secrets stay with the server.

The host knows nothing of what it has started. When it ends, nothing happens to supervisors and kernels,
but where its end is its container's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from kernel_runtime import places
from kernel_runtime.client import host, session_files, spawn
from kernel_runtime.errors import KernelRuntimeError, SupervisorFault, UsageError

_REQUEST_PATIENCE = 2.0
"""seconds in which a client has to say what it wants"""


class Host:
    """Listens once made; `serve` answers until told to stop."""

    def __init__(self) -> None:
        """Take the place.

        Raises:
            UsageError: another host has it.
        """
        self._path = host.socket_path()
        self._lock = os.open(places.runtime_dir() / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UsageError(
                f"a host runs already for {places.runtime_dir()}", hint="one is enough: clients find it"
            ) from None
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self._path))
        self._listener.listen(64)

    def serve(self, stop: int) -> Iterator[str]:
        """Start what is asked for, telling each session's name; ends when `stop` can be read."""
        poller = select.poll()
        poller.register(stop, select.POLLIN)
        poller.register(self._listener, select.POLLIN)
        while stop not in (ready := {fd for fd, _ in poller.poll()}):
            assert ready == {self._listener.fileno()}
            line, _ = self._listener.accept()
            with line:
                name = self._answer(line)
            if name:
                yield name

    def _answer(self, line: socket.socket) -> str | None:
        line.settimeout(_REQUEST_PATIENCE)
        try:
            request, descriptors, _, _ = socket.recv_fds(line, host.PACKET, 1)
        except OSError:
            return None  # it connected and said nothing
        name: str | None = None
        answer: dict[str, Any] = {"ok": True}
        try:
            if request != b"{}":  # which only asks whether somebody is here
                name = _start(request, descriptors)
        except KernelRuntimeError as error:
            answer = {"ok": False, "error": error.to_json()}
        finally:
            for fd in descriptors:
                os.close(fd)
        with contextlib.suppress(OSError):  # it has left; the supervisor is wanted all the same
            line.send(msgspec.json.encode(answer))
        return name

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._listener.close()
        os.close(self._lock)


def _start(request: bytes, descriptors: list[int]) -> str:
    try:
        wanted = msgspec.json.decode(request, type=dict[str, str])
        name, session_id, (ready,) = wanted["session"], wanted["session_id"], descriptors
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise SupervisorFault(
            f"the host did not understand: {error}", hint="use the same version on both sides"
        ) from error
    session = session_files.load(name)
    if session.session_id != session_id:
        raise SupervisorFault(
            f"session {name}: the host of {places.runtime_dir()} has another session of that name",
            hint=f"host and client need the same KRT_HOME; the host's is {places.home()}",
            session=name,
        )
    spawn.launch(session, ready)
    return name
