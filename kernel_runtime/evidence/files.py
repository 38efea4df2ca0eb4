"""Where evidence is written: whole files, and lines at the end of a shared file.

Invariant: after a failure nothing is left that was not there before.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kernel_runtime import places
from kernel_runtime.errors import DiskFull, KernelRuntimeError, ReadOnlyStorage, StorageFault


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `target` once the block is left; written beside it until then.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: `target` is as it was.
    """
    draft = target.with_name(f".{target.name[:200]}.{uuid.uuid4().hex[:12]}")
    try:
        with open(draft, "x+b", opener=places.private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        raise fault(error, target) from error
    finally:
        draft.unlink(missing_ok=True)


def append_line(target: Path, line: bytes) -> None:
    """Add a line to a file that others add lines to; on the disk when this returns.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: the file is as it was.
    """
    try:
        with open(target, "a+b", buffering=0, opener=places.private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            # whoever wrote last may have been cut off in the middle
            begun = b"" if size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n" else b"\n"
            try:
                data = begun + line + b"\n"
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise fault(error, target) from error


def fault(error: OSError, path: Path) -> KernelRuntimeError:
    """What the operating system refused, in the words of errors.py."""
    if error.errno in DiskFull.ERRNOS:
        return DiskFull(f"no space left to write {path}", hint="free some space; nothing of it was left")
    if error.errno in ReadOnlyStorage.ERRNOS:
        return ReadOnlyStorage(f"cannot write {path}: {error.strerror}", hint="check who may write there")
    return StorageFault(f"cannot write {path}: {error.strerror or error}", hint="name another file")


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some file systems cannot; the file itself is on the disk
            os.fsync(fd)
    finally:
        os.close(fd)
