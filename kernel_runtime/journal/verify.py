# ruff: noqa: S608 - the only parts put into statements are constants of this package
"""The whole check: chain, payloads, projections, schema, file.

Reads every byte that means something and computes everything again from the entries alone. Damage
is described, with `seq` wherever an entry is concerned, and does not stop the walk: what lies behind
a page that cannot be read is checked too. Nothing is mended. Works beside a living writer, on the
state at the moment it began.

It cannot tell a journal that was rewritten as a whole, hashes included, from the true one, unless
somebody kept an earlier `head_hash`; the writer's lock file keeps one.

A redacted payload does not fit its entry's digest: it is well if the last PayloadRedacted that names its
entry gives its sha256. An archived one is looked for in its segment; where that is not there, the chain
is checked all the same, and the projections are not.

Memory: bounded, whatever the journal's length. What the entries amount to is folded into a temporary
database, by the code with which the writer keeps its tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
from msgspec import Struct

from kernel_runtime.errors import JournalCorrupt, JournalNewer, StorageFault
from kernel_runtime.journal import faults, lock, schema, segments
from kernel_runtime.journal.codec import GENESIS, BadPayload, digest_of, entry_hash, unpack
from kernel_runtime.journal.reader import JournalReader, entry_of_row
from kernel_runtime.journal.refolded import PROJECTIONS, Refolded, as_bytes
from kernel_runtime.journal.segments import ENTRY_COLUMNS
from kernel_runtime.model import facts
from kernel_runtime.model.facts import PayloadRedacted, SegmentSealed

_MOST = 100
"""problems listed; the rest is counted"""

_PROBE = 10_000
"""entries tried one by one behind a page that cannot be read"""


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written."""

    where: str
    """`file`, `schema`, `entries`, `payloads`, `archive`, or the name of a projection"""
    what: str
    seq: int | None = None
    """the entry concerned, or the entry whose execution the row is about"""


class Redaction(Struct, frozen=True, kw_only=True):
    """One PayloadRedacted."""

    seq: int
    at: int
    """UTC, nanoseconds since the epoch"""
    principal: str
    reason: str
    how: str
    entries: int
    """how many it took something out of"""


