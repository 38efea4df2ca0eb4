"""`krt ps`: what the session has around its heap."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from kernel_runtime.cli import frame, report

_FILES = 10
"""open files shown to a person; --json has them all"""
_COMMAND = 56
"""letters of a command line shown to a person"""

Row = dict[str, Any]


@frame.command("ps", example="krt ps alice\nkrt ps alice --json")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """List the session's processes, ports, connections and open files, with what started them."""
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        rows = session.resources()
        about = session.row()
        why = session.why()["why"] if about["state"] == "busy" and not as_json else {}
    if as_json:
        report.emit(rows)
    else:
        _show(name, about, rows, why)
    return 0


def _show(name: str, about: Row, rows: list[Row], why: Row) -> None:
    from kernel_runtime.client.world import activity_line

    kernel = f"kernel pid {about['kernel_pid']}" if about.get("kernel_pid") else "no kernel"
    cwd = next((f", in {row['value']}" for row in rows if row.get("name") == "cwd"), "")
    print(report.clean(f"session {name}: {about['state']}, {kernel}{cwd}"))
    if why.get("activity"):
        print(report.clean(f"{why.get('source') or 'the cell'}: {activity_line(why['activity'])}"))
    processes = [row for row in rows if row["kind"] == "process" or row.get("process_id")]
    alive = [row for row in processes if row["truth"] == "true"]
    _section(
        "",
        [row for row in alive if row.get("pid")],
        {
            "pid": lambda row: row["pid"],
            "process": _command,
            "started by": _started_by,
            "since": lambda row: _age(row.get("started_at")),
            "ports": lambda row: " ".join(str(port) for port in row.get("ports", [])),
            "state": lambda row: row.get("state"),
            "cpu": lambda row: _seconds(row.get("cpu_seconds")),
            "memory": lambda row: size(row.get("memory_bytes")),
        },
        flexible="process",
    )
    if not alive:
        print("no process of the session is alive")
    _section(
        "ended",
        [row for row in processes if row["truth"] == "false"],
        {
            "pid": lambda row: row.get("pid"),
            "process": _command,
            "started by": _started_by,
            "ended": lambda row: _age(row.get("ended_at"), " ago"),
            "how": _how,
        },
        flexible="process",
    )
    _section(
        "ports and connections",
        [row for row in rows if row["kind"] == "socket" and "address" in row],
        {
            "state": lambda row: row["state"],
            "protocol": lambda row: row["protocol"],
            "address": lambda row: row["address"],
            "peer": lambda row: row["peer"],
            "held by": _holder,
        },
        flexible="address",
    )
    open_files = [row for row in rows if row["kind"] == "file" and "path" in row]
    _section(
        "open files",
        open_files[:_FILES],
        {
            "open for": lambda row: row["mode"],
            "file": lambda row: row["path"] + (" (deleted)" if row["deleted"] else ""),
            "size": lambda row: size(row["bytes"]),
            "held by": _holder,
        },
        flexible="file",
    )
    if len(open_files) > _FILES:
        print(f"… and {len(open_files) - _FILES} more (--json lists them)")
    for row in rows:
        if left := row.get("evidence", {}).get("left_out"):
            print(f"… and {left} more of kind {row['kind']}, beyond the bound")


def _section(
    title: str, rows: list[Row], columns: dict[str, Callable[[Row], object]], *, flexible: str
) -> None:
    if not rows:
        return
    print(f"\n{title}" if title else "")
    report.table(list(columns), [[cell(row) for cell in columns.values()] for row in rows], flexible=flexible)


def _command(row: Row) -> str:
    argv = list(row.get("command") or row.get("argv") or [])
    if row.get("fork"):
        return "a fork of the kernel"
    if argv:
        argv[0] = argv[0].rpartition("/")[2] or argv[0]
    line = shlex.join(argv)
    return line if len(line) <= _COMMAND else line[: _COMMAND - 1] + "…"


def _started_by(row: Row) -> str:
    if row.get("process_id"):
        return f"krt {'term' if row.get('interactive') else 'spawn'} {row['process_id']}"
    execution_id = row.get("started_by")
    if execution_id is None:
        return "not known"
    return f"{execution_id[:8]} {str(row.get('source') or '')[:40]}".rstrip()


def _how(row: Row) -> str:
    if row.get("signal") is not None:
        return f"signal {row['signal']}"
    if row.get("exit_status") is not None:
        return f"exit {row['exit_status']}"
    return "not known"


def _holder(row: Row) -> str:
    others = len(row["pids"]) - 1
    return f"{row['holder']} {row['pid']}" + (f" and {others} more" if others else "")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _age(moment: str | None, suffix: str = "") -> str:
    """How long ago that was, in one unit."""
    if moment is None:
        return ""
    seconds = max(0.0, time.time() - datetime.fromisoformat(moment).timestamp())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}{suffix}"
    return f"{seconds:.0f} s{suffix}"


def size(count: int | None) -> str:
    """Bytes in a unit that leaves three digits or so."""
    if count is None:
        return ""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
