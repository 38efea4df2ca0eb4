"""`krt wait`: be at an execution again, from its start."""

from __future__ import annotations

import time

import click

from kernel_runtime.cli import frame, report


@frame.command("wait", example="krt wait alice --key training-1 --timeout 600")
@frame.session_argument
@click.argument("execution", required=False)
@click.option("--key", metavar="K", help="The execution that was queued with this key.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="S", help="Give up after S seconds; it goes on."
)
def command(
    *,
    name: str,
    execution: str | None,
    key: str | None,
    timeout: float | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Wait for EXECUTION (an id or its first letters; else the latest), and print what it printed.

    Needs no supervisor when the execution is done.
    """
    from kernel_runtime.cli.running import Watch
    from kernel_runtime.client import blocking
    from kernel_runtime.errors import UsageError

    if execution is not None and key is not None:
        raise UsageError(f"session {name}: EXECUTION and --key are both given", hint="give one of the two")
    deadline = None if timeout is None else time.monotonic() + timeout
    with blocking.observe(name, principal=principal) as session:
        row = session.find(execution, key=key)
        watch = Watch(
            session,
            row.execution_id,
            after=row.queued_seq - 1,
            deadline=deadline,
            quiet=as_json,
            interrupts=False,
        )
        status = watch.to_end()
        if as_json:
            report.emit(session.execution(row.execution_id).json())
        return status
