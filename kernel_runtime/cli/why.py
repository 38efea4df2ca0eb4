"""`krt why`: which executions made this value."""

from __future__ import annotations

from typing import Any

import click

from kernel_runtime.cli import frame, report


@frame.command("why", example="krt why alice total")
@frame.session_argument
@click.argument("variable")
@click.option("--no-source", is_flag=True, help="Leave the code out.")
def command(*, name: str, variable: str, no_source: bool, as_json: bool, principal: str | None) -> int:
    """Say which executions made VARIABLE what it is, with their code, in order.

    The one that bound it last, those that changed it since, and those that made what these read, as the
    kernel's probe observed it. Reads the journal alone, so it also answers for a heap that is gone.
    """
    del principal
    from kernel_runtime.client import session_files
    from kernel_runtime.client.why import why

    found = why(session_files.load(name), variable)
    if as_json:
        report.emit(found)
    else:
        _show(found, sources=not no_source)
    return 0


_STATES = {
    "present": "as it is now",
    "deleted": "as it was before it was deleted",
    "lost": "as it was; that heap is lost",
}


def _show(found: dict[str, Any], *, sources: bool) -> None:
    executions = found["executions"]
    count = f"{len(executions)} execution" + ("" if len(executions) == 1 else "s")
    state = _STATES[found["state"]]
    print(report.clean(f"{found['name']} of incarnation {found['incarnation']}, {state}: {count}"))
    for one in executions:
        did = ", ".join(f"{change['how']} {change['name']}" for change in one["because"])
        when = (one["started_at"] or "")[:19]
        print()
        print(
            report.clean(
                f"#{one['seq']} {one['execution_id'][:8]} {one['principal']} {when} {one['outcome']}: {did}"
            )
        )
        if one["dynamic"]:
            print(report.clean(f"  it may have read more: {', '.join(one['dynamic'])}"))
        if sources:
            print(report.clean("\n".join(f"    {line}" for line in one["source"].splitlines())))
    for drift in found["drifts"]:
        print()
        print(report.clean(f"#{drift['seq']} {drift['name']} was {drift['how']} by no execution"))
    if found["unobserved"]:
        print()
        print(f"not observed, and may have changed it too: {', '.join(x[:8] for x in found['unobserved'])}")
