"""The private places of one replay, and the end of everything in them.

    TEMP/krt-replay-UID/XXXXXXXX/owner.lock   flock held by the replay's driver for as long as it lives
                                /home, /run   KRT_HOME and KRT_RUNTIME_DIR of the private session
                                /orders.json, /runner.log

Whoever lets go of the lock without having removed the directory was killed. Then the runner notices that
its stdin has ended and stops the session, and the next replay ends what is left and removes the directory.
Not promised: that nothing is left before that next replay, if driver and runner are killed in one moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_runtime import places, process
from kernel_runtime.errors import StorageFault

_SHORT = 60
"""characters a path may have for the sockets beneath it"""
_GRACE = 5.0
"""seconds that killed processes have for being gone"""
_NAME = "replay"


def base() -> Path:
    """Where replays of this user have their places; private, created if need be."""
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 - private_dir refuses one that is not ours
        found = parent / f"krt-replay-{os.getuid()}"
        if len(os.fsencode(found)) <= _SHORT:
            break
    return places.private_dir(found)


class Workspace:
    """A directory for one replay; leaving the `with` ends and removes all that is in it."""

    session = _NAME

    def __init__(self) -> None:
        try:
            self.directory = Path(tempfile.mkdtemp(dir=base()))
            self._lock = os.open(self.directory / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFault(
                f"a replay needs a directory under {tempfile.gettempdir()}: {error.strerror}",
                hint="free some space, or set TMPDIR to a directory that can be written",
            ) from error
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def runtime(self) -> Path:
        return self.directory / "run"

    @property
    def journal(self) -> Path:
        """Of the private session."""
        return self.home / "sessions" / _NAME / "journal.db"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
        os.close(self._lock)

    def clear(self) -> None:
        _clear(self.directory)


def sweep() -> list[Path]:
    """End and remove what killed replays have left; the directories that were removed."""
    removed: list[Path] = []
    for directory in base().iterdir():
        try:
            lock = os.open(directory / "owner.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if _is_old(directory):  # else its owner is just making it
                _clear(directory)
                removed.append(directory)
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            _clear(directory)
            removed.append(directory)
        finally:
            os.close(lock)
    return removed


def _is_old(directory: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - directory.stat().st_mtime > 60
    return False


def _clear(directory: Path) -> None:
    home = str(directory / "home")
    deadline = time.monotonic() + _GRACE
    while left := process.marked_processes("KRT_HOME", home):
        for who, _ in left:
            process.signal_process(who, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    shutil.rmtree(directory, ignore_errors=True)
