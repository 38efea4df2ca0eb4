"""Move the bulk of old entries into a sealed segment; the chain, and what is small, stays.

The segment is on the disk before the journal lets go of anything, and the journal lets go in the
transaction that says where to. Killed anywhere, everything is in the journal or the segment is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import apsw
from msgspec import Struct

from kernel_runtime.errors import JournalCorrupt, UsageError
from kernel_runtime.journal import segments
from kernel_runtime.journal.writer import Journal
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import SegmentSealed
from kernel_runtime.testing.failpoints import reach


class Archived(Struct, frozen=True, kw_only=True):
    """What was sealed."""

    first: int
    last: int
    file: str
    sha256: str
    bytes: int
    entry: int
    """of the SegmentSealed"""


def archivable(journal: Journal) -> tuple[int, int]:
    """First and last entry that could be sealed now: from the last seal to before what still runs."""
    with journal.reader() as reader:
        first = reader.segments.last + 1
        alive = [
            x.queued_seq
            for status in ("queued", "running", "blocked")
            for x in reader.executions(status=status)
        ]
    return first, min([seq - 1 for seq in alive], default=journal.head)


def archive(
    journal: Journal,
    principal: str,
    incarnation: int,
    *,
    before: int | None = None,
    directory: Path | None = None,
) -> Archived:
    """Seal the entries from the last seal up to `before`. `Journal.compact` then shrinks the file.

    Args:
        journal: the one that is open for writing.
        principal: who asked for it.
        incarnation: the present one.
        before: the first entry that stays; None: as many as can be sealed.
        directory: where the segment goes; `archive` beside the journal by default.

    Raises:
        UsageError: nothing can be sealed up to there, or another file has the segment's name.
        DiskFull, ReadOnlyStorage, StorageFault: nothing was changed.
    """
    first, most = archivable(journal)
    last = most if before is None else before - 1
    if not first <= last <= most:
        raise UsageError(
            f"the journal {journal.path} has nothing to seal from entry {first} to {last}",
            hint=f"--before may be {first + 1} to {most + 1}: what is sealed is sealed, and what runs stays"
            if first <= most
            else "everything up to what runs is sealed already",
            first=first,
            last=most,
        )
    name = f"{journal.path.parent.name}-{first}-{last}.db"
    target = (directory or journal.path.parent / segments.DIRECTORY) / name
    made: list[SegmentSealed] = []

    def edit(connection: apsw.Connection) -> Sequence[Draft]:
        _refuse_another(connection, first, target)
        sealed = segments.write(connection, first, last, target)
        reach("segment-written")
        segments.let_go(connection, first, last)
        made.append(segments.relative(journal.path, sealed))
        return [Draft(made[0], principal, incarnation)]

    (entry,) = journal.rewrite(edit, refold=lambda: False)
    (sealed,) = made
    return Archived(
        first=first,
        last=last,
        file=str(segments.file_of(journal.path, sealed)),
        sha256=sealed.sha256,
        bytes=sealed.bytes,
        entry=entry.seq,
    )


def _refuse_another(connection: apsw.Connection, first: int, target: Path) -> None:
    """A file of that name may be there from a try that was killed, and then holds what the journal holds."""
    if not target.exists():
        return
    there: object = None
    with contextlib.suppress(JournalCorrupt, apsw.Error):
        segment = segments.open_segment(target)
        there = segment.execute("SELECT hash FROM entries WHERE seq = ?", (first,)).fetchone()
        segment.close()
    if (
        there is None
        or there != connection.execute("SELECT hash FROM entries WHERE seq = ?", (first,)).fetchone()
    ):
        raise UsageError(
            f"{target} is there already and is another's",
            hint="choose another directory with --to",
            path=str(target),
        )
