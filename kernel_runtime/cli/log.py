"""`krt log`: the journal's entries."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report


@frame.command(
    "log", example="krt log alice --after 100\nkrt log alice --last 20 --kind ExecutionFinished --json"
)
@frame.session_argument
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only entries after this one."
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Only entries of this kind; may be repeated."
)
@click.option("--execution", metavar="ID", help="Only entries of this execution.")
def command(
    *,
    name: str,
    after: int,
    last: int | None,
    kinds: tuple[str, ...],
    execution: str | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Print the journal's entries. Reads the journal itself: no supervisor is needed or started.

    With --json each line is one entry, complete.
    """
    del principal
    from kernel_runtime.cli.entries import entry_json, gist
    from kernel_runtime.cli.printing import write
    from kernel_runtime.client import session_files
    from kernel_runtime.core.execution_view import iso_time
    from kernel_runtime.errors import UsageError
    from kernel_runtime.journal import JournalReader
    from kernel_runtime.model.facts import KINDS

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(
            f"session {name}: no kind of entry {unknown[0]!r}", hint=f"kinds are: {', '.join(KINDS)}"
        )
    session = session_files.load(name)
    if not session.journal.exists():
        report.note(f"[krt: session {name} has no journal yet: nothing was ever run in it]")
        return 0
    with JournalReader.open(session.journal) as journal:
        end = journal.head()
        while after < end:
            batch = journal.entries(
                after,
                execution_id=execution,
                kinds=kinds or None,
                last=last,
                max_bytes=None if last else 1 << 20,
            )
            for entry in batch:
                if as_json:
                    report.emit_line(entry_json(entry))
                else:
                    who = f"{(entry.execution_id or '-')[:8]:8} {entry.principal}"
                    text = f"{entry.seq:>6} {iso_time(entry.at)[:23]} {who} {entry.kind} {gist(entry)}"
                    write(1, report.clean(text) + "\n")
            if not batch or last is not None:
                break
            after = batch[-1].seq
    return 0
