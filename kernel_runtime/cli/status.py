"""`krt status`: the truth table."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report

_ROWS = 20


@frame.command("status", example="krt status alice --check && echo all live")
@frame.session_argument
@click.option("--check", is_flag=True, help="Exit 8 if anything is not live.")
@click.option("--all", "show_all", is_flag=True, help=f"Every cell, not the worst {_ROWS}.")
def command(*, name: str, check: bool, show_all: bool, as_json: bool, principal: str | None) -> int:
    """Reconcile, and show the truth table, worst first.

    Reading it tells of a lost heap: the next exec is accepted.
    """
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        status = session.status(limit=None if as_json or show_all else _ROWS)
    if as_json:
        report.emit(status.json())
    else:
        cells = status.json()["cells"]
        why = "; ".join(f"{key} {value}" for key, value in status.why.items() if isinstance(value, str | int))
        print(
            report.clean(
                f"session {name}: incarnation {status.incarnation}, {status.state}"
                + (f" ({why})" if why else "")
            )
        )
        print(report.count_line(status.counts))
        shown = cells if show_all else [cell for cell in cells if cell["truth"] != "live"][:_ROWS]
        if not shown:
            shown = cells[:_ROWS]
        if shown:
            print()
            report.cells_table(shown, limit=len(shown))
        total = sum(status.counts.values())
        if total > len(shown):
            print(f"… and {total - len(shown):,} more of {total:,} cells (--all lists them)")
        for step in [step for step in status.plan if step.action in ("restart", "wait")][:3]:
            print(report.clean(f"next: {step.action} {step.target}: {step.reason}"))
        for cell in status.cells.values():
            if cell.evidence.get("prompt"):
                print(report.clean(f"next: krt answer {name} TEXT   (asked: {cell.evidence['prompt']})"))
    return frame.NOT_ALL_LIVE if check and not status.all_live else 0
