"""One look at what the threads of a process do, cheap enough to be taken twice.

Everything is from /proc/PID/task. What may not be seen (another user's process, a kernel that hides system
calls) is None and not guessed.
"""

from __future__ import annotations

import time

from msgspec import Struct

from kernel_runtime.supervisor.world import procfs, syscalls

_MOST = 64
"""threads, and descendants, that are looked at"""


class Call(Struct, frozen=True):
    """The system call in which a thread waits."""

    name: str
    """`number 123` for one that is not known here"""
    args: tuple[int, ...]
    pointers: tuple[int, ...]
    """stack and instruction: the same ones in the same call"""


class ThreadLook(Struct, frozen=True, kw_only=True):
    tid: int
    state: str
    cpu: int
    """nanoseconds on a processor"""
    switches: int
    """voluntary ones: how often it has begun to wait"""
    call: Call | None
    channel: str
    """the kernel's function that it waits in; empty when it runs, or when it may not be seen"""

    @property
    def in_timed_futex(self) -> bool:
        """As one that waits for the GIL is."""
        return self.call is not None and self.call.name == "futex" and self.call.args[3] != 0


class Look(Struct, frozen=True, kw_only=True):
    pid: int
    at: float
    """monotonic seconds"""
    threads: dict[int, ThreadLook]
    descendants: dict[int, int]
    """processor time of each process below it, in nanoseconds"""

    @property
    def main(self) -> ThreadLook | None:
        return self.threads.get(self.pid)


def look(pid: int) -> Look:
    tids = procfs.threads(pid)[:_MOST]
    return Look(
        pid=pid,
        at=time.monotonic(),
        threads={tid: found for tid in tids if (found := thread(pid, tid)) is not None},
        descendants={child: processor_time(child, child) for child in descendants(pid)},
    )


def thread(pid: int, tid: int) -> ThreadLook | None:
    stat = procfs.stat(pid, tid)
    if stat is None:
        return None
    base = f"/proc/{pid}/task/{tid}"
    switches = 0
    for line in procfs.read(f"{base}/status").splitlines():
        if line.startswith(b"voluntary_ctxt_switches:"):
            switches = int(line.split()[1])
    channel = procfs.read(f"{base}/wchan").decode("ascii", "replace")
    return ThreadLook(
        tid=tid,
        state=stat.state,
        cpu=processor_time(pid, tid),
        switches=switches,
        call=parse_call(procfs.read(f"{base}/syscall")),
        channel="" if channel == "0" else channel,
    )


def parse_call(raw: bytes) -> Call | None:
    """None for a thread that runs, waits outside a system call (a page fault), or may not be seen."""
    fields = raw.split()
    if len(fields) != 9 or fields[0].startswith(b"-"):
        return None
    number = int(fields[0])
    values = tuple(int(field, 16) for field in fields[1:])
    return Call(syscalls.NAMES.get(number, f"number {number}"), values[:6], values[6:])


def processor_time(pid: int, tid: int) -> int:
    """Nanoseconds a thread has run; in ticks of 10 ms where the kernel keeps no finer count."""
    fields = procfs.read(f"/proc/{pid}/task/{tid}/schedstat").split()
    if fields:
        return int(fields[0])
    stat = procfs.stat(pid, tid)
    return stat.ticks * (1_000_000_000 // procfs.TICKS) if stat is not None else 0


def descendants(pid: int) -> list[int]:
    """Processes below that one, parents before their children, `_MOST` of them."""
    found: list[int] = []
    to_do = [pid]
    while to_do and len(found) < _MOST:
        below = sorted(procfs.children(to_do.pop(0)))
        found += below
        to_do += below
    return found[:_MOST]
