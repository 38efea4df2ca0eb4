"""Segments: sealed files that hold entries whole, for a journal that keeps only their chain.

A segment is an SQLite file with the journal's tables `entries` and `payloads`, read only, of the entries
`first` to `last`. Its SegmentSealed says its sha256. It is written under another name and renamed into
place once it is on the disk, and never changed: where a text is taken out of it, another file takes its
place.

Not promised: that a file which was moved is found. Its error names it.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import apsw
from msgspec import structs

from kernel_runtime.errors import StorageFault
from kernel_runtime.journal import connection as opener
from kernel_runtime.journal import faults, schema
from kernel_runtime.journal.codec import BadPayload, unpack
from kernel_runtime.journal.drafts import drafted
from kernel_runtime.model import facts
from kernel_runtime.model.facts import SegmentSealed

APPLICATION_ID = 0x6B727473
"""`krts`, in a segment's header"""

DIRECTORY = "archive"
"""beside the journal, where no other place was asked for"""

BULKY = ("OutputRecorded", "ExecutionObserved", "EffectsObserved", "NamesDrifted")
"""kinds whose payloads the journal lets go of: what was printed and seen. What was asked, by whom, and how
it ended stays, so that a session starts, attaches and tells its sources without its segments"""

ENTRY_COLUMNS = "seq, at, mono, incarnation, principal, kind, execution_id, payload, digest, prev_hash, hash"
PAYLOAD_COLUMNS = "digest, size, codec, checksum, data"

_PIECE = 1 << 20


