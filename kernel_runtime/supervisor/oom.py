"""Was it the out-of-memory killer? Only the cgroup's count or the kernel log can say so.

SIGKILL alone is not evidence: people send it too. The cgroup is looked up while the kernel lives,
because a dead process is in none (cgroup v1 moves it to the root).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_V2 = Path("/sys/fs/cgroup")
_V1 = Path("/sys/fs/cgroup/memory")


class OomWatch:
    """Remembers a process's memory cgroup and how many OOM kills it had counted."""

    def __init__(self) -> None:
        self._membership = b""
        self._counter: Path | None = None
        self._before = 0

    def note(self, pid: int) -> None:
        """Look where the process is now; cheap enough for every start of work."""
        membership = _membership(pid)
        if membership != self._membership:
            self._membership = membership
            self._counter = _counter(membership.decode())
            self._before = _kills(self._counter) if self._counter is not None else 0

    def evidence(self, pid: int) -> dict[str, Any]:
        """What says that the OOM killer ended `pid`, which SIGKILL did; empty if nothing does."""
        found: dict[str, Any] = {}
        if self._counter is not None:
            after = _kills(self._counter)
            if after > self._before:
                found["cgroup"] = {
                    "file": str(self._counter),
                    "oom_kill_before": self._before,
                    "oom_kill_after": after,
                }
        line = _kernel_log(pid)
        if line is not None:
            found["kernel_log"] = line
        return {"oom": found} if found else {}


def _membership(pid: int) -> bytes:
    """/proc/PID/cgroup as it is; empty when the process is gone."""
    try:
        fd = os.open(f"/proc/{pid}/cgroup", os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError):
        return b""
    try:
        return os.read(fd, 65536)
    except ProcessLookupError:
        return b""
    finally:
        os.close(fd)


def _counter(membership: str) -> Path | None:
    """The file that counts OOM kills of that memory cgroup (v2 or v1), if it can be read."""
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            file = _V1 / path.lstrip("/") / "memory.oom_control"
        elif not controllers:
            file = _V2 / path.lstrip("/") / "memory.events"
        else:
            continue
        if file.is_file():
            return file
    return None


def _kills(counter: Path) -> int:
    try:
        for line in counter.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except OSError:
        return 0  # the cgroup is gone with its processes: no count, no claim
    return 0


def _kernel_log(pid: int) -> str | None:
    """The kernel log's line on that kill, where this user may read the log."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    mark = f"Killed process {pid} ".encode()
    found: str | None = None
    try:
        while True:
            try:
                record = os.read(fd, 8192)
            except BrokenPipeError:  # overwritten while we read: go on with the next
                continue
            if mark in record:
                found = record.partition(b";")[2].splitlines()[0].decode("utf-8", "replace")
    except BlockingIOError:
        return found
    except OSError:
        return found
    finally:
        os.close(fd)
