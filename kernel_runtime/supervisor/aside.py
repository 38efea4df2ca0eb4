"""Full reports, made beside the reactor: they may take as long as the journal has cells.

One at a time, on a thread of its own with a reader of its own, in one read transaction that is begun on
the reactor's thread: so a report tells of the state it was asked in, and of nothing that came later.

Invariant: whoever asks is told once, on the reactor's thread, the report or the fault.
Not promised: anything to those who still wait when the supervisor leaves; it does not wait for a report.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kernel_runtime.errors import InternalFault, KernelRuntimeError
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.truth import Report
from kernel_runtime.supervisor.claim_probes import Observers, Seen
from kernel_runtime.supervisor.report import Reporter

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

LONG = ("cells", "names", "plan")
"""fields of a report that grow with the journal"""


class Made(Struct, frozen=True):
    """A report, and what of it is long, as JSON already: that takes its time too."""

    report: Report
    long: dict[str, msgspec.Raw]

    def document(self, **fields: Any) -> dict[str, msgspec.Raw]:
        """The report as JSON, with these fields instead of its own."""
        short = {
            name: fields.get(name, getattr(self.report, name))
            for name in self.report.__struct_fields__
            if name not in self.long
        }
        return {**self.long, **{name: encoded(value) for name, value in short.items()}}


class _Asked(Struct, frozen=True):
    limit: int | None
    snapshot: Any
    on_made: Callable[[Made], None]
    on_fault: Callable[[KernelRuntimeError], None]


class Reports:
    """Makes the reports of one session, in the order in which they were asked for."""

    def __init__(
        self, supervisor: Supervisor, edited_sources: Callable[[], Mapping[str, str] | None]
    ) -> None:
        self._s = supervisor
        self._edited_sources = edited_sources
        self._thread = Observers(supervisor.reactor, threads=1)
        self._waiting: deque[_Asked] = deque()
        self._reader: JournalReader | None = None
        self._busy = False

    def ask(
        self,
        limit: int | None,
        snapshot: Any,
        on_made: Callable[[Made], None],
        on_fault: Callable[[KernelRuntimeError], None],
    ) -> None:
        """Have a report made of the state as it is when its turn comes."""
        self._waiting.append(_Asked(limit, snapshot, on_made, on_fault))
        self._next()

    def _next(self) -> None:
        while self._waiting and not self._busy:
            asked = self._waiting.popleft()
            try:
                reader = self._begin()
            except KernelRuntimeError as error:
                self._end()
                asked.on_fault(error)
                continue
            self._start(asked, reader)

    def _start(self, asked: _Asked, reader: JournalReader) -> None:
        self._busy = True
        state, observes = self._s.shell.state, self._s.keeper.observes
        reporter = Reporter(self._s.identity.name, reader, self._edited_sources, observes=lambda: observes)
        make = partial(reporter.full, state, asked.limit, asked.snapshot)
        self._thread.submit(partial(_made, make), partial(self._done, asked))

    def close(self) -> None:
        """Make no more; one that is being made is not waited for."""
        self._waiting.clear()
        self._thread.close()

    def _begin(self) -> JournalReader:
        if self._reader is None:
            self._reader = self._s.shell.journal.reader()
        # what it reads from now on is the journal of this moment, until `_end`
        self._reader.connection.execute("BEGIN")
        self._reader.head()
        return self._reader

    def _end(self) -> None:
        reader = self._reader
        if reader is not None and reader.connection.in_transaction:
            reader.connection.execute("ROLLBACK")

    def _done(self, asked: _Asked, seen: Seen) -> None:
        self._busy = False
        self._end()
        made, fault = seen.get("made"), seen.get("fault")
        try:
            if made is not None:
                asked.on_made(made)
            else:
                asked.on_fault(fault or InternalFault(f"no report could be made: {seen.get('unknown')}"))
        finally:
            self._next()


def _made(make: Callable[[], Report]) -> Seen:
    try:
        report = make()
    except KernelRuntimeError as error:
        return {"fault": error}
    return {"made": Made(report, {name: encoded(getattr(report, name)) for name in LONG})}


def encoded(value: Any) -> msgspec.Raw:
    """As JSON; a lone surrogate, which is legal in Python, is escaped."""
    try:
        return msgspec.Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return msgspec.Raw(json.dumps(msgspec.to_builtins(value)).encode("ascii"))
