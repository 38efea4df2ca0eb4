"""Regular files that processes hold open, those opened for writing first.

Not promised: files that are mapped and closed, and files that were open between two looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from kernel_runtime.supervisor.world import procfs

_DELETED = " (deleted)"
_NO_FILES = ("/dev/pts/", "/dev/null", "/proc/", "/sys/", "/memfd:")
"""what is told as something else, or says nothing about the session's work"""
_ORDER = {"write": 0, "append": 0, "read-write": 1, "read": 2}


class OpenFile(Struct, frozen=True, kw_only=True):
    path: str
    mode: str
    """`write`, `append`, `read-write`, `read`"""
    position: int
    bytes: int
    deleted: bool
    """its name is gone; its content goes with the last process that holds it"""
    pids: list[int]
    """who holds it, the first as given"""


def of_processes(
    descriptors: Iterable[tuple[int, dict[int, str]]], own: Callable[[str], bool]
) -> list[OpenFile]:
    """Each file once for each way in which it is open; `own(path)` says which are the machinery's."""
    found: dict[tuple[str, str], OpenFile] = {}
    for pid, links in descriptors:
        for fd, target in links.items():
            if not target.startswith("/") or target.startswith(_NO_FILES):
                continue
            path = target.removesuffix(_DELETED)
            if own(path) or (status := procfs.regular_file(pid, fd)) is None:
                continue
            how = procfs.descriptor(pid, fd)
            if how is None:
                continue
            known = found.get((target, how.mode))
            if known is not None:
                if pid not in known.pids:
                    known.pids.append(pid)
                continue
            found[target, how.mode] = OpenFile(
                path=path,
                mode=how.mode,
                position=how.position,
                bytes=status.st_size,
                deleted=status.st_nlink == 0,
                pids=[pid],
            )
    return sorted(found.values(), key=lambda file: (_ORDER[file.mode], file.path))
