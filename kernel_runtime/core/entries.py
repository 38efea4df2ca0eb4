"""Reading a journal's entries one by one, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from kernel_runtime.model.entry import Entry

_BATCH_BYTES = 4 << 20


class Entries(Protocol):
    """Whoever gives entries in batches: JournalReader does."""

    def entries(
        self,
        after: int = 0,
        *,
        limit: int = 1000,
        execution_id: str | None = None,
        kinds: Iterable[str] | None = None,
        max_bytes: int | None = None,
    ) -> list[Entry]: ...


def walk(
    reader: Entries,
    after: int = 0,
    *,
    upto: int | None = None,
    execution_id: str | None = None,
    kinds: Iterable[str] | None = None,
) -> Iterator[Entry]:
    """Every entry with `after < seq <= upto`, in order; one batch of a few megabytes is in memory at a time.

    Args:
        reader: of the journal.
        after: a cursor: the last `seq` seen.
        upto: the last `seq` wanted; None: to the end, entries that come meanwhile included.
        execution_id: only those of this execution.
        kinds: only those of these kinds.

    Raises:
        JournalNewer, JournalCorrupt, JournalBusy, StorageFault: also between two entries.
    """
    wanted = None if kinds is None else tuple(kinds)
    while batch := reader.entries(after, execution_id=execution_id, kinds=wanted, max_bytes=_BATCH_BYTES):
        for entry in batch:
            if upto is not None and entry.seq > upto:
                return
            yield entry
        after = batch[-1].seq
