"""`krt archive`: move a session's past into a sealed file."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_runtime.cli import frame, report


@frame.command("archive", example="krt archive alice\nkrt archive alice --before 10000 --to /mnt/archive")
@frame.session_argument
@click.option(
    "--before",
    type=click.IntRange(min=2),
    metavar="SEQ",
    help="The first entry that stays; by default all is sealed but what still runs.",
)
@click.option(
    "--to",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the file goes; by default `archive` in the session's directory.",
)
def command(
    *, name: str, before: int | None, directory: Path | None, as_json: bool, principal: str | None
) -> int:
    """Seal the journal's old entries: outputs and observations move into a file, the chain stays.

    Everything reads them from there as before; `krt verify` checks both together.
    """
    import asyncio

    from kernel_runtime import places
    from kernel_runtime.client import redaction

    who = principal or places.principal()
    where = None if directory is None else directory.expanduser().absolute()
    done = asyncio.run(redaction.archive(name, before=before, directory=where, principal=who))
    if as_json:
        report.emit({"session": name, **done})
        return 0
    size = done["journal_bytes"]
    print(f"session {name}: entries {done['first']} to {done['last']} are sealed in {done['file']}")
    print(f"  {done['bytes']:,} bytes, sha256 {done['sha256']}; entry {done['entry']} says so")
    print(f"  the journal had {size['before']:,} bytes and has {size['after']:,}")
    for what in done["left"]:
        print(report.clean(f"  NOT DONE: {what}"))
    return 0
