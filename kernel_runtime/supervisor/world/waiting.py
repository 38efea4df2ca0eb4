"""What a thread waits for, from the system call that it is in.

Resolves a descriptor to the child, peer or file behind it: a socket by its inode, a pipe by who else holds
its other end, a terminal's master by who runs on it. Reads the memory of the thread's process for the sets
of poll(2) and select(2), and nothing else of it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kernel_runtime.core.masking import mask_argv
from kernel_runtime.supervisor.world import procfs, syscalls
from kernel_runtime.supervisor.world.looks import Call, ThreadLook, descendants, thread
from kernel_runtime.supervisor.world.sockets import Tables

CHILD, SOCKET, LOCK, FILE = (
    "waiting on a child",
    "waiting on a socket",
    "waiting on a lock",
    "waiting on a file",
)
SLEEPING, TERMINAL, COMPUTING, UNKNOWN = "sleeping", "reading a terminal", "computing", "unknown"

_MOST_FDS = 64
_DEEPEST = 5
"""children of children that are told of"""
_ORDER = (CHILD, SOCKET, TERMINAL, FILE)
_POLLFD = struct.Struct("=ihh")
_P_PID, _P_PIDFD = 1, 3
_CHANNELS = {"child": CHILD, "lock": LOCK, "sleep": SLEEPING, "socket": SOCKET, "terminal": TERMINAL}


class Wait(Struct, frozen=True):
    doing: str
    evidence: dict[str, Any]


def wait_of(pid: int, found: ThreadLook, own: Callable[[int, str], bool], depth: int = 0) -> Wait:
    """What that thread waits for; `own(fd, target)` says which descriptors are the machinery's."""
    return _Waiting(pid, own, depth).of(found)


