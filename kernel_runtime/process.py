"""Who a process is, beyond its number.

A pid alone proves nothing: it is reused. A process is named by boot id, pid and start time
(field 22 of /proc/PID/stat, clock ticks since boot), and nothing here signals a process whose
three do not match.
"""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct


class ProcessId(Struct, frozen=True):
    """A process, for ever."""

    pid: int
    start_time: int
    boot_id: str


@cache
def boot_id() -> str:
    """This boot's UUID."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on; None when there is no such process."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # comm may hold spaces and parentheses: the last one closes it
    return raw[raw.rindex(b")") + 2 :].decode("ascii").split()


def identify(pid: int) -> ProcessId | None:
    """The identity of a living pid; None when it does not exist or is a zombie."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return ProcessId(pid, int(fields[19]), boot_id())


def is_alive(who: ProcessId) -> bool:
    """Whether exactly this process lives (not a zombie, not another one with its pid)."""
    return who.boot_id == boot_id() and identify(who.pid) == who


def run_state(pid: int) -> str | None:
    """One letter as in proc(5): R, S, D, T, t, Z…; None when gone."""
    fields = stat_fields(pid)
    return fields[0] if fields else None


def signal_process(who: ProcessId, signum: int) -> bool:
    """Send a signal to exactly this process; False when it is gone.

    Uses a pidfd opened before the check, so that a pid reused in between is never hit.
    """
    try:
        fd = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(who):
            return False
        signal.pidfd_send_signal(fd, signum)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def signal_group(leader: ProcessId, signum: int) -> bool:
    """Send a signal to the process group that `leader` leads; False when the leader is gone or leads none."""
    if not is_alive(leader) or os.getpgid(leader.pid) != leader.pid:
        return False
    try:
        os.killpg(leader.pid, signum)
        return True
    except ProcessLookupError:
        return False


def environment_of(pid: int) -> dict[str, str] | None:
    """The environment a process started with; None when gone or not ours to read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(k): os.fsdecode(v) for k, _, v in pairs}


def marked_processes(variable: str, value: str) -> list[tuple[ProcessId, dict[str, str]]]:
    """Living processes whose starting environment holds `variable=value`, with that environment.

    Sees descendants that left the process tree; misses those that cleared their environment.
    """
    found: list[tuple[ProcessId, dict[str, str]]] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        env = environment_of(int(name))
        if env is not None and env.get(variable) == value:
            who = identify(int(name))
            if who is not None:
                found.append((who, env))
    return found


def command_line(pid: int) -> list[str]:
    """argv of a process; empty when gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [os.fsdecode(part) for part in raw.split(b"\0") if part]


def describe_exit(status: int) -> dict[str, Any]:
    """`{"exit_status"}` or `{"signal"}` of a wait(2) status."""
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return {"exit_status": os.WEXITSTATUS(status)}
