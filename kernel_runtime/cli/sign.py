"""`krt sign`: vouch for the journal up to now with a key."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_runtime.cli import frame, report


@frame.command("sign", example="krt sign alice --key ~/.ssh/id_ed25519")
@frame.session_argument
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    required=True,
    metavar="KEY",
    help="An Ed25519 key of ssh-keygen's; the public one, if an agent holds the other.",
)
def command(*, name: str, key: Path, as_json: bool, principal: str | None) -> int:
    """Sign the head of the journal's chain, and with it every entry before; `krt verify` checks it."""
    import asyncio

    from kernel_runtime import places
    from kernel_runtime.client import heads

    made = asyncio.run(heads.sign(name, key.expanduser(), principal=principal or places.principal()))
    if as_json:
        told = {"seq": made.head.seq, "hash": made.head.hash, "key": made.told, "entry": made.entry}
        report.emit({"session": name, **told})
    else:
        print(f"session {name}: signed up to entry {made.head.seq} by {made.told}")
    return 0
