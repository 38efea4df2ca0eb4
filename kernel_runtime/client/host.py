"""Ask the host of this KRT_RUNTIME_DIR to start a supervisor, where one is there (`krt host`).

A supervisor lives where it was started: in the container, the control group and the login session of its
first client. Where those end before the session is to end, a host does the starting: a process in a place
that stays, reached through `KRT_RUNTIME_DIR/host.sock`. It is told the session and handed the pipe on which
the supervisor says that it is ready, so that everything else is as without one.

An ephemeral session's supervisor is never asked for: its kernel's life and environment are its owner's.
Not promised: that a host which has just gone is missed; the client then starts the supervisor itself.
"""

from __future__ import annotations

import array
import contextlib
import socket
from pathlib import Path

import msgspec

from kernel_runtime import places
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import SupervisorFault, from_json

PACKET = 65536
"""bytes of one request or answer"""
_EPHEMERAL = "ephemeral.json"  # supervisor/ephemeral.py
_PATIENCE = 20.0
"""seconds a host may take to start a process"""


def socket_path() -> Path:
    return places.runtime_dir() / "host.sock"


def is_there() -> bool:
    """Whether a host answers."""
    with contextlib.suppress(OSError), _connection() as line:
        line.send(b"{}")
        return bool(line.recv(PACKET))
    return False


def ask(session: SessionFile, ready: int) -> bool:
    """Have the host start the session's supervisor, telling on `ready`; False when there is no host.

    Raises:
        KernelRuntimeError: the host's reason for not starting it.
        SupervisorFault: the host ended in the middle, or does not answer.
    """
    if not socket_path().exists() or (session.directory / _EPHEMERAL).exists():
        return False
    try:
        line = _connection()
    except (FileNotFoundError, ConnectionRefusedError):
        return False  # it has gone; its socket may have stayed
    request = msgspec.json.encode({"session": session.name, "session_id": session.session_id})
    with line:
        try:
            line.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [ready]))])
            answer = line.recv(PACKET)
        except OSError as error:
            answer = b""
            reason = error.strerror or "it does not answer"
        else:
            reason = "it ended"
    if not answer:
        raise SupervisorFault(
            f"session {session.name}: the host at {socket_path()} did not start its supervisor: {reason}",
            hint="start `krt host` again where it ran",
            session=session.name,
        )
    told = msgspec.json.decode(answer)
    if told.get("ok") is not True:
        raise from_json(told.get("error") or {})
    return True


def _connection() -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.settimeout(_PATIENCE)
        line.connect(str(socket_path()))
    except BaseException:
        line.close()
        raise
    return line
