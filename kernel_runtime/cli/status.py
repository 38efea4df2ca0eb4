"""`krt status`: the truth table."""

from __future__ import annotations

from typing import Any

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.client import blocking
from kernel_runtime.client.brief import shown
from kernel_runtime.client.status import Status
from kernel_runtime.client.world import activity_line
from kernel_runtime.model.truth import NAME_TRUTHS

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
    if as_json:
        report.emit(status.json())
    else:
        _show(name, status, show_all=show_all)
        if blocked := status.why.get("blocked"):
            asked = f"{status.why.get('execution_id')} asks {_asks(blocked)}"
            print(f"next: krt answer {name} TEXT (or --eof): {asked}")
    return frame.NOT_ALL_LIVE if check and not status.all_live else 0


def _asks(blocked: dict[str, Any]) -> str:
    """`'Password: ' (pid 4711, since 2026-…)`: what is asked, by whom and for how long."""
    told = ", ".join(f"{word} {blocked[word]}" for word in ("pid", "since") if blocked.get(word))
    prompt = shown(str(blocked.get("prompt") or ""))
    return report.clean(f"{prompt!r} ({told})" if told else f"{prompt!r}")


def _show(name: str, status: Status, *, show_all: bool) -> None:
    cells = status.json()["cells"]
    why = ""
    if status.state in ("dead", "unresponsive"):
        why = ", ".join(f"{key} {value}" for key, value in status.why.items() if isinstance(value, str | int))
    state = f"{status.state} ({why})" if why else status.state
    print(report.clean(f"session {name}: incarnation {status.incarnation}, {state}"))
    if activity := status.why.get("activity"):
        print(report.clean(f"doing: {activity_line(activity)}"))
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
    _show_names(status, show_all=show_all)
    for claim in status.claims:
        if claim["truth"] != "true":
            print(report.clean(f"claim {claim['claim_id']} is {claim['truth']}: {claim['text']}"))
    for step in [step for step in status.plan if step.action in ("restart", "wait") and step.target == name]:
        print(report.clean(f"next: {step.action} {step.target}: {step.reason}"))


def _show_names(status: Status, *, show_all: bool) -> None:
    names = [row for row in status.json()["names"] if show_all or row["truth"] != "live"]
    if counts := status.report.name_counts:
        told = ", ".join(f"{counts[truth]:,} {truth}" for truth in NAME_TRUTHS if counts.get(truth))
        print(f"names: {told or 'none'}")
    if names:
        rows = [
            (row["truth"], row["name"], row["type"], row["bytes"], ", ".join(row["shares_with"]))
            for row in names[: len(names) if show_all else _ROWS]
        ]
        report.table(("truth", "name", "type", "bytes", "shares with"), rows, flexible="shares with")
    if not show_all and len(names) > _ROWS:
        print(f"… and {len(names) - _ROWS:,} more names (--all lists them)")
