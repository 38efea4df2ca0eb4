"""`krt follow`: the session as it happens."""

from __future__ import annotations

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.cli.printing import Printer
from kernel_runtime.client.brief import shown
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import ExecutionFinished, ExecutionQueued, InputRequested


@frame.command("follow", example="krt follow alice --after 120")
@frame.session_argument
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Start after this entry; else with what runs now.",
)
def command(*, name: str, after: int | None, as_json: bool, principal: str | None) -> int:
    """Tail the session live, from a cursor on, until it is stopped or Ctrl-C.

    With --json each line is one journal entry.
    """
    from kernel_runtime.cli.entries import entry_json
    from kernel_runtime.client import blocking

    with blocking.observe(name, principal=principal) as session:
        cursor = session.present() if after is None else after
        tail = _Tail()
        try:
            for batch in session.follow_batches(cursor):
                for entry in batch:
                    if as_json:
                        report.emit_line(entry_json(entry))
                    else:
                        tail.show(entry)
                    cursor = entry.seq
            report.note(f"[krt: session {name} was stopped; read up to {cursor}]")
        except KeyboardInterrupt:
            report.note(
                f"\n[krt: read up to {cursor}; `krt follow {name} --after {cursor}` goes on from there]"
            )
    return 0


class _Tail:
    """Prints entries of many executions, with a headline whenever another one speaks."""

    def __init__(self) -> None:
        self._printer = Printer()
        self._speaker: str | None = ""

    def show(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, ExecutionQueued):
            self._headline(entry, f"{entry.principal} queued: {shown(fact.source)}")
        elif isinstance(fact, ExecutionFinished):
            error = f" {fact.error.get('ename')}" if fact.error else ""
            self._headline(entry, f"{fact.outcome}{error}")
        elif isinstance(fact, InputRequested):
            self._headline(entry, f"asks: {shown(fact.prompt)}")
        elif entry.kind in ("OutputRecorded", "GapRecorded"):
            if entry.execution_id != self._speaker:
                self._headline(entry, "prints")
            self._printer.entry(entry)
        elif entry.kind != "ExecutionStarted":
            self._headline(entry, entry.kind)

    def _headline(self, entry: Entry, what: str) -> None:
        self._printer.end()
        self._printer = Printer()
        self._speaker = entry.execution_id
        who = (entry.execution_id or "session")[:8]
        report.note(f"── {entry.seq} {iso_time(entry.at)[11:19]} {who} {what}")
