"""Put a file in the place of another, whole or not at all, and never over content that nobody has seen.

`put` changes two names for each other (`renameat2` with `RENAME_EXCHANGE`) and then looks at what it took
out. Is that not what the caller had seen, or does somebody have it open to write, the names are changed
back: the file is theirs again, the same inode, and whoever was writing into it goes on. Nothing that was
not seen is ever removed: what would be is given to `keep`, also what a killed process left behind.

Where the file system cannot exchange names, a second name holds what is replaced; where it has no second
names either, it is compared just before the rename. There the instant of the rename remains.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kernel_runtime import process
from kernel_runtime.errors import DiskFull, KernelRuntimeError, ReadOnlyStorage, StorageFault
from kernel_runtime.testing.failpoints import reach

Mark = tuple[int, int, int, int]
"""inode, time of the last write, size, time of the last change of the inode"""
Keep = Callable[[bytes], object]
"""keeps content that is nowhere else; raises where it cannot"""

_AT_FDCWD = -100
_NOREPLACE, _EXCHANGE = 1, 2
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""what a file system answers that does not know how"""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def atomic_write(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Make `path` hold `data`, whole or not at all. An existing file's mode is kept; a new one gets `mode`.

    `path` must not be a symbolic link: it would be replaced, as is whatever was there.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: nothing is changed, unless only the directory could not
            be synced: then the new file is there and may not survive a power cut.
    """
    try:
        temporary = _written_beside(path, data, mode)
        try:
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except OSError as error:
        raise fault(error, path) from error


def put(
    path: Path,
    data: bytes,
    *,
    seen: str | None,
    keep: Keep,
    mode: int = 0o600,
    still: Callable[[], bool] = lambda: True,
) -> Mark | None:
    """As `atomic_write`, but only over what was seen; None: somebody else wrote the file since.

    `seen` is the `digest` of the content that the caller knows to be there; None: no file is. `keep` is given
    what would be gone otherwise: content of a third one who wrote in the very instant in which the names were
    changed back, and what a process left that was killed there. `still` is called when all but the exchange
    is done, and False ends it with None: a cheap first look.

    Returns:
        The mark of what was written, and not of what somebody may have saved over it since.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: as `atomic_write`.
    """
    try:
        _recover(path, keep)
        if seen is not None and _is_being_written(path):
            return None
        temporary = _written_beside(path, data, mode)
        # from here on, a process that finds it does not know whose content it has
        place = temporary.with_name(f"{temporary.name}-out")
        try:
            with temporary.open("rb") as ours:
                before = os.fstat(ours.fileno())
                if not still():
                    return None
                reach("in-notebook-rename")
                temporary.replace(place)
                if not _exchange(place, path, seen=seen, ours=digest(data), keep=keep):
                    return None
                # a rename changes this one and no other
                renamed_at = os.fstat(ours.fileno()).st_ctime_ns
        finally:
            temporary.unlink(missing_ok=True)
        _sync_directory(path.parent)
    except OSError as error:
        raise fault(error, path) from error
    return before.st_ino, before.st_mtime_ns, before.st_size, renamed_at


def mark_of(path: Path) -> Mark | None:
    """What changes when a file does; None when there is none."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fault(error, path) from error
    return info.st_ino, info.st_mtime_ns, info.st_size, info.st_ctime_ns


def fault(error: OSError, path: Path) -> KernelRuntimeError:
    """The error that a person is told."""
    if error.errno in DiskFull.ERRNOS:
        return DiskFull(
            f"no space left to write {path}", hint="free some space; the old file is there", path=str(path)
        )
    if error.errno in ReadOnlyStorage.ERRNOS:
        return ReadOnlyStorage(
            f"cannot write {path}: {error.strerror}", hint="check who may write there", path=str(path)
        )
    return StorageFault(f"cannot write {path}: {error.strerror or error}", path=str(path))


# the exchange


def _exchange(place: Path, path: Path, *, seen: str | None, ours: str, keep: Keep) -> bool:
    """Have `path` name what `place` does, if what it named was seen.

    `place` is gone afterwards; where this fails half-way it may hold somebody's, and is left for `_recover`.
    """
    if seen is None:
        done = _put_new(place, path)
    else:
        try:
            _rename(place, path, _EXCHANGE)
        except FileNotFoundError:
            done = False  # it was removed since
        except OSError as error:
            if error.errno not in _UNKNOWN:
                place.unlink()
                raise
            done = _put_over(place, path, seen)
        else:
            done = _is_seen(place, path, seen)
            if not done:
                _rename(place, path, _EXCHANGE)
                if not _holds(place, ours):
                    # written over ours, in the instant in which that was there: the newest stays in the file
                    _rename(place, path, _EXCHANGE)
                    keep(place.read_bytes())
    place.unlink(missing_ok=True)
    return done


def _is_seen(place: Path, path: Path, seen: str) -> bool:
    try:
        return _holds(place, seen)
    except OSError:
        _rename(place, path, _EXCHANGE)
        place.unlink()
        raise


def _put_new(place: Path, path: Path) -> bool:
    try:
        _rename(place, path, _NOREPLACE)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    try:
        os.link(place, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # no second names here
        if path.exists():
            return False
        place.replace(path)
        return True


def _put_over(place: Path, path: Path, seen: str) -> bool:
    """The same where names cannot be exchanged: what is replaced has a second name until it was looked at."""
    second = place.with_name(f"{place.name}-2")
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except FileNotFoundError:
        return False
    except OSError:  # no second names here
        if not _holds(path, seen):
            return False
        place.replace(path)
        return True
    try:
        if not _holds(second, seen) or not second.samefile(path):
            return False
        place.replace(path)
        if _holds(second, seen):
            return True
        second.replace(path)
        return False
    finally:
        second.unlink(missing_ok=True)


def _rename(one: Path, other: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _holds(path: Path, content: str) -> bool:
    """Whether it holds that, and nobody is about to change it."""
    return not _is_being_written(path) and digest(path.read_bytes()) == content


def _is_being_written(path: Path) -> bool:
    """Whether somebody has it open to write; False where the system does not tell."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # whoever opens it to write in this instant breaks the lease, which is told by a signal: one that
        # does nothing
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False  # another one's file, or a file system without leases
    finally:
        os.close(fd)
    return False


# what it is made of


def _written_beside(path: Path, data: bytes, mode: int) -> Path:
    """A file in the same directory that holds it, synced, with the mode and group that `path` is to have."""
    _sweep(path)
    group = -1
    with suppress(FileNotFoundError):
        info = path.stat()
        mode, group = stat.S_IMODE(info.st_mode), info.st_gid
    temporary = path.with_name(f".{path.name}.krt-{os.getpid()}")
    try:
        _write_synced(temporary, data, mode)
        if group not in {-1, temporary.stat().st_gid}:
            with suppress(PermissionError):  # of a group that we are not in
                os.chown(temporary, -1, group)
                temporary.chmod(mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


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
    """Remove what writers of this file left behind when they were killed before the exchange."""
    for left in _left_behind(path, ""):
        left.unlink(missing_ok=True)


def _recover(path: Path, keep: Keep) -> None:
    """Keep what writers left behind when they were killed in the exchange: it may be somebody's."""
    for suffix in ("-out", "-out-2"):
        for left in _left_behind(path, suffix):
            keep(left.read_bytes())
            left.unlink(missing_ok=True)


def _left_behind(path: Path, suffix: str) -> list[Path]:
    prefix = f".{path.name}.krt-"
    found: list[Path] = []
    for name in os.listdir(path.parent):
        pid = name.removeprefix(prefix).removesuffix(suffix)
        if name != f"{prefix}{pid}{suffix}" or not pid.isdigit():
            continue
        # of this process: an exchange that failed half-way
        if int(pid) == os.getpid() or process.identify(int(pid)) is None:
            found.append(path.with_name(name))
    return found
