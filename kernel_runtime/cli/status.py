"""`krt status`: the truth table."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.client import blocking
from kernel_runtime.client.brief import shown
from kernel_runtime.client.status import Status

_ROWS = 20


@frame.command("status", example="krt status alice --check && echo all live")
@frame.session_argument
@click.option("--check", is_flag=True, help="Exit 8 if anything is not live.")
@click.option("--all", "show_all", is_flag=True, help=f"Every cell, not the worst {_ROWS}.")
def command(*, name: str, check: bool, show_all: bool, as_json: bool, principal: str | None) -> int:
    """Reconcile, and show the truth table, worst first.

    Reading it tells of a lost heap: the next exec is accepted.
    """
    with blocking.observe(name, principal=principal) as session:
        status = session.status(limit=None if as_json or show_all else _ROWS)
        blocked = session.running() if status.state == "blocked" else None
    if as_json:
        report.emit(status.json())
    else:
        _show(name, status, show_all=show_all)
        if blocked is not None and blocked.blocked is not None:
            prompt = shown(str(blocked.blocked.get("prompt") or ""))
            print(f"next: krt answer {name} TEXT (or --eof): {blocked.execution_id} asks {prompt!r}")
    return frame.NOT_ALL_LIVE if check and not status.all_live else 0


def _show(name: str, status: Status, *, show_all: bool) -> None:
    cells = status.json()["cells"]
    why = ""
    if status.state in ("dead", "unresponsive"):
        why = ", ".join(f"{key} {value}" for key, value in status.why.items() if isinstance(value, str | int))
    state = f"{status.state} ({why})" if why else status.state
    print(report.clean(f"session {name}: incarnation {status.incarnation}, {state}"))
    print(report.count_line(status.counts))
    if "names" in status.why:
        print(report.clean(f"truth of names: {status.why['names']}"))
    rows = cells if show_all else [cell for cell in cells if cell["truth"] != "live"][:_ROWS]
    if rows:
        print()
        report.cells_table(rows, limit=len(rows))
    total = sum(status.counts.values())
    if total > len(rows):
        print(f"… and {total - len(rows):,} more of {total:,} cells (--all lists them)")
    for step in [step for step in status.plan if step.action in ("restart", "wait") and step.target == name]:
        print(report.clean(f"next: {step.action} {step.target}: {step.reason}"))
