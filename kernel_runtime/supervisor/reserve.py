"""Space kept back for what ends something, so that a full disk can be lived with.

A cell that filled the disk must be interruptible, its outcome recordable, its session stoppable: the
entries that say so need a few pages. They are taken from a file that holds nothing, and given back
when there is room again. Nothing new is ever begun on the reserve.

It does not promise that the freed pages are ours: another process may be quicker. Then the request
is refused as any other on a full disk.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SIZE = 256 << 10
"""bytes: about ten entries with their pages in the log"""

_ROOM = 4 * SIZE
"""what must be free before the reserve is laid in again"""


class Reserve:
    """One file in the session's directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._there = path.exists()

    def restore(self) -> bool:
        """Lay it in, if there is room; whether it is there."""
        if self._there:
            return True
        try:
            info = os.statvfs(self._path.parent)
            if info.f_bavail * info.f_frsize < _ROOM:
                return False
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, SIZE)
            finally:
                os.close(fd)
        except OSError:  # no room after all, or nothing may be written here
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            return False
        self._there = True
        return True

    def spend(self) -> bool:
        """Free it; False when it was spent before."""
        if not self._there:
            return False
        self._there = False
        self._path.unlink(missing_ok=True)
        return True
