"""`krt bundle`: a session's record as one file that checks itself."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_runtime.cli import frame, report


@frame.command(
    "bundle", example="krt bundle alice alice.zip\nkrt bundle alice alice.zip --key ~/.ssh/id_ed25519"
)
@frame.session_argument
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a FILE that is there.")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="KEY", help="Sign all of it with this Ed25519 key."
)
def command(
    *, name: str, file: Path, force: bool, key: Path | None, as_json: bool, principal: str | None
) -> int:
    """Write the session's journal, notebook and environments to FILE, to be verified anywhere.

    Works beside a busy session, on its state at that moment; starts nothing.
    """
    del principal
    import msgspec

    from kernel_runtime.client import session_files
    from kernel_runtime.evidence import bundle

    session = session_files.load(name)
    target = file.expanduser().absolute()
    made = bundle.write(session.journal, target, force=force, key=key and key.expanduser())
    if as_json:
        report.emit(msgspec.to_builtins(made))
    else:
        signed = f", signed by {made.signed}" if made.signed else ""
        print(f"session {name}: {made.entries:,} entries in {target}{signed}")
        print(f"head {made.head} {made.head_hash}")
    return 0