def kept(connection: apsw.Connection, seq: int, digest: str, path: Path) -> bytes | None:
    """A payload from the table of large ones, unpacked; None if it is not there.

    Raises:
        JournalCorrupt: it cannot be unpacked.
    """
    row = connection.execute("SELECT size, codec, data FROM payloads WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        return None
    try:
        return unpack(*row)
    except BadPayload as error:
        raise faults.corrupt(path, f"the payload of entry {seq} cannot be read: {error}", seq=seq) from error


class Segments:
    """The segments of one journal, as its entries name them. One thread at a time."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._sealed: list[SegmentSealed] | None = None
        self._open: dict[str, apsw.Connection] = {}

    def sealed(self) -> list[SegmentSealed]:
        """Those that stand, in order."""
        found = {(fact.first, fact.last): fact for fact in self.ever()}
        return [found[place] for place in sorted(found)]

    def ever(self) -> list[SegmentSealed]:
        """Every SegmentSealed, in the order in which they were written."""
        found: list[SegmentSealed] = []
        rows: list[Any] = self._connection.execute(
            "SELECT seq, payload, digest FROM entries "
            f"WHERE kind = 'SegmentSealed' AND {schema.RARE} ORDER BY seq"
        ).fetchall()
        for seq, inline, digest in rows:
            payload = inline if inline is not None else kept(self._connection, seq, digest, self._path)
            if payload is not None:
                found.append(cast("SegmentSealed", facts.decode("SegmentSealed", payload)))
        return found

    @property
    def last(self) -> int:
        """The last entry that was sealed; 0 if none was. All before it were, too."""
        return max((segment.last for segment in self.sealed()), default=0)

    def holding(self, seq: int) -> SegmentSealed | None:
        """The segment that an entry was sealed in."""
        if self._sealed is None:
            self._sealed = self.sealed()
        fitting = (one for one in self._sealed if one.first <= seq <= one.last)
        return next(fitting, None)

    def payload(self, seq: int) -> bytes:
        """The payload of an entry that the journal itself does not hold.

        Raises:
            JournalCorrupt: no segment has it.
            StorageFault: the segment's file is not there; names it.
        """
        for fresh in (False, True):
            if fresh:  # another file may have taken its place since
                self.close()
            segment = self.holding(seq)
            if segment is None:
                continue
            try:
                return self._payload(segment, seq)
            except StorageFault:
                if fresh:
                    raise
        raise faults.corrupt(self._path, f"the payload of entry {seq} is missing", seq=seq)

    def _payload(self, segment: SegmentSealed, seq: int) -> bytes:
        file = file_of(self._path, segment)
        connection = self._open.get(segment.file)
        if connection is None:
            connection = self._open[segment.file] = open_segment(file)
        try:
            row = connection.execute("SELECT payload, digest FROM entries WHERE seq = ?", (seq,)).fetchone()
            payload = None if row is None else row[0]
            if row is not None and payload is None:
                payload = kept(connection, seq, row[1], file)
        except apsw.Error as error:
            raise faults.corrupt(file, error, seq=seq) from error
        if payload is None:
            raise faults.corrupt(file, f"the payload of entry {seq} is missing", seq=seq)
        return cast("bytes", payload)

    def close(self) -> None:
        """Let go of the files; what is asked next is looked up anew."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._sealed = None


def let_go(connection: apsw.Connection, first: int, last: int) -> None:
    """Drop what a segment of these entries holds now. Inside a transaction, without the triggers."""
    connection.execute(
        f"UPDATE entries SET payload = NULL WHERE seq BETWEEN ? AND ? AND kind IN {BULKY}", (first, last)
    )
    drop_unneeded(connection, last)


def drop_unneeded(connection: apsw.Connection, sealed_to: int) -> None:
    """Remove large payloads that no entry needs; those sealed up to there have theirs in a segment."""
    connection.execute(
        "DELETE FROM payloads WHERE digest NOT IN "
        f"(SELECT digest FROM entries WHERE payload IS NULL AND (seq > ? OR kind NOT IN {BULKY}))",
        (sealed_to,),
    )


def remove_strays(connection: apsw.Connection, path: Path) -> list[Path]:
    """Remove segments that stand no more, or never did: what a process left that was killed.

    Those of this journal beside it, and those elsewhere that a later file took the place of.
    """
    archive = Segments(connection, path)
    standing = {file_of(path, segment) for segment in archive.sealed()}
    found = {file_of(path, segment) for segment in archive.ever()}
    beside = path.parent / DIRECTORY
    if beside.is_dir():
        found |= {file for file in beside.iterdir() if file.is_file()}
    removed: list[Path] = []
    for file in sorted(found - standing):
        if file.exists():
            file.unlink()
            removed.append(file)
    return removed


def next_name(file: Path) -> Path:
    """Where the file that takes this one's place is written."""
    stem, dot, number = file.stem.partition(".")
    return file.with_name(f"{stem}{dot or '.'}{int(number or 1) + 1}{file.suffix}")


def file_of(journal: Path, segment: SegmentSealed) -> Path:
    """Where a segment lies."""
    return journal.parent / segment.file  # an absolute one stands for itself


def open_segment(file: Path) -> apsw.Connection:
    """A read-only connection to a segment.

    Raises:
        StorageFault: it is not there.
        JournalCorrupt: it is something else.
    """
    if not file.exists():
        raise missing(file)
    try:
        connection = opener.open_immutable(file)
    except apsw.Error as error:
        raise faults.corrupt(file, error) from error
    if connection.pragma("application_id") != APPLICATION_ID:
        connection.close()
        raise faults.corrupt(file, "it is not a segment (application_id differs)")
    return connection


def missing(file: Path) -> StorageFault:
    return StorageFault(
        f"the segment {file} is not there: archived entries cannot be read without it",
        hint=f"put it back at {file}; the journal and its chain are whole without it",
        path=str(file),
    )


def copy_rows(source: apsw.Connection, first: int, last: int) -> Iterator[Sequence[Any]]:
    """Entries as they stand, columns as in ENTRY_COLUMNS."""
    return source.execute(
        f"SELECT {ENTRY_COLUMNS} FROM entries WHERE seq BETWEEN ? AND ? ORDER BY seq", (first, last)
    )


def write(
    source: apsw.Connection, first: int, last: int, target: Path, replaced: Mapping[int, bytes] | None = None
) -> SegmentSealed:
    """Write a segment of a journal's, or another segment's, entries; durable once this returns.

    Args:
        source: a connection to the file that has them, payloads included.
        first: `seq` of the first entry.
        last: `seq` of the last one.
        target: the segment's file; one that is there is replaced.
        replaced: payloads that take the place of others.

    Returns:
        What SegmentSealed has to say; `file` is absolute.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: nothing is left.
    """
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise faults.from_os(error, target) from error
    with drafted(target) as draft:
        head_hash = _fill(source, first, last, draft, replaced or {})
        sha256, size = _sealed(draft)
    return SegmentSealed(
        first=first, last=last, head_hash=head_hash, file=str(target), sha256=sha256, bytes=size
    )


def _fill(source: apsw.Connection, first: int, last: int, draft: Path, replaced: Mapping[int, bytes]) -> str:
    connection = opener.open_new(draft)
    try:
        declared = schema.declared()
        with connection:
            for table in ("entries", "payloads"):
                connection.execute(declared["table", table])
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", len(schema.STEPS))
            head_hash = ""
            for row in copy_rows(source, first, last):
                seq, inline, digest = row[0], row[7], row[8]
                if seq in replaced:
                    row = (*row[:7], replaced[seq], *row[8:])  # noqa: PLW2901 - the same row, less what was in it
                elif inline is None:
                    _copy_payload(source, connection, digest)
                connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * 11)})", row)
                head_hash = row[10]
    except apsw.Error as error:
        raise opener.closing_fault(connection, error, draft) from error
    connection.close()
    return head_hash


def _copy_payload(source: apsw.Connection, target: apsw.Connection, digest: str) -> None:
    if target.execute("SELECT 1 FROM payloads WHERE digest = ?", (digest,)).fetchone() is None:
        query = f"SELECT {PAYLOAD_COLUMNS} FROM payloads WHERE digest = ?"
        row = source.execute(query, (digest,)).fetchone()
        if row is not None:
            target.execute("INSERT INTO payloads VALUES (?, ?, ?, ?, ?)", row)


def _sealed(draft: Path) -> tuple[str, int]:
    """Make it durable and read only; its sha256 and size."""
    with draft.open("rb") as file:
        os.fchmod(file.fileno(), 0o400)
        os.fsync(file.fileno())
        return digest_of_file(draft), os.fstat(file.fileno()).st_size


def digest_of_file(file: Path) -> str:
    """sha256 of a file, in pieces.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with file.open("rb") as data:
        while piece := data.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def relative(journal: Path, segment: SegmentSealed) -> SegmentSealed:
    """The same, its file as the journal names it: relative where it lies below the session's directory."""
    with contextlib.suppress(ValueError):
        below = Path(segment.file).relative_to(journal.parent)
        return structs.replace(segment, file=str(below))
    return segment
