"""`krt spawn`: a process that belongs to the session."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from kernel_runtime.cli import frame, report


@frame.command(
    "spawn",
    example="krt spawn alice --name web -- python -m http.server 3000\nkrt spawn alice --wait -- make test",
)
@frame.session_argument
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
@click.option("--cwd", metavar="DIR", help="Where it starts; the session's directory by default.")
@click.option("--name", "process_id", metavar="ID", help="Its name in the session; p1, p2, … by default.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--wait", is_flag=True, help="Wait until it ends; exits 1 unless its exit status is 0.")
@click.option("--timeout", type=float, metavar="S", help="With --wait: for so long, then exit 6.")
def command(
    *,
    name: str,
    argv: tuple[str, ...],
    cwd: str | None,
    process_id: str | None,
    environment: tuple[str, ...],
    wait: bool,
    timeout: float | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Start a process that belongs to the session, on a terminal of its own.

    It ends with the session (`krt stop`), not with a client, the kernel or the supervisor.
    """
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        spawned = session.spawn(
            argv,
            cwd=None if cwd is None else Path(cwd).absolute(),
            env=dict(_pair(name, text) for text in environment),
            name=process_id,
        )
        document: dict[str, Any] = {"session": name, "process_id": spawned.process_id, "pid": spawned.pid}
        if not wait:
            if as_json:
                report.emit(document)
            else:
                print(f"{spawned.process_id} pid {spawned.pid}")
            return 0
        if not as_json:
            report.note(f"[krt: {spawned.process_id} pid {spawned.pid} runs {shlex.join(argv)}]")
        row = session.wait_process(spawned.process_id, timeout)
    if as_json:
        report.emit({**document, **row})
    else:
        print(f"{spawned.process_id} {ending(row)}")
    return 0 if row.get("exit_status") == 0 else 1


def ending(row: dict[str, Any]) -> str:
    """How a process ended, in words."""
    import signal

    if row.get("exit_status") is not None:
        return f"ended with exit status {row['exit_status']}"
    if row.get("signal") is not None:
        try:
            return f"was ended by {signal.Signals(row['signal']).name}"
        except ValueError:
            return f"was ended by signal {row['signal']}"
    return f"ended, and how is not known: {(row.get('evidence') or {}).get('found', 'nobody saw it')}"


def _pair(session: str, text: str) -> tuple[str, str]:
    from kernel_runtime.errors import UsageError

    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"session {session}: --env {text!r} sets nothing", hint="--env NAME=VALUE")
    return key, value
