"""Follows a session's journal into one document: first what it lacks, then as it comes.

What the document lacks begins after the `head` in its metadata, so opening costs what is new and not what
is there. It goes on for as long as the room is there, also while the session is stopped or its supervisor
is being replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kernel_runtime.client.session import AsyncSession
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.jupyter.mirror_document import SharedNotebook
from kernel_runtime.jupyter.mirror_journal import Cells
from kernel_runtime.jupyter.mirror_writer import Writer
from kernel_runtime.notebook.merge import OURS

log = logging.getLogger("kernel_runtime.jupyter")

AGAIN = 1.0
"""seconds until a session that has ended is looked at again"""
_BATCH = 1 << 20
_SETTLING = 0.3
"""seconds in which a page that came back may bring what it has, and take some of it out again"""


class Follow:
    """One document and one journal."""

    def __init__(self, session: AsyncSession, notebook: SharedNotebook, tell: Callable[[str], None]) -> None:
        self.ran: set[str] = set()
        """notebook ids of the cells that the journal knows"""
        self._session = session
        self._notebook = notebook
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._suspect: set[str] = set()
        self._look: asyncio.TimerHandle | None = None
        head = self._head()
        self._cells = Cells(
            session.name, lambda: session.journal, session.file.journal, after=head, on_news=self._flush
        )
        self._writer = Writer(notebook, self._cells, head=head)

    def _head(self) -> int:
        ours = self._notebook.metadata().get(OURS)
        if isinstance(ours, dict) and ours.get("session_id") == self._session.session_id:
            head = ours.get("head")
            if isinstance(head, int):
                return head
        return 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._catch_up()
                break
            except FileNotFoundError:
                await asyncio.sleep(AGAIN)  # no supervisor ever ran
        while True:
            try:
                async for batch in self._session.follow_batches(self._cells.cursor):
                    for entry in batch:
                        self._writer.take(entry)
                        self._cells.take(entry)
                    self._flush()
                    await asyncio.sleep(0)
            except KernelRuntimeError as error:
                log.info("session %s is not followed for now: %s", self._session.name, error.message)
            await asyncio.sleep(AGAIN)

    async def _catch_up(self) -> None:
        journal = self._session.journal
        self.ran.update(self._cells.order())
        while page := journal.entries(self._cells.cursor, max_bytes=_BATCH):
            for entry in page:
                self._cells.take(entry)
            await asyncio.sleep(0)
            journal = self._session.journal
        self._writer.rest(self._cells.unfinished())
        for execution_id in list(self._cells.touched):
            del self._cells.touched[execution_id]
            self._writer.write(execution_id)
            await asyncio.sleep(0)
        self._after_flush()

    def settle(self) -> None:
        """Have the document tell all that was followed, before it is saved."""
        self._flush(everything=True)
        self._writer.set_head(self._session.session_id)

    def tidy(self) -> None:
        """Have one cell of each id: a page may bring one that was put in here meanwhile."""
        self._writer.undouble()
        self._after_flush()

    def look_at(self, cell_ids: set[str]) -> None:
        """Outputs were put in or taken out by a page; what it put in soon makes room for the journal's."""
        self._suspect |= cell_ids
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_SETTLING, self._correct)

    def _correct(self) -> None:
        self._look = None
        suspect, self._suspect = self._suspect, set()
        self._writer.correct(suspect)

    def _flush(self, *, everything: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self._writer.flush(everything=everything)
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._flush)
        else:
            self._after_flush()

    def _after_flush(self) -> None:
        self.ran |= self._writer.new
        self._writer.new.clear()
        for note in self._writer.notes:
            self._tell(note)
        self._writer.notes.clear()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._cells.displays.close()
