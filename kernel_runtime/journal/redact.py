"""Take a text, or all that was said, out of a journal's payloads. The chain stays as it is.

The chain holds each payload's digest, not the payload: so the bytes can go, the digest stays, and a
PayloadRedacted in the same transaction says which entries, who, when, why, and what stands there now.
A redacted payload always stands in its entry's row: the table of large payloads goes by digests, and what
is written there is what was written.

Text that two stream messages share (its first half in one, its second in the next of the same execution
and stream) is found too. Not taken out, and told: text in what the chain itself hashes (principal,
execution_id), and in entries that say who the session is or what vouches for it.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
from msgspec import Struct

from kernel_runtime.core.projection import MOVES_EXECUTION, step_execution
from kernel_runtime.errors import NoSuchExecution, NotFound, UsageError
from kernel_runtime.journal import segments as sealing
from kernel_runtime.journal.blank import blanked
from kernel_runtime.journal.codec import digest_of
from kernel_runtime.journal.forms import Forms
from kernel_runtime.journal.reader import JournalReader
from kernel_runtime.journal.rows import replace_execution
from kernel_runtime.journal.segments import ENTRY_COLUMNS
from kernel_runtime.journal.streams import Shared
from kernel_runtime.journal.writer import Journal
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import Fact, PayloadRedacted, SegmentSealed

FIXED = frozenset(
    {
        "SessionCreated",
        "PayloadRedacted",
        "SegmentSealed",
        "HeadSigned",
        "HeadAnchored",
        "HeadWitnessed",
    }
)
"""kinds that are never changed: they say who the session is, or vouch for others"""

_ROW = frozenset(
    {"ExecutionQueued", "ExecutionFinished", "InputRequested", "InputAnswered", "InputWithdrawn"}
)
"""kinds whose text only the row of their own execution holds"""
_OF_QUEUED = frozenset({"source", "request", "key", "client_session"})
"""fields of ExecutionQueued that name nothing else"""
_OF_OBSERVED = frozenset({"effects", "unseen"})
"""fields of ExecutionObserved that no projection holds"""

_MOVING = sorted(kind.__name__ for kind in MOVES_EXECUTION)

_BATCH = 500


class Wanted(Struct, frozen=True, kw_only=True):
    """What is to be taken out: `forms` wherever they stand, or all that one execution or entry said."""

    reason: str
    forms: Forms | None = None
    execution_id: str | None = None
    entry: int | None = None

    @property
    def how(self) -> str:
        """As PayloadRedacted has it."""
        if self.forms is not None:
            return "text"
        return f"entry {self.entry}" if self.entry is not None else f"execution {self.execution_id}"


class Redacted(Struct, frozen=True, kw_only=True):
    """What was taken out of a journal."""

    seqs: list[int]
    kinds: dict[str, int]
    """kind → entries"""
    entry: int | None
    """of the PayloadRedacted; None: nothing was found, and nothing was written"""
    shared: int = 0
    """times that the text stood across two messages"""
    segments: list[str] = []
    """archived files that were written anew"""
    left: list[str] = []
    """where it stands and cannot be taken out, in words"""


def redact(journal: Journal, wanted: Wanted, principal: str, incarnation: int) -> Redacted:
    """Take it out, and write down who did that and why. Then `Journal.compact` empties file and log of it.

    Raises:
        NoSuchExecution, NotFound: no such execution or entry.
        UsageError: nothing is said in that entry.
        StorageFault: a segment is not there, or nothing can be written; nothing was changed.
        JournalCorrupt: a payload cannot be read.
    """
    run = _Run(journal, wanted, principal, incarnation)
    try:
        written = journal.rewrite(run.edit, refold=lambda: run.moves_all)
    except BaseException:
        for _old, new in run.files:
            new.unlink(missing_ok=True)
        raise
    for old, _new in run.files:
        old.unlink(missing_ok=True)
    return Redacted(
        seqs=sorted(run.replaced),
        kinds=dict(run.kinds),
        entry=written[-1].seq if written else None,
        shared=run.shared.found if run.shared is not None else 0,
        segments=[str(new) for _old, new in run.files],
        left=run.left,
    )


class _Run:
    """One redaction."""

    def __init__(self, journal: Journal, wanted: Wanted, principal: str, incarnation: int) -> None:
        self._path = journal.path
        self._wanted = wanted
        self._said = (principal, incarnation)
        self.shared = Shared(wanted.forms) if wanted.forms is not None else None
        self.replaced: dict[int, tuple[str, str]] = {}
        """seq → the entry's digest, sha256 of what stands there now"""
        self.kinds: Counter[str] = Counter()
        self.left: list[str] = []
        self.files: list[tuple[Path, Path]] = []
        """segments: the file that was, the file that is"""
        self.moves_all = False
        """whether names of things have changed, by which projections go"""
        self._moved: set[str] = set()
        """executions whose own rows have changed"""
        self._sealed_to = 0
        self._archived: dict[int, bytes] = {}
        """seq → what is to stand in its segment"""

    def edit(self, connection: apsw.Connection) -> list[Draft]:
        reader = JournalReader(self._path, connection)
        try:
            self._check(connection)
            self._sealed_to = reader.segments.last
            for row in self._rows(connection):
                self._look(reader, row)
            if not self.replaced:
                return []
            sealing.drop_unneeded(connection, self._sealed_to)
            if not self.moves_all:
                self._move_rows(reader)
            sealed = self._seal_anew(reader)
        finally:
            reader.segments.close()
        seqs = sorted(self.replaced)
        fact = PayloadRedacted(
            seqs=seqs,
            digests=[self.replaced[seq][0] for seq in seqs],
            replacements={str(seq): self.replaced[seq][1] for seq in seqs},
            reason=self._wanted.reason,
            how=self._wanted.how,
            characters=len(self._wanted.forms.text) if self._wanted.forms is not None else 0,
        )
        return [Draft(one, *self._said) for one in (*sealed, fact)]

    def _check(self, connection: apsw.Connection) -> None:
        wanted = self._wanted
        if wanted.execution_id is not None:
            query = "SELECT 1 FROM entries WHERE execution_id = ? LIMIT 1"
            if connection.execute(query, (wanted.execution_id,)).fetchone() is None:
                raise NoSuchExecution(
                    f"no execution {wanted.execution_id} in {self._path}",
                    hint="`krt log` lists what was executed",
                    execution_id=wanted.execution_id,
                )
        if wanted.entry is not None:
            query = "SELECT kind FROM entries WHERE seq = ?"
            row = connection.execute(query, (wanted.entry,)).fetchone()
            if row is None:
                raise NotFound(
                    f"no entry {wanted.entry} in {self._path}", hint="`krt log` lists them", seq=wanted.entry
                )
        if wanted.forms is not None:
            for column in ("principal", "execution_id"):
                query = f"SELECT count(*) FROM entries WHERE instr({column}, ?) > 0"
                (count,) = connection.execute(query, (wanted.forms.text,)).fetchone() or (0,)
                if count:
                    self.left.append(f"{column} of {count} entries: the chain holds it as it is")

    def _rows(self, connection: apsw.Connection) -> Iterator[Sequence[Any]]:
        wanted, after = self._wanted, 0
        where, values = "1", list[object]()
        if wanted.execution_id is not None:
            where, values = "execution_id = ?", [wanted.execution_id]
        elif wanted.entry is not None:
            where, values = "seq = ?", [wanted.entry]
        query = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE {where} AND seq > ? ORDER BY seq LIMIT {_BATCH}"
        # in batches: what has been read is changed meanwhile
        while batch := cast("list[Any]", connection.execute(query, (*values, after)).fetchall()):
            yield from batch
            after = batch[-1][0]

    def _look(self, reader: JournalReader, row: Sequence[Any]) -> None:
        seq, kind = row[0], row[5]
        payload = self._now(reader, row)
        less = self._less(kind, payload, seq)
        if self.shared is not None and kind == "OutputRecorded":
            changed = self.shared.take(
                seq, row[6], less, lambda other: self._now(reader, _row(reader, other))
            )
            less = changed.pop(seq, less)
            for other, now in changed.items():
                self._put(reader, _row(reader, other), now)
        if less == payload:
            return
        if kind in FIXED or not _still_of_its_kind(kind, row[6], less):
            self.left.append(f"entry {seq}, {kind}: it is never changed")
            return
        self._note(kind, row[6], payload, less)
        self._put(reader, row, less)

    def _note(self, kind: str, execution_id: str | None, before: bytes, after: bytes) -> None:
        """Which projections the change moves."""
        was, now = facts.decode(kind, before), facts.decode(kind, after)
        fields = {name for name in was.__struct_fields__ if getattr(was, name) != getattr(now, name)}
        if kind in _ROW and execution_id is not None:
            self._moved.add(execution_id)
            self.moves_all |= kind == "ExecutionQueued" and not fields <= _OF_QUEUED
        elif kind in ("ExecutionObserved", "NamesDrifted"):
            self.moves_all |= not fields <= _OF_OBSERVED

    def _move_rows(self, reader: JournalReader) -> None:
        """An execution's row comes of its own entries alone."""
        for execution_id in self._moved:
            execution: Execution | None = None
            for entry in reader.entries(execution_id=execution_id, kinds=_MOVING, limit=1 << 30):
                execution = step_execution(execution, entry)
            if execution is not None:
                replace_execution(reader.connection, execution)

    def _now(self, reader: JournalReader, row: Sequence[Any]) -> bytes:
        """The payload as it is by now."""
        archived = self._archived.get(row[0])
        return reader.payload_of(row) if archived is None else archived

    def _less(self, kind: str, payload: bytes, seq: int) -> bytes:
        if self._wanted.forms is not None:
            return self._wanted.forms.less_json(payload)
        less = blanked(facts.decode(kind, payload))
        if less is not None:
            return facts.encode(less)
        if self._wanted.entry is not None:
            raise UsageError(
                f"entry {seq} is a {kind}: nothing was said in it",
                hint="with --text-stdin a text is taken out wherever it stands",
                seq=seq,
            )
        return payload

    def _put(self, reader: JournalReader, row: Sequence[Any], payload: bytes) -> None:
        seq, kind, digest = row[0], row[5], row[8]
        if seq not in self.replaced:
            self.kinds[kind] += 1
        self.replaced[seq] = (digest, digest_of(payload))
        if kind in sealing.BULKY and seq <= self._sealed_to:
            self._archived[seq] = payload
        else:
            reader.connection.execute("UPDATE entries SET payload = ? WHERE seq = ?", (payload, seq))

    def _seal_anew(self, reader: JournalReader) -> list[SegmentSealed]:
        """Write the segments again that hold what is taken out; whole entries are in them, so all of it."""
        sealed: list[SegmentSealed] = []
        for segment in reader.segments.sealed():
            inside = {seq for seq in self.replaced if segment.first <= seq <= segment.last}
            if not inside:
                continue
            old = sealing.file_of(self._path, segment)
            source = sealing.open_segment(old)
            new = sealing.next_name(old)
            self.files.append((old, new))
            try:
                replaced = {seq: self._now(reader, _row(reader, seq)) for seq in inside}
                made = sealing.write(source, segment.first, segment.last, new, replaced)
            finally:
                source.close()
            sealed.append(sealing.relative(self._path, made))
        return sealed


def _row(reader: JournalReader, seq: int) -> Sequence[Any]:
    query = f"SELECT {ENTRY_COLUMNS} FROM entries WHERE seq = ?"
    row: Any = reader.connection.execute(query, (seq,)).fetchone()
    return cast("Sequence[Any]", row)


def _still_of_its_kind(kind: str, execution_id: str | None, payload: bytes) -> bool:
    """Whether what is left can be read as what it was, and belongs to what it belonged to."""
    try:
        fact: Fact = facts.decode(kind, payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return facts.execution_of(fact) == execution_id