class Archive(Struct, frozen=True, kw_only=True):
    """One segment that stands."""

    first: int
    last: int
    file: str
    state: str
    """`whole`, `missing`, `differs`"""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What `krt verify` says. `problems` holds the first 100 of `found`."""

    ok: bool
    entries: int
    head: int
    """the last `seq`"""
    head_hash: str
    projections: str
    """`match`, `differ`, or `unknown` where entries could not be read to compute them"""
    problems: list[Problem] = []
    found: int = 0
    chain: str = "whole"
    """`whole` or `broken`: whether entries are there from the first on, each as it was hashed"""
    redacted: int = 0
    """entries whose payload is not what was written, as a PayloadRedacted says"""
    redactions: list[Redaction] = []
    archive: list[Archive] = []


def verify(path: Path | str) -> VerifyReport:
    """Check a journal from its first entry to its last.

    Raises:
        NotFound: no file there.
        DiskFull: no temporary space for checking.
        JournalNewer: written by a newer version, so its meaning is not known here.
        JournalBusy, StorageFault: it cannot be read at the moment.
    """
    path = Path(path)
    try:
        return _verified(path)
    except apsw.FullError as error:  # of the temporary database: no other is written
        raise faults.no_temporary_space(path, error) from error


def _verified(path: Path) -> VerifyReport:
    check = _Check(path)
    marks = lock.marks_of(path)  # before the journal: a writer moves them after its commit
    try:
        reader = JournalReader.open(path)
    except JournalCorrupt as error:
        check.report("file", error.message)
        return check.conclude()
    with reader, check.refolded:
        check.run(reader, marks)
    return check.conclude()


class _Check:
    """One run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.found = 0
        self.entries = 0
        self.head: lock.Mark = (0, GENESIS)
        self.refolded = Refolded()
        self.complete = True
        """whether every entry could be folded"""
        self.compared = False
        self.differs = False
        self.chain = True
        self.redacted = 0
        self.redactions: list[Redaction] = []
        self.archive: list[Archive] = []
        self._replaced: dict[int, tuple[int, str, str]] = {}
        """seq → seq of the PayloadRedacted, digest of what was written, sha256 of what is there now"""
        self._segments: segments.Segments | None = None

    def report(self, where: str, what: str, seq: int | None = None) -> None:
        self.found += 1
        if len(self.problems) < _MOST:
            self.problems.append(Problem(where=where, what=what, seq=seq))

    def conclude(self) -> VerifyReport:
        known = self.complete and self.compared
        return VerifyReport(
            ok=self.found == 0,
            entries=self.entries,
            head=self.head[0],
            head_hash=self.head[1],
            projections="unknown" if not known else "differ" if self.differs else "match",
            problems=self.problems,
            found=self.found,
            chain="whole" if self.chain else "broken",
            redacted=self.redacted,
            redactions=self.redactions[:_MOST],
            archive=self.archive,
        )

    def run(self, reader: JournalReader, marks: Sequence[lock.Mark]) -> None:
        connection = reader.connection
        self._segments = reader.segments
        steps = (
            ("file", lambda: connection.execute("BEGIN")),  # one state for all that follows
            ("schema", lambda: self._schema(connection)),
            ("entries", lambda: self._redactions(connection)),
            ("archive", lambda: self._archive(reader.segments)),
            ("entries", lambda: self._walk(connection, dict(marks))),
            ("payloads", lambda: self._unreferenced(connection)),
            ("projections", lambda: self._compare(connection)),
            ("file", lambda: self._integrity(connection)),
        )
        for where, step in steps:
            try:
                step()
            except apsw.FullError:
                raise
            except apsw.Error as error:
                self.report(where, f"cannot be read: {error}")
                if where == "entries":
                    self.complete = self.chain = False

    def _redactions(self, connection: apsw.Connection) -> None:
        """What PayloadRedacted say; whether they are as they were written is found by the walk."""
        query = (
            "SELECT seq, at, CAST(principal AS BLOB), payload, CAST(digest AS BLOB) FROM entries "
            f"WHERE kind = 'PayloadRedacted' AND {schema.RARE} ORDER BY seq"
        )
        found: list[Any] = connection.execute(query).fetchall()
        for seq, at, principal, inline, digest in found:
            try:
                payload = inline
                if payload is None:
                    payload = segments.kept(connection, seq, digest.decode("utf-8"), self.path) or b""
                fact = facts.decode("PayloadRedacted", payload)
            except (JournalCorrupt, msgspec.DecodeError, UnicodeDecodeError):
                continue
            assert isinstance(fact, PayloadRedacted)
            for number, written in zip(fact.seqs, fact.digests, strict=False):
                self._replaced[number] = (seq, written, fact.replacements.get(str(number), ""))
            self.redactions.append(
                Redaction(
                    seq=seq,
                    at=at,
                    principal=principal.decode("utf-8", "backslashreplace"),
                    reason=fact.reason,
                    how=fact.how,
                    entries=len(fact.seqs),
                )
            )

    def _archive(self, archive: segments.Segments) -> None:
        """Each segment's file, as a whole; its payloads are looked at by the walk."""
        for segment in archive.sealed():
            file, state = segments.file_of(self.path, segment), "whole"
            try:
                self._segment(segment, file)
            except FileNotFoundError:
                state = "missing"
                self.report(
                    "archive",
                    f"the segment {file} is not there: what it holds of entries {segment.first} to "
                    f"{segment.last} cannot be checked",
                )
            except (OSError, apsw.Error, JournalCorrupt, StorageFault, ValueError) as error:
                state = "differs"
                self.report("archive", f"the segment {file} is not what was sealed: {error}")
            self.archive.append(Archive(first=segment.first, last=segment.last, file=str(file), state=state))

    def _segment(self, segment: SegmentSealed, file: Path) -> None:
        if segments.digest_of_file(file) != segment.sha256:
            raise ValueError("its sha256 is another one")
        connection = segments.open_segment(file)
        try:
            count, first, last = next(connection.execute("SELECT count(*), min(seq), max(seq) FROM entries"))
            (head,) = next(connection.execute("SELECT hash FROM entries WHERE seq = ?", (last,)))
        finally:
            connection.close()
        expected = (segment.last - segment.first + 1, segment.first, segment.last, segment.head_hash)
        if (count, first, last, head) != expected:
            raise ValueError(f"it holds {count} entries, {first} to {last}")

    def _schema(self, connection: apsw.Connection) -> None:
        wanted, there = schema.declared(), schema.objects(connection)
        for kind, name in sorted(wanted.keys() | there.keys()):
            if (kind, name) not in there:
                self.report("schema", f"{kind} {name} is missing")
            elif (kind, name) not in wanted:
                self.report("schema", f"{kind} {name} is not ours")
            elif wanted[kind, name] != there[kind, name]:
                self.report("schema", f"{kind} {name} was changed")

    def _walk(self, connection: apsw.Connection, marks: dict[int, str]) -> None:
        for row in self._rows(connection):
            seq = row[0]
            self.entries += 1
            if seq != self.head[0] + 1:
                self._broken(f"entries {self.head[0] + 1} to {seq - 1} are not there", seq)
                self.complete = False
            hashed = self._entry(connection, row)
            if seq in marks and hashed != marks.pop(seq):
                self._broken("another entry than was acknowledged here (see the lock file)", seq)
            self.head = (seq, hashed)
        for seq in marks:
            self._broken(f"acknowledged, but the journal ends at {self.head[0]}", seq)

    def _broken(self, what: str, seq: int) -> None:
        self.chain = False
        self.report("entries", what, seq)

    def _rows(self, connection: apsw.Connection) -> Iterator[Sequence[Any]]:
        query = f"SELECT {as_bytes(ENTRY_COLUMNS)} FROM entries WHERE seq > ? ORDER BY seq"
        after, tries = 0, 0
        while True:
            try:
                for row in connection.execute(query, (after,)):
                    after, tries = row[0], 0
                    yield row
            except apsw.Error as error:
                self.complete = False
                if tries == 0:
                    self._broken(f"cannot be read: {error}", after + 1)
                # Step over the page: each try seeks behind one entry more.
                after, tries = after + 1, tries + 1
                if tries >= _PROBE:
                    return
            else:
                return

    def _entry(self, connection: apsw.Connection, row: Sequence[Any]) -> str:
        """Check one row and fold it; its hash as it stands there."""
        seq, at, mono, incarnation, *_ = row
        text: dict[str, Any] = {}
        for name, value in zip(ENTRY_COLUMNS.split(", "), row, strict=True):
            if name in ("principal", "kind", "execution_id", "digest", "prev_hash", "hash"):
                text[name] = self._text(value, name, seq)
        if text["prev_hash"] != self.head[1]:
            self._broken(f"prev_hash is not the hash of entry {self.head[0]}", seq)
        hashed = entry_hash(
            seq,
            at,
            mono,
            incarnation,
            text["principal"],
            text["kind"],
            text["execution_id"],
            text["digest"],
            text["prev_hash"],
        )
        if hashed != text["hash"]:
            self._broken("hash does not fit: a column was changed", seq)
        payload = self._payload(connection, row[7], text["digest"], seq)
        if payload is None:
            self.complete = False
        else:
            self._fold((*row[:4], *list(text.values())[:3], None, *list(text.values())[3:]), payload)
        return str(text["hash"])

    def _fold(self, row: Sequence[Any], payload: bytes) -> None:
        seq = row[0]
        try:
            entry = entry_of_row(row, payload, self.path)
        except (JournalCorrupt, JournalNewer) as error:
            self.report("entries", error.message, seq)
            self.complete = False
            return
        if entry.execution_id != facts.execution_of(entry.fact):
            self.report("entries", "execution_id is not the one in the payload", seq)
        self.refolded.take(entry)

    def _payload(
        self, connection: apsw.Connection, inline: bytes | None, digest: str, seq: int
    ) -> bytes | None:
        if inline is not None:
            return self._fitting(inline, digest, seq)
        try:
            row = connection.execute(
                "SELECT size, CAST(codec AS BLOB), checksum, data FROM payloads WHERE digest = ?", (digest,)
            ).fetchone()
            if row is None:
                return self._archived(digest, seq)
            size, codec, checksum, data = row
            payload = unpack(size, codec.decode("utf-8", "backslashreplace"), data)
        except (apsw.Error, BadPayload, MemoryError, OverflowError) as error:
            self.report("payloads", f"payload {digest} cannot be read: {error}", seq)
            return None
        if zlib.crc32(data) != checksum:
            self.report("payloads", f"payload {digest} does not fit its checksum", seq)
        if digest_of(payload) != digest:
            self.report("payloads", f"payload {digest} is not what was written", seq)
            return None
        self.refolded.note(digest)
        return payload

    def _fitting(self, payload: bytes, digest: str, seq: int) -> bytes | None:
        """The payload, if it is what was written, or what a redaction left of that."""
        now = digest_of(payload)
        if now == digest:
            return payload
        if seq in self._replaced:
            by, written, replacement = self._replaced[seq]
            if by > seq and written == digest and replacement == now:
                self.redacted += 1
                return payload
        self.report("entries", "payload does not fit its digest", seq)
        return None

    def _archived(self, digest: str, seq: int) -> bytes | None:
        """The payload from its segment."""
        assert self._segments is not None
        segment = self._segments.holding(seq)
        if segment is None:
            self.report("payloads", f"payload {digest} is missing", seq)
            return None
        if any(one.state == "missing" for one in self.archive if one.first <= seq <= one.last):
            return None  # the file is told of once
        try:
            return self._fitting(self._segments.payload(seq), digest, seq)
        except (JournalCorrupt, StorageFault) as error:
            self.report("archive", error.message, seq)
            return None

    def _unreferenced(self, connection: apsw.Connection) -> None:
        if not self.complete:
            return  # the entry that needs it may be one that could not be read
        for (raw,) in connection.execute("SELECT CAST(digest AS BLOB) FROM payloads"):
            digest = raw.decode("utf-8", "backslashreplace")
            if not self.refolded.noted(digest):
                self.report("payloads", f"payload {digest} belongs to no entry")

    def _text(self, value: bytes | None, name: str, seq: int) -> str | None:
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.report("entries", f"{name} is not UTF-8", seq)
            return value.decode("utf-8", "backslashreplace")

    def _compare(self, connection: apsw.Connection) -> None:
        if not self.complete:
            return  # computed from a part, they would differ for that reason alone
        for table, columns in PROJECTIONS.items():
            for wanted, row in self.refolded.differences(connection, table):
                self.differs = True
                holds = "should hold" if wanted else "holds"
                what = f"differs from the entries: {holds} {_told(columns, row)}"
                self.report(table, what, _seq(table, row))
        self.compared = True

    def _integrity(self, connection: apsw.Connection) -> None:
        for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
            if line != "ok":
                self.report("file", f"SQLite: {line}")


def _told(columns: str, row: Sequence[Any]) -> str:
    pairs = zip(columns.split(", "), row, strict=True)
    return ", ".join(
        f"{name}={value.decode('utf-8', 'backslashreplace') if isinstance(value, bytes) else value}"
        for name, value in pairs
        if value is not None
    )


def _seq(table: str, row: Sequence[Any]) -> int | None:
    place = {"executions": 0, "cells": 1, "names": 8, "heaps": 1, "observations": 3}.get(table)
    return None if place is None or type(row[place]) is not int else row[place]
