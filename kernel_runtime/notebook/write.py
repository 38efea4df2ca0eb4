"""Put the session's notebook on disk, whole or not at all, over what people made of it.

A write is: take in what people changed, merge, write a temporary file in the same directory, sync
it, exchange the two, sync the directory (`put`). Killed anywhere, the old file or the new one is there.
A file that is no notebook is never overwritten: ours goes beside it, with a note. A save by somebody else
that lands while we write is seen before it would be gone, and merged.

Text of people that was in the file, and that whoever wrote it since took out, is kept in another one
(`replaced`): a checkout of an old copy says nothing of what it takes away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from kernel_runtime.errors import InvalidNotebook
from kernel_runtime.notebook.document import NotJson, parse
from kernel_runtime.notebook.merge import OURS, Merged, NotANotebook
from kernel_runtime.notebook.put import Mark, digest, fault, mark_of, put
from kernel_runtime.notebook.render import NotebookBuilder
from kernel_runtime.notebook.replaced import Replaced

_TRIES = 5
_SETTLING = 2.0
"""seconds for which a file that cannot be read may still be in the middle of somebody's save"""


class Written(Struct, frozen=True):
    """What a write did."""

    path: Path
    """the file that holds the notebook: beside the one asked for, if that is no notebook"""
    changed: bool
    notes: Sequence[str] = ()
    """for people, each told once"""
    deferred: bool = False
    """the file is in the middle of somebody's save: write again later"""


class NotebookFile:
    """The one file of a session's notebook. Not for use by two threads at once."""

    def __init__(
        self, path: Path, builder: NotebookBuilder, replaced: Replaced, *, mode: int = 0o600
    ) -> None:
        self.path = Path(path)
        """what was asked for; a symbolic link is followed at each write"""
        self.builder = builder
        self._held = False
        self._outdated = False
        """somebody else held the file since it was last looked at: what it lacks was taken out knowingly"""
        self._replaced = replaced
        self._mode = mode
        self._merged: Merged | None = None
        self._mark: Mark | None = None
        """of the file as we know it; None: we know none"""
        self._seen = ""
        """digest of its content"""
        self._beside = False
        self._stale: set[str] = set()
        """cells rendered since the last write"""
        self._written = False
        self._notes: list[str] = []

    def write(self) -> Written:
        """Bring the file up to date with the journal.

        What people saved is merged when the journal has news, not before: an editor that just saved is
        not told that the file changed under it.

        Raises:
            InvalidNotebook: the path is a directory or a loop of links.
            DiskFull, ReadOnlyStorage, StorageFault: the old file is as it was.
        """
        self._stale |= self.builder.refresh()
        for _ in range(_TRIES):
            looked = self._look()
            if looked is None:
                return Written(self._target(), changed=False, notes=self._told(), deferred=True)
            target, found = looked
            if found is not None and self._written and not self._stale:
                return Written(target, changed=False, notes=self._told())
            if self._replace(target, self._settled(), expected=found):
                return Written(target, changed=True, notes=self._told())
        return Written(self._target(), changed=False, notes=self._told(), deferred=True)

    def sources(self) -> dict[str, str] | None:
        """`cell_id → sha256 of source` of the code cells people see now; None when that cannot be read.

        Writes nothing: this is the file merged with the journal, as the next write would leave it.
        """
        self._stale |= self.builder.refresh()
        if self._look() is None:
            return None
        return self._settled().sources(self.builder.cells)

    def hold(self) -> None:
        """Somebody else writes the file from now on, and looks after what is in it."""
        self._held = self._outdated = True

    def release(self) -> None:
        """It is ours to look after again."""
        self._held = False

    @property
    def mark(self) -> Mark | None:
        """Inode, time and size of the file as it was last written or taken in."""
        return self._mark

    def differs(self) -> bool:
        """Whether a code cell of the file as it was last written is not what ran."""
        if self._merged is None:
            return False
        ran = {cell.cell_id: cell.source_digest for cell in self.builder.cells.values()}
        sources = self._merged.sources(self.builder.cells)
        return any(ran.get(cell_id) != digest for cell_id, digest in sources.items())

    def _look(self) -> tuple[Path, Mark | None] | None:
        """The file to write and its mark, after taking in what others made of it.

        None: it is in the middle of somebody's save.
        """
        target = self._target()
        mark = mark_of(target)
        if mark is None and self._mark is not None:
            # people removed the file: everything the journal knows is written again
            self._keep_what_it_lacks(Merged(self.builder.session_id))
            self._merged = self._mark = None
        if mark is None or mark == self._mark:
            self._outdated = self._held
            return target, mark
        merged, data = Merged(self.builder.session_id), _read(target)
        try:
            merged.take(parse(data))
        except (NotJson, NotANotebook) as error:
            if self._held or time.time() - mark[1] / 1e9 < _SETTLING:
                return None
            return self._go_beside(target, error)
        self._keep_what_it_lacks(merged)
        self._merged, self._mark, self._seen = merged, mark, digest(data)
        self._outdated = self._held
        return target, mark

    def _keep_what_it_lacks(self, new: Merged) -> None:
        """The file was replaced by one that lacks texts of people's: keep the notebook as it was."""
        old = self._merged
        if old is None or self._outdated:
            return
        old.settle(self.builder.cells, self._stale)
        gone = old.texts() - new.texts()
        if gone:
            kept = self._replaced.keep(old.bytes(self.builder.metadata()))
            self._notes.append(
                f"{len(gone)} text(s) of people's are not in the file any more: as it was it is in {kept}"
            )

    def _go_beside(self, target: Path, error: ValueError) -> tuple[Path, Mark | None] | None:
        """Leave a file that is no notebook as it is; what we know of its former cells goes with us."""
        if self._beside:
            raise InvalidNotebook(
                f"{target} is no notebook: {error}", hint="move it away; it was left as it is"
            ) from error
        self._beside, self._written, self._mark = True, False, None
        self._notes.append(
            f"{target} is no notebook ({error}) and was left as it is: "
            f"this session's notebook is {self._target()}"
        )
        return self._look()

    def _settled(self) -> Merged:
        if self._merged is None:
            self._merged = Merged(self.builder.session_id)
        self._merged.settle(self.builder.cells, self._stale)
        self._notes += self._merged.notes
        self._merged.notes = []
        return self._merged

    def _told(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    def _replace(self, target: Path, merged: Merged, *, expected: Mark | None) -> bool:
        """Write it; False when somebody else wrote the file since it was looked at."""
        data = merged.bytes(self.builder.metadata())
        written = put(
            target,
            data,
            seen=self._seen if expected is not None else None,
            keep=self._replaced.keep,
            mode=self._mode,
            still=lambda: mark_of(target) == expected,
        )
        if written is None:
            self._mark = None  # read it again, however little of it changed
            return False
        self._mark, self._seen, self._written = written, digest(data), True
        self._stale = set()
        return True

    def _target(self) -> Path:
        path = Path(os.path.realpath(self.path))
        if self._beside:
            path = path.with_name(f"{path.stem}.{OURS}.ipynb")
        if path.is_dir() or path.is_symlink():
            what = "is a directory" if path.is_dir() else "is a loop of symbolic links"
            raise InvalidNotebook(f"{self.path} {what}", hint="name a file for the notebook")
        return path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise fault(error, path) from error
