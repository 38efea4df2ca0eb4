"""Who waits for input from a terminal, as /proc shows it at one moment.

A process reads if one of its threads is inside read(2) on the terminal. It listens if a thread is inside
poll, select or epoll on the terminal, and on nothing that comes over a network: a server that also takes
keys serves, it is not blocked. Where a process may not be looked into (sudo is another user's) it is called
hidden, and only the terminal itself can say more.

A terminal's path and number say little: each container, and each sandbox with a /dev of its own, counts its
terminals from 0 again (devpts, Linux 4.7). So a process has this terminal if it belongs to the session
(setsid(2)) whose terminal it is, or its stdin is that very device, in that very file system.
Not promised: what is no system call (io_uring), and processes that left the terminal and have no end of it
as their stdin.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from msgspec import Struct

from kernel_runtime.supervisor.world import procfs, syscalls

_MOST_FDS = 1024
_DEV_TTY = os.makedev(5, 0)
"""a process's controlling terminal, whichever it is: tty(4)"""
_POLLIN = 0x1
_EPOLLIN = 0x1

_KINDS = {
    **dict.fromkeys(("read", "readv"), "read"),
    **dict.fromkeys(syscalls.POLLS, "poll"),
    **dict.fromkeys(syscalls.SELECTS, "select"),
    **dict.fromkeys(syscalls.EPOLLS, "epoll"),
}
"""system calls by what their arguments mean: fd first, pollfd array, fd_set, epoll fd"""


class Reader(Struct, frozen=True):
    """A process that waits for the terminal."""

    pid: int
    start_time: int
    how: str
    """`reads`, `listens`, or `hidden`: it sleeps, and may not be looked into"""
    ticks: int
    """processor time it has used: a listener that uses some between two looks is at work"""


class Look(Struct, frozen=True):
    """What one look found."""

    readers: tuple[Reader, ...]
    others: int
    """processes beside the kernel and its parent that have the terminal"""


def look(terminal: str, *, kernel: int, foster: int) -> Look:
    """Everybody who has this terminal, and who of them waits for it.

    `foster` is the leader of the session whose controlling terminal it is.

    Raises:
        OSError: the terminal is gone.
    """
    status = Path(terminal).stat()
    device = (status.st_dev, status.st_rdev)
    found: list[Reader] = []
    others = 0
    for pid in procfs.pids():
        stat = procfs.stat(pid)
        if stat is None or pid == foster or stat.state in "ZX":
            continue
        mine = stat.tty != 0 and stat.session == foster
        if not mine and procfs.terminal(pid, 0) != device:
            continue
        others += pid != kernel
        how = _waits(pid, _Terminal(device, mine=mine))
        if how == "hidden" and (stat.state != "S" or not mine):
            continue
        if how is not None:
            found.append(Reader(pid, stat.start_time, how, stat.ticks))
    order = ("reads", "hidden", "listens")
    found.sort(key=lambda reader: (order.index(reader.how), -reader.start_time, -reader.pid))
    return Look(tuple(found), others)


def reads(pid: int) -> int | None:
    """A count that stays as it is while a process stays in the read it is in; None where it is not told."""
    # who may not be looked into shows how often it has begun to wait, which is more often
    for file, name in (("io", b"syscr:"), ("status", b"voluntary_ctxt_switches:")):
        for line in procfs.read(f"/proc/{pid}/{file}").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return None


class _Terminal(Struct, frozen=True):
    device: tuple[int, int]
    mine: bool
    """it is the process's controlling terminal, so /dev/tty is it too"""

    def is_at(self, pid: int, fd: int) -> bool:
        found = procfs.terminal(pid, fd)
        return found == self.device or (self.mine and found is not None and found[1] == _DEV_TTY)


def _waits(pid: int, terminal: _Terminal) -> str | None:
    listens = False
    for tid in procfs.threads(pid):
        try:
            with open(f"/proc/{pid}/task/{tid}/syscall", "rb", buffering=0) as file:
                words = file.read(512).split()
        except PermissionError:
            return "hidden"
        except OSError:  # gone meanwhile
            continue
        if not words or not words[0].isdigit():  # `running`, or in no system call
            continue
        kind = _KINDS.get(syscalls.NAMES.get(int(words[0]), ""))
        if kind is None:
            continue
        arguments = [int(word, 16) for word in words[1:7]]
        if kind == "read":
            if terminal.is_at(pid, arguments[0]):
                return "reads"
            continue
        fds = _watched(pid, kind, arguments)
        if any(terminal.is_at(pid, fd) for fd in fds):
            listens |= not hears_a_network(pid, fds)
    return "listens" if listens else None


def _watched(pid: int, kind: str, arguments: list[int]) -> list[int]:
    """The descriptors that a call waits for to be readable."""
    if kind == "epoll":
        return _watched_by_epoll(pid, arguments[0])
    if kind == "poll":
        count = min(arguments[1], _MOST_FDS)
        raw = _memory(pid, arguments[0], 8 * count)
        entries = struct.iter_unpack("ihh", raw[: len(raw) // 8 * 8])
        return [fd for fd, events, _ in entries if fd >= 0 and events & _POLLIN]
    count = min(arguments[0], _MOST_FDS)
    raw = _memory(pid, arguments[1], -(-count // 8)) if arguments[1] else b""
    return [fd for fd in range(min(count, 8 * len(raw))) if raw[fd // 8] >> (fd % 8) & 1]


def _watched_by_epoll(pid: int, epoll: int) -> list[int]:
    fds = []
    for line in procfs.read(f"/proc/{pid}/fdinfo/{epoll}").decode("ascii", "replace").splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == "tfd:" and int(words[3], 16) & _EPOLLIN:
            fds.append(int(words[1]))
    return fds[:_MOST_FDS]


def _memory(pid: int, address: int, size: int) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(fd)


def hears_a_network(pid: int, fds: list[int]) -> bool:
    sockets = {
        inode
        for fd in fds
        if (inode := procfs.inode(procfs.link(f"/proc/{pid}/fd/{fd}"), "socket")) is not None
    }
    if not sockets:
        return False
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in procfs.read(f"/proc/{pid}/net/{table}").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[9].isdigit() and int(words[9]) in sockets:
                return True
    return False
