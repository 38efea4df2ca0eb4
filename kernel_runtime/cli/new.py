"""`krt new`: create a session and start its kernel."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.client import blocking, session_files
from kernel_runtime.client.blocking import Session
from kernel_runtime.errors import KernelRuntimeError


@frame.command("new", example="krt new alice --cwd ~/project")
@frame.session_argument
@click.option("--kernel", metavar="SPEC", help="Kernelspec of its kernel; python3 by default.")
@click.option(
    "--cwd", type=click.Path(path_type=Path), metavar="DIR", help="Where its kernel starts; here by default."
)
@click.option("--notebook", type=click.Path(path_type=Path), metavar="FILE", help="Its notebook file.")
@click.option(
    "--transport",
    type=click.Choice(["ipc", "tcp"]),
    default="ipc",
    help="Front door: ipc, or tcp with CurveZMQ.",
)
def command(
    *,
    name: str,
    kernel: str | None,
    cwd: Path | None,
    notebook: Path | None,
    transport: str,
    as_json: bool,
    principal: str | None,
) -> int:
    """Create the session NAME and start its kernel.

    When the kernel cannot be started nothing is left behind.
    """
    file = session_files.create(
        name,
        kernel=kernel,
        cwd=cwd.expanduser() if cwd else None,
        notebook=notebook.expanduser() if notebook else None,
        principal=principal,
        transport=transport,
    )
    with blocking.observe(name, principal=principal) as session:
        try:
            session.attach()
            incarnation = session.start()
        except KernelRuntimeError as error:
            _undo(session, name)
            error.fields.setdefault("session", name)
            raise
        row = session.row()
    if as_json:
        report.emit(row)
    else:
        print(f"session {name}: {file.kernel}, incarnation {incarnation}, kernel pid {row.get('kernel_pid')}")
        report.note(f"  next: krt exec {name} 'x = 6 * 7; x'")
    return 0


def _undo(session: Session, name: str) -> None:
    """Take back a session in which nothing ever ran."""
    try:
        session.stop()
        session_files.remove(name)
    except KernelRuntimeError as error:
        report.note(f"[krt: and the session could not be taken back: {error.message}; `krt rm {name}`]")
