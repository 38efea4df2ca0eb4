"""`python -m kernel_runtime.supervisor SESSION_DIR`: what a client starts when no supervisor is there.

Tells on `--ready-fd` one line of JSON: `{"ok": true}` once the session can be used, or
`{"ok": false, "error": …}`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import sys
import time
from pathlib import Path

from kernel_runtime import process
from kernel_runtime.errors import (
    DiskFull,
    InternalFault,
    KernelRuntimeError,
    ReadOnlyStorage,
    SupervisorFault,
)

_LOCK_PATIENCE = 2.0
"""seconds in which somebody who only looked at the lock lets go of it"""


def _take_lock(directory: Path) -> int:
    """The session's supervisor lock, held until this process ends, however it ends."""
    fd = os.open(directory / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            holder = os.pread(fd, 4096, 0)
        # a client that looks whether a supervisor lives holds the lock for an instant
        if _is_alive(holder) or time.monotonic() > deadline:
            os.close(fd)
            raise SupervisorFault(
                f"{directory.name} has a supervisor already",
                hint="nothing to do: use it",
                holder=holder.decode("utf-8", "replace"),
            )
        time.sleep(0.005)
    me = process.identify(os.getpid())
    assert me is not None
    os.ftruncate(fd, 0)
    document = {"pid": me.pid, "start_time": me.start_time, "boot_id": me.boot_id}
    os.pwrite(fd, json.dumps(document).encode(), 0)
    return fd


def _is_alive(holder: bytes) -> bool:
    """Whether the process that wrote this into the lock lives."""
    try:
        document = json.loads(holder)
        who = process.ProcessId(document["pid"], document["start_time"], document["boot_id"])
    except (ValueError, KeyError, TypeError):
        return False  # just being written
    return process.is_alive(who)


def _told(error: Exception, directory: Path) -> KernelRuntimeError:
    """Why it could not start: the disk's fault where it is that, else ours."""
    if isinstance(error, OSError) and error.errno in DiskFull.ERRNOS:
        return DiskFull(
            f"the supervisor could not start: no space left at {error.filename or directory}",
            hint="free some space, then do the same again; what was acknowledged before is safe",
        )
    if isinstance(error, OSError) and error.filename and error.errno in ReadOnlyStorage.ERRNOS:
        return ReadOnlyStorage(
            f"the supervisor could not start: {error.filename}: {error.strerror}",
            hint="make it writable, then do the same again; reading the record goes on working meanwhile",
        )
    return InternalFault(
        f"the supervisor could not start: {type(error).__name__}: {error}",
        hint=f"see {directory / 'supervisor.log'}",
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernel_runtime.supervisor", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready-fd", type=int, default=None)
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def tell(document: dict[str, object]) -> None:
        if args.ready_fd is not None:
            with open(args.ready_fd, "w") as ready:
                ready.write(json.dumps(document) + "\n")

    try:
        lock = _take_lock(args.directory)
        from kernel_runtime.supervisor import ephemeral
        from kernel_runtime.supervisor.session import Supervisor

        supervisor = Supervisor(args.directory, ephemeral.load(args.directory))
        supervisor.start()
    except KernelRuntimeError as error:
        tell({"ok": False, "error": error.to_json()})
        return error.exit_code
    except Exception as error:
        logging.getLogger("kernel_runtime.supervisor").exception("the supervisor could not start")
        fault = _told(error, args.directory)
        tell({"ok": False, "error": fault.to_json()})
        return fault.exit_code
    # the notebook's thread computes; at the default 5 ms a cell would wait for it that long
    sys.setswitchinterval(0.0005)
    tell({"ok": True, "pid": os.getpid()})
    supervisor.run()
    # else it is not closed: whoever sees the lock free may count on the process being gone
    if supervisor.orphaned:
        os.close(lock)
        ephemeral.remove_unless_claimed(args.directory, supervisor.sockets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
