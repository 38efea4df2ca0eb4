"""Make sure that a session has its supervisor, exactly one.

Two locks decide it. `supervisor.lock` is held (flock, exclusive) by a living supervisor for as long
as it lives, so that whether one is there is a fact of the kernel's, not of a pid file. `spawn.lock`
is held by the one caller that is starting one; all others wait for either lock to tell them more.
A caller may be killed in the middle: its supervisor then goes on starting without it, and the next
caller's may find the place taken, which counts as success.

Blocking calls throughout: the async client runs the slow half in a thread.
"""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from kernel_runtime.client import host
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import KernelRuntimeError, NoSuchSession, SupervisorFault, from_json

START_TIMEOUT = 60.0
"""seconds a supervisor may take until its front door is open"""

_LOG_TAIL = 2000
_NOT_INHERITED = (
    "JPY_PARENT_PID",
    "JPY_SESSION_NAME",
    "KRT_SESSION_ID",
    "KRT_EXECUTION",
    "KRT_INCARNATION",
    "KRT_PROCESS",
)
"""A session started from within a cell is nobody's child process: it must not carry the marks by
which the outer session finds what its cells left behind, nor a parent that ipykernel would die with."""


def is_running(session: SessionFile) -> bool:
    """Whether a supervisor lives (it may be just starting or just ending)."""
    try:
        fd = os.open(session.directory / "supervisor.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # shared, so that clients do not see each other; a supervisor that is taking the lock tries again
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def wait_until_gone(session: SessionFile, timeout: float) -> bool:
    """Wait for a supervisor that is ending; False when it still lives after so many seconds."""
    deadline = time.monotonic() + timeout
    while is_running(session):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def identity(session: SessionFile) -> bytes:
    """What the supervisor wrote into its lock; it differs when another one has taken over."""
    try:
        return (session.directory / "supervisor.lock").read_bytes()
    except FileNotFoundError:
        return b""


def ensure_supervisor(session: SessionFile, timeout: float = START_TIMEOUT) -> bool:
    """Return once a supervisor holds the session; True when this call started it.

    Raises:
        NoSuchSession: the session was removed meanwhile.
        SupervisorFault: it ended without a word (the hint holds its log's tail) or took too long.
        KernelRuntimeError: what the supervisor itself reported, e.g. JournalCorrupt or DiskFull.
    """
    if is_running(session):
        return False
    deadline = time.monotonic() + timeout
    try:
        lock = os.open(session.directory / "spawn.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise NoSuchSession(
            f"session {session.name} was removed",
            hint=f"`krt new {session.name}` creates it",
            session=session.name,
        ) from None
    try:
        if not _acquire(lock, session, deadline):
            return False
        if is_running(session):
            return False
        return _start(session, deadline)
    finally:
        os.close(lock)


def _acquire(lock: int, session: SessionFile, deadline: float) -> bool:
    """Take the spawn lock; False when a supervisor appeared while waiting for it."""
    pause = 0.002
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        if is_running(session):
            return False
        if time.monotonic() > deadline:
            raise SupervisorFault(
                f"session {session.name}: another process has been starting its supervisor for too long",
                hint=f"`krt doctor` says which process holds {session.directory / 'spawn.lock'}",
                session=session.name,
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _start(session: SessionFile, deadline: float) -> bool:
    ready, ready_in_child = os.pipe()
    try:
        if not host.ask(session, ready_in_child):
            launch(session, ready_in_child)
        os.close(ready_in_child)
        ready_in_child = -1
        line = _read_line(ready, deadline)
    finally:
        os.close(ready)
        if ready_in_child != -1:
            os.close(ready_in_child)
    if line == b'{"ok": true}' or (line and msgspec.json.decode(line).get("ok") is True):
        return True
    if _was_beaten(line) or (not line and is_running(session)):
        return False  # the one that a killed caller left behind was there first
    # it said why, and may still be on its way out with the lock in its hand
    raise _failure(session, line)


def launch(session: SessionFile, ready: int) -> None:
    """Start a supervisor here; it tells on the descriptor `ready` (one line of JSON) what became of it.

    Raises:
        SupervisorFault: Python could not be started.
    """
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
    log_fd = os.open(
        session.directory / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
    )
    try:
        child = subprocess.Popen(
            # -P: a file in the caller's directory must not stand in for one of our modules
            [
                sys.executable,
                "-P",
                "-m",
                "kernel_runtime.supervisor",
                str(session.directory),
                "--ready-fd",
                str(ready),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            close_fds=True,
            pass_fds=(ready,),
            start_new_session=True,
            env=environment,
            cwd=session.directory,
        )
    except OSError as error:
        raise SupervisorFault(
            f"session {session.name}: {sys.executable} could not be started ({error.strerror})",
            hint="see `krt doctor`",
            session=session.name,
        ) from error
    finally:
        os.close(log_fd)
    # it outlives us as a rule; where it does not, somebody has to collect it
    threading.Thread(target=child.wait, name="krt-reaper", daemon=True).start()


def _was_beaten(line: bytes | None) -> bool:
    """Whether it refused because another supervisor holds the lock."""
    return bool(line) and "holder" in (msgspec.json.decode(line or b"{}").get("error") or {})


def _read_line(fd: int, deadline: float) -> bytes | None:
    """One line without its end; b"" at end of file, None when the time is up."""
    data = b""
    poller = select.poll()  # select() fails on descriptors past 1023
    poller.register(fd, select.POLLIN)
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return None
        part = os.read(fd, 65536)
        if not part:
            return data.strip()
        data += part
    return data.partition(b"\n")[0].strip()


def _failure(session: SessionFile, line: bytes | None) -> KernelRuntimeError:
    log = session.directory / "supervisor.log"
    if line:
        reported = from_json(msgspec.json.decode(line).get("error") or {})
        reported.fields.setdefault("session", session.name)
        return reported
    what = "did not open its front door in time" if line is None else "ended before it was ready"
    return SupervisorFault(
        f"session {session.name}: its supervisor {what}",
        hint=f"the end of {log}:\n{tail(log) or '(empty)'}",
        session=session.name,
        log=str(log),
    )


def tail(path: Path, size: int = _LOG_TAIL) -> str:
    """The last `size` bytes of a text file; "" when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""
