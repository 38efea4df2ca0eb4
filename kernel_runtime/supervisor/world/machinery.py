"""What of a kernel is the machinery's, not the session's: all that it held open before its first execution.

A kernel's own sockets have paths or ports that are known, and more that are not: its debugger listens too.
So what it holds is noted at the moment it is up, when no cell can have opened anything, and kept in a
file for whoever supervises next. Without that file only what has a known path or port is taken for its own.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.supervisor.door import write_private
from kernel_runtime.supervisor.launch import KernelRecord
from kernel_runtime.supervisor.world import procfs
from kernel_runtime.supervisor.world.looks import descendants

log = logging.getLogger("kernel_runtime.supervisor")


class Machinery(Struct, frozen=True, kw_only=True):
    process: process.ProcessId
    sockets: frozenset[int] = frozenset()
    """inodes"""
    files: frozenset[str] = frozenset()
    children: frozenset[tuple[int, int]] = frozenset()
    """pid and start time of each process below it: a kernel may be two, one of which runs the cells"""
    descriptors: dict[int, str] = {}
    """all of them, with what each was"""


NOTHING = Machinery(process=process.ProcessId(0, 0, ""))


def note(directory: Path, record: KernelRecord) -> Machinery:
    """What the kernel of that record holds now; written down, and the notes on earlier kernels removed."""
    descriptors = procfs.descriptors(record.process.pid)
    links = descriptors.values()
    found = Machinery(
        process=record.process,
        sockets=frozenset(inode for link in links if (inode := procfs.inode(link, "socket")) is not None),
        files=frozenset(link for link in links if link.startswith("/")),
        children=frozenset(
            (stat.pid, stat.start_time)
            for pid in descendants(record.process.pid)
            if (stat := procfs.stat(pid)) is not None
        ),
        descriptors=descriptors,
    )
    path = _path(directory, record)
    try:
        for old in directory.glob("kernel-*.own"):
            old.unlink(missing_ok=True)
        write_private(path, msgspec.json.encode(found))
    except OSError as error:  # the next supervisor will list some of the kernel's own sockets
        log.warning("%s could not be written: %s", path, error)
    return found


def load(directory: Path, record: KernelRecord) -> Machinery:
    """What a predecessor noted of that kernel; nothing where there is no such note."""
    try:
        found = msgspec.json.decode(_path(directory, record).read_bytes(), type=Machinery)
    except (OSError, msgspec.MsgspecError):
        return Machinery(process=record.process)
    return found if found.process == record.process else Machinery(process=record.process)


def _path(directory: Path, record: KernelRecord) -> Path:
    return directory / f"kernel-{record.incarnation}.own"
