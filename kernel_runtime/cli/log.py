"""`krt log`: the journal's entries, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.errors import UsageError

if TYPE_CHECKING:
    from kernel_runtime.core.search import Query
    from kernel_runtime.journal import JournalReader
    from kernel_runtime.model.entry import Entry

_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@frame.command(
    "log",
    example="krt log alice --last 20 --kind ExecutionFinished --json\n"
    "krt log alice --by 'agent:*' --outcome error\n"
    "krt log alice --effect file:out.csv --kind ExecutionQueued",
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
@click.option("--by", metavar="PRINCIPAL", help="Of executions that it queued, and what else it did; a glob.")
@click.option("--outcome", metavar="OUTCOME", help="Of executions that ended so: ok, error, died, …")
@click.option("--variable", metavar="NAME", help="Of executions that bound, changed or read this name.")
@click.option(
    "--effect",
    metavar="KIND[:TEXT]",
    help="Of executions with such an effect: file, host, process, …; or effectful, effect-free.",
)
@click.option("--text", metavar="TEXT", help="Of executions that say this: source, output, error.")
@click.option("--since", metavar="TIME", help="Not before: 2026-11-30, 2026-11-30T14:00, or 90m ago.")
@click.option("--until", metavar="TIME", help="Not after.")
def command(
    *,
    name: str,
    after: int,
    last: int | None,
    kinds: tuple[str, ...],
    execution: str | None,
    by: str | None,
    outcome: str | None,
    variable: str | None,
    effect: str | None,
    text: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    principal: str | None,
) -> int:
    """Print the journal's entries. Reads the journal itself: no supervisor is needed or started.

    Conditions add up: an execution has to meet all of them, and then its entries are printed (--kind
    picks some). With --json each line is one entry, complete.
    """
    del principal
    from kernel_runtime.cli.entries import entry_json, gist
    from kernel_runtime.cli.printing import write
    from kernel_runtime.client import session_files
    from kernel_runtime.core.execution_view import iso_time
    from kernel_runtime.core.search import Query
    from kernel_runtime.journal import JournalReader
    from kernel_runtime.model.execution import OUTCOMES
    from kernel_runtime.model.facts import KINDS

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(
            f"session {name}: no kind of entry {unknown[0]!r}", hint=f"kinds are: {', '.join(KINDS)}"
        )
    if outcome is not None and outcome not in OUTCOMES:
        raise UsageError(
            f"session {name}: no outcome {outcome!r}", hint=f"outcomes are: {', '.join(OUTCOMES)}"
        )
    query = Query(
        principal=by,
        outcome=outcome,
        name=variable,
        effect=effect,
        text=text,
        since=None if since is None else _moment(name, since),
        until=None if until is None else _moment(name, until),
    )
    session = session_files.load(name)
    if not session.journal.exists():
        report.note(f"[krt: session {name} has no journal yet: nothing was ever run in it]")
        return 0
    with JournalReader.open(session.journal) as journal:
        for entry in _found(journal, query, after=after, last=last, kinds=kinds, execution=execution):
            if as_json:
                report.emit_line(entry_json(entry))
            else:
                who = f"{(entry.execution_id or '-')[:8]:8} {entry.principal}"
                line = f"{entry.seq:>6} {iso_time(entry.at)[:23]} {who} {entry.kind} {gist(entry)}"
                write(1, report.clean(line) + "\n")
    return 0


def _found(
    journal: JournalReader,
    query: Query,
    *,
    after: int,
    last: int | None,
    kinds: tuple[str, ...],
    execution: str | None,
) -> Iterator[Entry]:
    from collections import deque

    from kernel_runtime.core.entries import walk
    from kernel_runtime.core.search import Search

    end = journal.head()
    if query.is_empty:
        if last is not None:
            yield from journal.entries(after, execution_id=execution, kinds=kinds or None, last=last)
        else:
            yield from walk(journal, after, upto=end, kinds=kinds or None, execution_id=execution)
        return
    search = Search(query)
    for entry in walk(journal, upto=end, execution_id=execution):
        search.see(entry)
    entries = walk(journal, after, upto=end, kinds=kinds or None, execution_id=execution)
    found = (entry for entry in entries if search.wants(entry))
    yield from found if last is None else deque(found, maxlen=last)


def _moment(session: str, text: str) -> int:
    """UTC nanoseconds. A time without a zone is this machine's; `90m` is that long ago."""
    try:
        if text[-1:] in _AGO and text[:-1].isdigit():
            moment = datetime.now(UTC) - timedelta(seconds=int(text[:-1]) * _AGO[text[-1]])
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
        return int(moment.timestamp() * 1_000_000) * 1000
    except (ValueError, OverflowError):
        raise UsageError(
            f"session {session}: {text!r} is no time",
            hint="2026-11-30, 2026-11-30T14:00:00, 2026-11-30T14:00Z, or 90m for 90 minutes ago (s, m, h, d)",
        ) from None
