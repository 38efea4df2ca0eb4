"""What was once seen of the session's processes, and how those that are gone have ended.

A process that was seen is watched through a pidfd, so that its end has a time, and, where its parent has
not yet asked for it, an exit status: a zombie's is in /proc. One that was orphaned is the supervisor's own
child, and its status comes from wait(2). Where neither was to be had, the status is unknown and says so.

A process that ended while its execution still ran is told of for a minute; one that had outlived its
execution for as long as this supervisor lives, the last fifty of them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.supervisor.reactor import Reactor
from kernel_runtime.supervisor.world import procfs
from kernel_runtime.supervisor.world.processes import Member

WATCHED = 128
"""processes whose end is seen the moment it happens; of more, at the next look"""
KEPT = 50
SHORT = 60.0
"""seconds for which the end of a process is told that had not outlived its execution"""

Key = tuple[int, int]
"""pid and start time: a process, as long as this boot lasts"""


class Ended(Struct, frozen=True, kw_only=True):
    member: Member
    command: list[str]
    ended_at: int
    """UTC nanoseconds"""
    seen: str
    """`end`: at that instant; `gone`: it ended at some time before"""
    status: int | None
    """of wait(2)"""
    outlived: bool
    """the execution that started it had ended before it"""


class Memory:
    """Processes by pid and start time."""

    def __init__(self, reactor: Reactor, running: Callable[[], str | None]) -> None:
        self._reactor = reactor
        self._running = running
        """the execution that runs now"""
        self.members: dict[Key, Member] = {}
        self._commands: dict[Key, list[str]] = {}
        self._pidfds: dict[Key, int] = {}
        self._ended: deque[tuple[float, Ended]] = deque(maxlen=KEPT)

    def saw(self, members: list[Member], commands: dict[int, list[str]]) -> None:
        """These are the session's processes now: the others are gone."""
        present = set()
        for member in members:
            key = (member.stat.pid, member.stat.start_time)
            present.add(key)
            zombie = member.stat.state == "Z"
            if zombie and key not in self.members and self._is_told(key):
                continue
            self.members[key] = member
            if command := commands.get(member.stat.pid):
                self._commands[key] = command
            if zombie:
                self._over(key, seen="gone")
            else:
                self._watch(key)
        for key in [key for key in self.members if key not in present]:
            self._end(key, None, seen="gone")

    def ended(self) -> list[Ended]:
        """Those to tell of, the latest first."""
        now = time.monotonic()
        return [one for at, one in reversed(self._ended) if one.outlived or now - at < SHORT]

    def buried(self, pid: int, status: int, stat: procfs.Stat | None) -> None:
        """The supervisor has waited for an orphan; `stat` is what it was before."""
        key = next((known for known in self.members if known[0] == pid), None)
        if key is not None and (stat is None or stat.start_time == key[1]):
            self._end(key, status, seen="end")
            return

    def redacted(self, less: Callable[[Any], Any]) -> None:
        """A text was taken out of the journal: `less` takes it out of what is known here."""
        self.members, self._commands = less(self.members), less(self._commands)
        self._ended = deque(less(list(self._ended)), self._ended.maxlen)

    def _is_told(self, key: Key) -> bool:
        return any((one.member.stat.pid, one.member.stat.start_time) == key for _, one in self._ended)

    def close(self) -> None:
        for key in list(self._pidfds):
            self._forget(key)

    def _watch(self, key: Key) -> None:
        if key in self._pidfds or len(self._pidfds) >= WATCHED:
            return
        with contextlib.suppress(OSError):  # gone already, or no descriptor is left: the next look tells
            fd = os.pidfd_open(key[0])
            self._pidfds[key] = fd
            self._reactor.watch(fd, lambda: self._over(key))

    def _over(self, key: Key, seen: str = "end") -> None:
        """A watched process has ended; it is a zombie as long as its parent does not ask."""
        found = procfs.stat(key[0])
        status = None
        if found is not None and found.start_time == key[1]:
            if found.ppid == os.getpid():
                status = _bury(key[0])  # an orphan: only its parent by now may ask, and that is us
            elif found.state == "Z" and _may_see(key[0]):
                status = found.exit_code
        self._end(key, status, seen=seen)

    def _end(self, key: Key, status: int | None, *, seen: str) -> None:
        self._forget(key)
        member = self.members.pop(key, None)
        if member is None:
            return
        outlived = member.execution_id is None or member.execution_id != self._running()
        ended = Ended(
            member=member,
            command=self._commands.pop(key, [member.stat.comm]),
            ended_at=time.time_ns(),
            seen=seen,
            status=status,
            outlived=outlived,
        )
        self._ended.append((time.monotonic(), ended))

    def _forget(self, key: Key) -> None:
        fd = self._pidfds.pop(key, None)
        if fd is not None:
            self._reactor.forget(fd)
            os.close(fd)


def how(ended: Ended) -> dict[str, Any]:
    """`{"exit_status", "signal"}`, one of them None; both where it is not known."""
    unknown = {"exit_status": None, "signal": None}
    return unknown if ended.status is None else unknown | process.describe_exit(ended.status)


def _bury(pid: int) -> int | None:
    with contextlib.suppress(ChildProcessError):
        waited, status = os.waitpid(pid, os.WNOHANG)
        if waited == pid:
            return status
    return None


def _may_see(pid: int) -> bool:
    """The exit code in a stat file is 0 for whoever may not trace the process, which is no exit status."""
    return os.access(f"/proc/{pid}/environ", os.R_OK) or os.geteuid() == 0