class _Waiting:
    def __init__(self, pid: int, own: Callable[[int, str], bool], depth: int) -> None:
        self._pid = pid
        self._own = own
        self._depth = depth
        self._tables = Tables()

    def of(self, found: ThreadLook) -> Wait:
        call = found.call
        if call is None:
            return self._by_channel(found)
        evidence: dict[str, Any] = {"syscall": call.name}
        name = call.name
        if name in ("wait4", "waitid"):
            return Wait(CHILD, evidence | self._awaited(call))
        if name in syscalls.SLEEPS:
            return Wait(SLEEPING, evidence)
        if name == "futex":
            waits = call.args[1] & syscalls.FUTEX_COMMAND in syscalls.FUTEX_WAITS
            return Wait(LOCK if waits else UNKNOWN, evidence | {"timed": call.args[3] != 0})
        if name in syscalls.ON_DESCRIPTOR:
            doing, about = self._descriptor(call.args[0] & 0xFFFFFFFF, reads=name.startswith("read"))
            return Wait(doing, evidence | about)
        if name == "openat":
            return Wait(FILE, evidence)
        return self._many(call, evidence)

    def _by_channel(self, found: ThreadLook) -> Wait:
        """Without the call's arguments: what the kernel's function says, and no more."""
        evidence = {"wchan": found.channel or None, "syscall": None, "state": found.state}
        for begin, kind in syscalls.BY_CHANNEL:
            if found.channel.startswith(begin) and kind in _CHANNELS:
                doing = _CHANNELS[kind]
                return Wait(doing, evidence | (self._awaited(None) if doing == CHILD else {}))
        return Wait(FILE if found.state == "D" else UNKNOWN, evidence)

    # -- children

    def _awaited(self, call: Call | None) -> dict[str, Any]:
        """The child that is waited for, or all of them."""
        wanted = None
        if call is not None and call.name == "wait4":
            number = _signed(call.args[0])
            wanted = number if number > 0 else None
        elif call is not None and call.args[0] == _P_PID:
            wanted = call.args[1]
        elif call is not None and call.args[0] == _P_PIDFD:
            wanted = self._of_pidfd(call.args[1])
        if wanted is not None:
            return {"child": self.child(wanted)}
        return {"children": [self.child(pid) for pid in sorted(procfs.children(self._pid))[:_MOST_FDS]]}

    def child(self, pid: int) -> dict[str, Any]:
        """A process that is waited for, and what it waits for itself."""
        stat = procfs.stat(pid)
        if stat is None:
            return {"pid": pid, "state": "gone"}
        about: dict[str, Any] = {
            "pid": pid,
            "command": mask_argv(procfs.command(pid) or [stat.comm]),
            "state": stat.state,
        }
        found = thread(pid, pid) if self._depth < _DEEPEST and stat.state in "SD" else None
        if found is not None:
            waits = wait_of(pid, found, lambda *_: False, self._depth + 1)
            about |= {"doing": waits.doing, **waits.evidence}
        elif stat.state == "R":
            about["doing"] = COMPUTING
        return about

    def _of_pidfd(self, fd: int) -> int | None:
        about = procfs.descriptor(self._pid, fd)
        match = re.search(r"^Pid:\s*(\d+)", about.text, re.MULTILINE) if about is not None else None
        return int(match[1]) if match else None

    # -- descriptors

    def _descriptor(self, fd: int, *, reads: bool) -> tuple[str, dict[str, Any]]:
        target = procfs.link(f"/proc/{self._pid}/fd/{fd}")
        about: dict[str, Any] = {"fd": fd}
        if (inode := procfs.inode(target, "socket")) is not None:
            one = self._tables.find(self._pid, inode)
            if one is not None:
                about |= {"protocol": one.protocol, "address": one.address, "peer": one.peer}
                about["socket"] = one.state
            return SOCKET, about
        if target.startswith("pipe:["):
            holders = [pid for pid in descendants(self._pid) if target in procfs.descriptors(pid).values()]
            about["file"] = target
            if holders:
                return CHILD, {**about, "child": self.child(holders[0]), "pipe_with": holders}
            return FILE, {**about, "other_end": "in this process"}
        if target == "anon_inode:[pidfd]" and (pid := self._of_pidfd(fd)) is not None:
            return CHILD, {**about, "child": self.child(pid)}
        if target in ("/dev/ptmx", "/dev/pts/ptmx"):
            users = self._on_terminal(fd)
            if users:
                return CHILD, {**about, "child": self.child(users[0]), "terminal_of": users}
            return FILE, {**about, "file": target}
        if target.startswith(("/dev/pts/", "/dev/tty")):
            return TERMINAL if reads else FILE, {**about, "terminal": target}
        if target.startswith("/"):
            return FILE, {**about, "file": target}
        return UNKNOWN, {**about, "file": target or None}

    def _on_terminal(self, master: int) -> list[int]:
        """Descendants whose controlling terminal is the slave of that master."""
        about = procfs.descriptor(self._pid, master)
        match = re.search(r"^tty-index:\s*(\d+)", about.text, re.MULTILINE) if about is not None else None
        if match is None:
            return []
        name = f"/dev/pts/{match[1]}"
        below = [(pid, procfs.stat(pid)) for pid in descendants(self._pid)]
        users = [pid for pid, stat in below if stat is not None and procfs.terminal_name(stat.tty) == name]
        # who sees other terminals (a container's, a sandbox's) is on another one of that number
        mine = procfs.terminals(self._pid)
        return [pid for pid in users if procfs.terminals(pid) in (mine, None)]

    def _many(self, call: Call, evidence: dict[str, Any]) -> Wait:
        """poll, select, epoll: whoever of them says most; of the machinery's none."""
        if call.name in syscalls.POLLS:
            fds, limited = self._polled(call), self._has_limit(call)
        elif call.name in syscalls.SELECTS:
            fds, limited = self._selected(call), call.args[4] != 0
        elif call.name in syscalls.EPOLLS:
            fds, limited = self._epolled(call), self._has_limit(call)
        else:
            return Wait(UNKNOWN, evidence)
        if fds is None:
            return Wait(UNKNOWN, evidence | {"descriptors": "could not be read"})
        links = {fd: procfs.link(f"/proc/{self._pid}/fd/{fd}") for fd in fds[:_MOST_FDS]}
        theirs = [fd for fd, target in links.items() if not self._own(fd, target)]
        evidence |= {"descriptors": len(fds), "timed": limited}
        if not theirs:
            if fds:
                evidence["event_loop"] = "the kernel's own"
            return Wait(SLEEPING if limited else UNKNOWN, evidence)
        if len(theirs) > 1:
            evidence["one_of"] = len(theirs)
        found = [self._descriptor(fd, reads=True) for fd in theirs]
        for kind in _ORDER:
            for doing, about in found:
                if doing == kind:
                    return Wait(doing, evidence | about)
        return Wait(UNKNOWN, evidence | found[0][1])

    def _has_limit(self, call: Call) -> bool:
        """The third argument of ppoll and the fourth of epoll_pwait2 are pointers, else milliseconds."""
        if call.name == "ppoll":
            return call.args[2] != 0
        if call.name == "poll":
            return _signed(call.args[2]) >= 0
        return call.args[3] != 0 if call.name == "epoll_pwait2" else _signed(call.args[3]) >= 0

    def _polled(self, call: Call) -> list[int] | None:
        count = min(call.args[1], _MOST_FDS)
        raw = self._memory(call.args[0], count * _POLLFD.size)
        if raw is None:
            return None
        return [fd for fd, _, _ in _POLLFD.iter_unpack(raw) if fd >= 0]

    def _selected(self, call: Call) -> list[int] | None:
        count = min(_signed(call.args[0]), 1024)
        found: set[int] = set()
        for pointer in call.args[1:4]:
            if not pointer:
                continue
            raw = self._memory(pointer, (count + 63) // 64 * 8)
            if raw is None:
                return None
            bits = int.from_bytes(raw, "little")
            found.update(fd for fd in range(count) if bits >> fd & 1)
        return sorted(found)

    def _epolled(self, call: Call) -> list[int] | None:
        about = procfs.descriptor(self._pid, call.args[0])
        if about is None:
            return None
        return [int(fd) for fd in re.findall(r"^tfd:\s*(\d+)", about.text, re.MULTILINE)]

    def _memory(self, address: int, size: int) -> bytes | None:
        try:
            fd = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            raw = os.pread(fd, size, address)
        except OSError:
            return None
        finally:
            os.close(fd)
        return raw if len(raw) == size else None


def _signed(value: int) -> int:
    """The int that was passed in a register of 64 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
