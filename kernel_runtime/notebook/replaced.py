"""Notebooks as they were before somebody replaced them: for text that is nowhere else.

`replaced/` in the session's directory holds whole notebooks, named by the time (UTC) at which they were
replaced, readable by their owner. There are at most `MOST` of them with `MOST_BYTES`, the newest in any
case; the oldest go first. What is to be kept is there, synced, when `keep` returns.
"""

from __future__ import annotations

import time
from pathlib import Path

from kernel_runtime import places
from kernel_runtime.notebook.put import fault, put

MOST = 100
MOST_BYTES = 64 << 20


class Replaced:
    """One session's. `directory` need not exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, data: bytes) -> Path:
        """Keep it; the file that holds it, which is the newest one if that holds just this.

        Raises:
            DiskFull, ReadOnlyStorage, StorageFault: it is not kept.
        """
        try:
            kept = self._kept()
            if kept and kept[-1].stat().st_size == len(data) and kept[-1].read_bytes() == data:
                return kept[-1]
            places.private_dir(self.directory)
            path = self._put(data, after=kept[-1].stem if kept else "")
            self._trim([*kept, path])
        except OSError as error:
            raise fault(error, self.directory) from error
        return path

    def _put(self, data: bytes, *, after: str) -> Path:
        now = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
        # the names of those that went are not given again within their second
        number = int(after.removeprefix(f"{now}-")) + 1 if after.startswith(now) else 1
        while put(path := self.directory / f"{now}-{number:03d}.ipynb", data, seen=None, keep=_drop) is None:
            number += 1
        return path

    def _kept(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.directory.glob("*.ipynb"))

    @staticmethod
    def _trim(kept: list[Path]) -> None:
        left = MOST_BYTES
        for age, path in enumerate(reversed(kept)):
            left -= path.stat().st_size
            if age and (age >= MOST or left < 0):
                path.unlink(missing_ok=True)


def _drop(_data: bytes) -> None:
    """What a process left that was killed while it kept something: the same is still where it came from."""
