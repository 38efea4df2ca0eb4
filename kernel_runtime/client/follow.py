"""Reading along: entries from a cursor on, each once and in order, for as long as there are more.

Entries come from the journal itself; the supervisor only rings when there is something new. So what
a follower has seen is one number, and nothing that dies in between can make it see less or see twice.
"""

from __future__ import annotations

import time
from typing import Protocol, Self

from kernel_runtime.journal import JournalReader
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution as Row

BATCH = 1024 * 1024
"""bytes of payload read at a time: what a reader holds, however much there is"""


class Record(Protocol):
    """What a follower needs of a session."""

    @property
    def journal(self) -> JournalReader: ...

    async def peek(self, execution_id: str) -> Row: ...

    async def news(self, after: int, deadline: float | None) -> bool: ...


class Follower:
    """An async iterator of batches of entries. `after` is the last `seq` it has handed out."""

    def __init__(
        self,
        session: Record,
        after: int,
        *,
        until: str | None = None,
        timeout: float | None = None,
        only: bool = False,
    ) -> None:
        self.after = after
        self._session = session
        self._until = until
        self._only = until if only else None
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._ended = False
        self._started = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Entry]:
        if not self._started:
            self._started = True
            await self._start()
        while not self._ended:
            journal = self._session.journal
            # the head before the entries: what comes between the two is read again, never passed over
            head = journal.head()
            if batch := journal.entries(self.after, max_bytes=BATCH, execution_id=self._only):
                return self._cut(batch)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                break
            if not await self._session.news(max(head, self.after), self._deadline):
                break
        self._ended = True
        raise StopAsyncIteration

    async def _start(self) -> None:
        if self._until is None:
            await self._session.news(-1, self._deadline)
            return
        row = await self._session.peek(self._until)
        self._ended = row.finished_seq is not None and row.finished_seq <= self.after

    def _cut(self, batch: list[Entry]) -> list[Entry]:
        for index, entry in enumerate(batch):
            if entry.kind == "ExecutionFinished" and entry.execution_id == self._until:
                self._ended = True
                batch = batch[: index + 1]
                break
        self.after = batch[-1].seq
        return batch
