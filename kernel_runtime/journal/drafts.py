"""Files that appear whole or not at all: made beside their place, durable, then renamed into it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kernel_runtime.journal import faults


@contextlib.contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """An empty file, 0600, that takes the place of `target` when the block ends well.

    Whoever fills it makes its content durable. What an earlier attempt left behind is removed first.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: an OSError of the block's, too; nothing is left.
    """
    draft = target.with_name(target.name + ".new")
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield draft
        draft.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise faults.from_os(error, target) from error
    finally:
        with contextlib.suppress(OSError):  # it is there only if the above failed, and is told
            draft.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make a directory's names durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
