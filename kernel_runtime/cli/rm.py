"""`krt rm`: remove a session for ever."""

from __future__ import annotations

import sys

import click

from kernel_runtime.cli import frame, report


@frame.command("rm", example="krt rm alice --yes")
@frame.session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(*, name: str, yes: bool, as_json: bool, principal: str | None) -> int:
    """Remove a stopped session: its journal, checkpoints and own notebook. Asks first.

    A notebook that lies outside the session's directory stays.
    """
    del principal
    from kernel_runtime.client import session_files
    from kernel_runtime.errors import UsageError

    session = session_files.load(name)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError(f"session {name}: rm asks first, and nobody is there to ask", hint="pass --yes")
        if not click.confirm(
            f"remove session {name} and its journal in {session.directory}, for ever?", err=True
        ):
            return 0
    session_files.remove(name)
    if as_json:
        report.emit({"session": name, "removed": True})
    else:
        print(f"session {name}: removed")
    return 0
