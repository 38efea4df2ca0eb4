"""What was seen, as rows of a report: INTERFACE.md's `resources`, described in docs/world.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.core.masking import mask_argv
from kernel_runtime.supervisor.world import files, memory, procfs, sockets
from kernel_runtime.supervisor.world.processes import Member

_WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting on a disk",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "I": "idle",
}


_SEEN_FROM_OUTSIDE = ("cwd", "files", "open_files", "error")
"""items of the kernel's view that the supervisor's own look tells better"""


def _evidence(member: Member) -> dict[str, Any]:
    evidence: dict[str, Any] = {"by": member.by}
    if member.execution_by is not None:
        evidence["execution"] = member.execution_by
    return evidence


def process_row(member: Member, kernel_argv: list[str]) -> dict[str, Any]:
    stat = member.stat
    argv = procfs.command(stat.pid)
    return {
        "kind": "process",
        "truth": "true",
        "started_by": member.execution_id,
        "pid": stat.pid,
        "command": mask_argv(argv or [stat.comm]),
        "fork": bool(argv) and argv == kernel_argv,
        "state": _WORDS.get(stat.state, stat.state),
        "started_at": iso_time(procfs.started_at(stat.start_time)),
        "cpu_seconds": stat.ticks / procfs.TICKS,
        "memory_bytes": stat.rss * procfs.PAGE,
        "parent": stat.ppid,
        "cwd": procfs.link(f"/proc/{stat.pid}/cwd") or None,
        "terminal": procfs.terminal_name(stat.tty) or None,
        "evidence": _evidence(member),
    }


def ended_row(ended: memory.Ended) -> dict[str, Any]:
    stat = ended.member.stat
    evidence = {**_evidence(ended.member), "seen": ended.seen}
    if ended.status is None:
        evidence["exit_status"] = "its parent had it before it was looked at"
    return {
        "kind": "process",
        "truth": "false",
        "started_by": ended.member.execution_id,
        "pid": stat.pid,
        "command": mask_argv(ended.command),
        "state": "ended",
        "started_at": iso_time(procfs.started_at(stat.start_time)),
        "ended_at": iso_time(ended.ended_at),
        **memory.how(ended),
        "ports": [],
        "evidence": evidence,
    }


def ports_of(found: list[tuple[sockets.Socket, list[int]]]) -> dict[int, list[int]]:
    ports: dict[int, list[int]] = {}
    for one, pids in found:
        if one.state == sockets.LISTENING and one.port is not None:
            for pid in pids:
                if one.port not in (mine := ports.setdefault(pid, [])):
                    mine.append(one.port)
    return ports


def _holder(pids: list[int], holders: Mapping[int, str | None], kernel: int | None) -> dict[str, Any]:
    return {
        "pid": pids[0],
        "pids": pids,
        "started_by": holders.get(pids[0]),
        "holder": "kernel" if pids[0] == kernel else "process",
    }


def socket_row(
    one: sockets.Socket, pids: list[int], holders: Mapping[int, str | None], kernel: int | None
) -> dict[str, Any]:
    return {
        "kind": "socket",
        "truth": "true",
        **_holder(pids, holders, kernel),
        "protocol": one.protocol,
        "state": one.state,
        "address": one.address,
        "port": one.port,
        "peer": one.peer,
    }


def file_row(one: files.OpenFile, holders: Mapping[int, str | None], kernel: int | None) -> dict[str, Any]:
    return {
        "kind": "file",
        "truth": "true",
        **_holder(one.pids, holders, kernel),
        "path": one.path,
        "mode": one.mode,
        "position": one.position,
        "bytes": one.bytes,
        "deleted": one.deleted,
    }


def terminal_rows(members: list[Member], kernel: int | None) -> list[dict[str, Any]]:
    """Terminals of the session's processes; the kernel's own is the supervisor's."""
    stat = procfs.stat(kernel) if kernel is not None else None
    # a terminal controls one session (setsid(2)), and its number is used again in every container
    by_terminal: dict[tuple[int, int], list[Member]] = {}
    for member in members:
        if member.stat.tty and (stat is None or member.stat.session != stat.session):
            by_terminal.setdefault((member.stat.tty, member.stat.session), []).append(member)
    return [
        {
            "kind": "terminal",
            "truth": "true",
            "started_by": users[0].execution_id,
            "path": procfs.terminal_name(device),
            "pid": users[0].stat.pid,
            "pids": [member.stat.pid for member in users],
        }
        for (device, _), users in by_terminal.items()
    ]


def env_rows(kernel: int | None) -> list[dict[str, Any]]:
    cwd = procfs.link(f"/proc/{kernel}/cwd") if kernel is not None else ""
    if not cwd:
        return []
    return [
        {
            "kind": "env",
            "truth": "true",
            "started_by": None,
            "name": "cwd",
            "value": cwd,
            "exists": Path(cwd).is_dir(),
        }
    ]


def settings_rows(world: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The kernel's own view: its environment (secrets masked), random states, settings of libraries."""
    return [
        {
            "kind": "env",
            "truth": "true" if "digest" in item else "unknown",
            "started_by": None,
            "name": name,
            **item,
        }
        for name, item in world.items()
        if name not in _SEEN_FROM_OUTSIDE and isinstance(item, Mapping)
    ]


def bounded(kind: str, rows: list[dict[str, Any]], limit: int, left_out: int = 0) -> list[dict[str, Any]]:
    """At most `limit` rows; how many more there were is a row of its own."""
    left_out += max(0, len(rows) - limit)
    if not left_out:
        return rows
    evidence = {"left_out": left_out}
    return [*rows[:limit], {"kind": kind, "truth": "unknown", "started_by": None, "evidence": evidence}]
