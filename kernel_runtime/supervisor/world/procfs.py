"""/proc as values: one reader per file, total.

A process may end, change or belong to somebody else between any two lines here, so every reader has an
answer for that (None, or empty) and none raises. What is read was so at one moment; nothing here waits.
"""

from __future__ import annotations

import os
import re
import stat as stat_module
import time
from pathlib import Path

from msgspec import Struct

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
_CHUNK = 1 << 16
_MOST_FDS = 4096
"""descriptors of one process that are looked at"""


class Stat(Struct, frozen=True):
    """What /proc/PID/stat tells, as far as it is used here."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    tty: int
    """device number of the controlling terminal; 0: none"""
    ticks: int
    """user and system time"""
    threads: int
    start_time: int
    rss: int
    """pages"""
    exit_code: int
    """wait(2) status of a zombie; 0 also where we may not see it"""


class Descriptor(Struct, frozen=True):
    """An open file description: its flags as in open(2), and the position in it."""

    flags: int
    position: int
    text: str
    """the rest of fdinfo, which differs by kind"""

    @property
    def mode(self) -> str:
        """`read`, `write`, `append` or `read-write`."""
        if self.flags & os.O_ACCMODE == os.O_RDONLY:
            return "read"
        if self.flags & os.O_APPEND:
            return "append"
        return "write" if self.flags & os.O_ACCMODE == os.O_WRONLY else "read-write"


def read(path: str) -> bytes:
    """All of a file of /proc; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        chunks = []
        while chunk := os.read(fd, _CHUNK):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:  # gone since it was opened
        return b""
    finally:
        os.close(fd)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat(pid: int, tid: int | None = None) -> Stat | None:
    """A process, or one thread of it."""
    return parse_stat(read(f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"))


def parse_stat(raw: bytes) -> Stat | None:
    """None for what is no line of a stat file."""
    # comm may hold spaces and parentheses: the last one closes it
    begin, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 2 :].split()
    if begin < 0 or end < begin or len(fields) < 22:
        return None
    return Stat(
        pid=int(raw[: begin - 1]),
        comm=os.fsdecode(raw[begin + 1 : end]),
        state=fields[0].decode(),
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        tty=int(fields[4]),
        ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_time=int(fields[19]),
        rss=int(fields[21]),
        exit_code=int(fields[49]) if len(fields) > 49 else 0,
    )


def table() -> dict[int, Stat]:
    """Every process there is, zombies too."""
    return {pid: found for pid in pids() if (found := stat(pid)) is not None}


def environment(pid: int, wanted: str) -> dict[str, str]:
    """What a process was given when it was executed, if `wanted` is in it; a fork has that of its parent."""
    raw = read(f"/proc/{pid}/environ")
    if wanted.encode() not in raw:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command(pid: int) -> list[str]:
    """argv; empty for a zombie."""
    return [os.fsdecode(part) for part in read(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0") if part]


def children(pid: int) -> set[int]:
    """Direct children of all its threads, zombies too."""
    found: set[int] = set()
    for tid in threads(pid):
        found.update(int(child) for child in read(f"/proc/{pid}/task/{tid}/children").split())
    return found


def threads(pid: int) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


def link(path: str) -> str:
    """What a link of /proc points at; empty when it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def descriptors(pid: int) -> dict[int, str]:
    """What each of its descriptors is: a path, `socket:[INODE]`, `pipe:[INODE]`, `anon_inode:…`."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return {}
    found = {}
    for name in names[:_MOST_FDS]:
        if target := link(f"/proc/{pid}/fd/{name}"):
            found[int(name)] = target
    return found


def descriptor(pid: int, fd: int) -> Descriptor | None:
    text = read(f"/proc/{pid}/fdinfo/{fd}").decode("ascii", "replace")
    fields = dict(re.findall(r"^(pos|flags):\s*(\S+)", text, re.MULTILINE))
    try:
        return Descriptor(int(fields["flags"], 8), int(fields["pos"]), text)
    except (KeyError, ValueError):
        return None


def regular_file(pid: int, fd: int) -> os.stat_result | None:
    """The file behind a descriptor, also one whose name is gone; None for what is no regular file."""
    try:
        found = Path(f"/proc/{pid}/fd/{fd}").stat()
    except OSError:
        return None
    return found if stat_module.S_ISREG(found.st_mode) else None


def terminal(pid: int, fd: int) -> tuple[int, int] | None:
    """The device behind a descriptor, and the file system it is in; None for what is no device.

    Two containers have a /dev/pts/0 each, of the same device number: the file systems (devpts) differ.
    """
    # what is no device may be on a file system that never answers
    if not link(path := f"/proc/{pid}/fd/{fd}").startswith("/dev/"):
        return None
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return (found.st_dev, found.st_rdev) if stat_module.S_ISCHR(found.st_mode) else None


def terminals(pid: int) -> int | None:
    """The file system (devpts) of the terminals that a process sees; None where it is not told."""
    try:
        return Path(f"/proc/{pid}/root/dev/pts").stat().st_dev
    except OSError:
        return None


def inode(target: str, kind: str) -> int | None:
    """The number in `kind:[NUMBER]`."""
    if target.startswith(f"{kind}:[") and target.endswith("]"):
        return int(target[len(kind) + 2 : -1])
    return None


def terminal_name(device: int) -> str:
    """The path of a controlling terminal's device number; empty for none."""
    if device == 0:
        return ""
    major = (device >> 8) & 0xFFF
    minor = (device & 0xFF) | ((device >> 12) & 0xFFF00)
    if 136 <= major <= 143:  # Unix98 pseudo terminals, see proc(5) and devices.txt
        return f"/dev/pts/{(major - 136) * 256 + minor}"
    return f"/dev/tty{minor}" if major == 4 else f"device {major}:{minor}"


def started_at(start_time: int) -> int:
    """When a process with that start time (ticks since boot) started, UTC nanoseconds, to 10 ms."""
    boot = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return boot + start_time * (1_000_000_000 // TICKS)
