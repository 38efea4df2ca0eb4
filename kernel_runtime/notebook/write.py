"""Put the session's notebook on disk, whole or not at all, over what people made of it.

A write is: take in what people changed, merge, write a temporary file in the same directory, sync
it, rename it, sync the directory. Killed anywhere, the old file or the new one is there. A file
that is no notebook is never overwritten: ours goes beside it, with a note. A save by somebody else
that lands while we merge is seen before the rename and merged again; what remains is the instant
between that look and the rename.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.errors import DiskFull, InvalidNotebook, KernelRuntimeError, ReadOnlyStorage, StorageFault
from kernel_runtime.notebook.document import NotJson, parse
from kernel_runtime.notebook.merge import OURS, Merged, NotANotebook
from kernel_runtime.notebook.render import NotebookBuilder
from kernel_runtime.testing.failpoints import reach

_TRIES = 5
_SETTLING = 2.0
"""seconds for which a file that cannot be read may still be in the middle of somebody's save"""

Mark = tuple[int, int, int, int]


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

    def __init__(self, path: Path, builder: NotebookBuilder, *, mode: int = 0o600) -> None:
        self.path = Path(path)
        """what was asked for; a symbolic link is followed at each write"""
        self.builder = builder
        self._mode = mode
        self._merged: Merged | None = None
        self._mark: Mark | None = None
        """of the file as we know it; None: we know none"""
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
        mark = _mark(target)
        if mark is None and self._mark is not None:
            # people removed the file: everything the journal knows is written again
            self._merged = self._mark = None
        if mark is None or mark == self._mark:
            return target, mark
        merged = Merged(self.builder.session_id)
        try:
            merged.take(parse(_read(target)))
        except (NotJson, NotANotebook) as error:
            if time.time() - mark[1] / 1e9 < _SETTLING:
                return None
            return self._go_beside(target, error)
        self._merged, self._mark = merged, mark
        return target, mark

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
        """Write and rename; False when somebody else wrote the file since it was looked at."""
        data = merged.bytes(self.builder.metadata())
        written = atomic_write(target, data, mode=self._mode, still=lambda: _mark(target) == expected)
        if written is None:
            return False
        self._mark, self._written = written, True
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


def atomic_write(
    path: Path, data: bytes, *, mode: int = 0o600, still: Callable[[], bool] | None = None
) -> Mark | None:
    """Make `path` hold `data`, whole or not at all. An existing file's mode is kept; a new one gets `mode`.

    `path` must not be a symbolic link: it would be replaced. `still`, if given, is called when all but
    the rename is done; where it returns False nothing is changed, and None is returned. Else the mark of
    what was written, and not of what somebody may have saved over it since.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: nothing is changed, unless only the directory could not
            be synced: then the new file is there and may not survive a power cut.
    """
    temporary = path.with_name(f".{path.name}.krt-{os.getpid()}")
    try:
        _sweep(path)
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.stat().st_mode)
        try:
            _write_synced(temporary, data, mode)
            with temporary.open("rb") as ours:
                before = os.fstat(ours.fileno())
                if still is not None and not still():
                    return None
                reach("in-notebook-rename")
                temporary.replace(path)
                # a rename changes this one and no other
                renamed_at = os.fstat(ours.fileno()).st_ctime_ns
        finally:
            temporary.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except OSError as error:
        raise _fault(error, path) from error
    return before.st_ino, before.st_mtime_ns, before.st_size, renamed_at


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        os.fsync(fd)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a directory
            raise
    finally:
        os.close(fd)


def _sweep(path: Path) -> None:
    """Remove what writers of this file left behind when they were killed."""
    prefix = f".{path.name}.krt-"
    for name in os.listdir(path.parent):
        pid = name.removeprefix(prefix)
        if name != pid and pid.isdigit() and process.identify(int(pid)) is None:
            path.with_name(name).unlink(missing_ok=True)


def _mark(path: Path) -> Mark | None:
    """What changes when a file does; None when there is none."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _fault(error, path) from error
    return info.st_ino, info.st_mtime_ns, info.st_size, info.st_ctime_ns


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _fault(error, path) from error


def _fault(error: OSError, path: Path) -> KernelRuntimeError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"no space left to write {path}", hint="free some space; the old file is there", path=str(path)
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyStorage(
            f"cannot write {path}: {error.strerror}", hint="check who may write there", path=str(path)
        )
    return StorageFault(f"cannot write {path}: {error.strerror or error}", path=str(path))
