"""`krt ls`: the sessions and their states."""

from __future__ import annotations

from kernel_runtime.cli import frame, report


@frame.command("ls", example="krt ls --json")
def command(*, as_json: bool, principal: str | None) -> int:
    """List the sessions and their states. Starts nothing."""
    from kernel_runtime.client import overview

    rows = overview.sessions(principal)
    if as_json:
        report.emit(rows)
    elif not rows:
        print("no sessions yet")
        report.note("  next: krt new NAME, or krt exec NAME --create CODE")
    else:
        report.table(
            ("name", "state", "incarnation", "executions", "kernel", "supervisor", "notebook"),
            [
                (
                    row["name"],
                    row["state"],
                    row["incarnation"],
                    row["executions"],
                    row["kernel_pid"],
                    row["supervisor_pid"],
                    row["notebook"],
                )
                for row in rows
            ],
            flexible="notebook",
        )
        for row in rows:
            if problem := row.get("problem"):
                report.note(f"[krt: session {row['name']}: {problem}]")
    return 0
