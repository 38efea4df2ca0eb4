"""Where things lie: KRT_HOME for what lasts, KRT_RUNTIME_DIR for sockets.

    KRT_HOME/sessions/NAME/session.json      identity, replaced as a whole
                          /journal.db        (+ -wal, -shm)
                          /notebook.ipynb    unless the session names another file
                          /replaced/         notebooks as they were before text was taken out of the file
                          /kernel.json       the living kernel: process identity, connection, incarnation
                          /supervisor.lock   flock held for life by the supervisor; holds its identity
                          /spawn.lock        flock held while somebody starts a supervisor
                          /supervisor.log    bounded
                          /reserve           space for what must be recorded on a full disk
                          /outbox-N/         the kernel's messages of incarnation N
                          /processes/        managed processes: ID.json, ID.log, ID.status, ID.screen
                          /kernel-N.log      what the kernel's own fd 1 and 2 said
                          /kernel-N.tty      the end of what its terminal showed
                          /kernel-N.status   how it ended, until the journal has it
    KRT_RUNTIME_DIR/<12 hex of session_id>/  front.json, kernel-N.json, kernel-N.keys (what is
                          typed on the kernel's terminal) and the ipc sockets

Two values of KRT_HOME and KRT_RUNTIME_DIR never share anything. A Unix socket path holds 107
bytes; where KRT_RUNTIME_DIR is longer, its sockets go to a private directory under the temp dir
whose name is derived from it.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from kernel_runtime.errors import InvalidName, NotAllowed, UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SOCKET_PATH_MAX = 107
_LONGEST_SOCKET = "/0123456789ab/kernel-99999-5"


def home() -> Path:
    """KRT_HOME, absolute; not created."""
    if value := os.environ.get("KRT_HOME"):
        return Path(value).absolute()
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state).absolute() / "kernel-runtime"


def runtime_dir() -> Path:
    """KRT_RUNTIME_DIR, short enough for sockets; created private.

    Raises:
        NotAllowed: the directory belongs to another user.
        UsageError: no place with a short enough path is to be had.
    """
    if value := os.environ.get("KRT_RUNTIME_DIR"):
        wanted = Path(value).absolute()
    elif value := os.environ.get("XDG_RUNTIME_DIR"):
        wanted = Path(value).absolute() / "kernel-runtime"
    else:
        wanted = Path(tempfile.gettempdir()) / f"kernel-runtime-{os.getuid()}"
    if _fits(wanted):
        return private_dir(wanted)
    digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    # TMPDIR may be as long as what it is to stand in for
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - private_dir refuses one that is not ours
        short = base / f"krt-{os.getuid()}-{digest}"
        if _fits(short):
            return private_dir(short)
    raise UsageError(
        f"{wanted} is too long for sockets, and so is the temp directory",
        hint="set KRT_RUNTIME_DIR to a private directory with a short path",
        path=str(wanted),
    )


def _fits(directory: Path) -> bool:
    return len(os.fsencode(directory)) + len(_LONGEST_SOCKET) <= _SOCKET_PATH_MAX


def private_dir(path: Path) -> Path:
    """Create `path` 0700 if need be, and refuse one that others could have planted."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.stat()
    if info.st_uid != os.getuid():
        raise NotAllowed(
            f"{path} belongs to another user",
            hint="set KRT_HOME and KRT_RUNTIME_DIR to directories of your own",
            path=str(path),
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def private(path: str, flags: int) -> int:
    """An opener, for `open`: a file that it creates is its owner's alone."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def check_name(name: str) -> str:
    """The name, if it is one.

    Raises:
        InvalidName: with the rule in its hint.
    """
    if not NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} is not a session name",
            hint="start with a letter or digit, then letters, digits, '.', '_' or '-', 64 at most",
            name=name,
        )
    return name


def sessions_dir() -> Path:
    return home() / "sessions"


def session_dir(name: str) -> Path:
    """The directory of a session; it need not exist."""
    return sessions_dir() / check_name(name)


def socket_dir(session_id: str) -> Path:
    """Where the session's sockets lie; it need not exist."""
    return runtime_dir() / session_id.replace("-", "")[:12]


def principal() -> str:
    """KRT_PRINCIPAL, or `human:` and the login name."""
    if value := os.environ.get("KRT_PRINCIPAL"):
        return value
    try:
        return f"human:{getpass.getuser()}"
    except (KeyError, OSError):  # a uid without a passwd entry
        return f"human:{os.getuid()}"
