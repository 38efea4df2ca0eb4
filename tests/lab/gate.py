"""A cell that goes on when the test says so: no test depends on how long anything takes."""

from __future__ import annotations

from pathlib import Path

from tests.support import waits


class Gate:
    """Cells wait for a file, which `open` makes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def wait(self) -> str:
        """Two lines of Python that are done once the gate is open."""
        return waits(self.path).rstrip()

    def open(self) -> None:
        self.path.touch()
