"""`krt anchor`: write the journal's head down where the session cannot change it."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report


@frame.command(
    "anchor",
    example=(
        "krt anchor alice --file /mnt/audit/anchors.jsonl\n"
        "  krt anchor alice --git\n"
        "  krt anchor alice --session bob"
    ),
)
@frame.session_argument
@click.option("--file", "file", metavar="F", help="Add a line of JSON to this file.")
@click.option(
    "--git",
    "git",
    metavar="[REPO]",
    is_flag=False,
    flag_value=".",
    help="Add a note to HEAD of a repository.",
)
@click.option("--session", "other", metavar="OTHER", help="Have this session's journal witness it.")
def command(
    *,
    name: str,
    file: str | None,
    git: str | None,
    other: str | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Write down elsewhere which entry is the last now: a tail that is cut off later is found by it."""
    import asyncio
    import os

    from kernel_runtime import places
    from kernel_runtime.client import heads
    from kernel_runtime.errors import UsageError

    asked = [
        (where, target) for where, target in (("file", file), ("git", git), ("session", other)) if target
    ]
    if len(asked) != 1:
        raise UsageError(
            f"session {name}: an anchor has one place",
            hint=f"krt anchor {name} --file F, --git [REPO] or --session OTHER",
        )
    where, target = asked[0]
    if where != "session":
        target = os.path.expanduser(target)
    made = asyncio.run(heads.anchor(name, where, target, principal=principal or places.principal()))
    if as_json:
        told = {"seq": made.head.seq, "hash": made.head.hash, "where": where, "reference": made.told}
        report.emit({"session": name, **told, "entry": made.entry})
    else:
        print(report.clean(f"session {name}: entry {made.head.seq} is anchored: {where} {made.told}"))
    return 0
