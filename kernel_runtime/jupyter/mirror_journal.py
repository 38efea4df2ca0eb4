"""What a session's cells shall show, kept up with its journal entry by entry.

The same rules as in the notebook file (`notebook.render`): a cell shows the execution that decides its
truth, its outputs folded and capped. What differs is the order of work: nothing is read of cells that
have no news, and an execution that is under way keeps its folded outputs between two looks.

Displays that several executions show are known once all earlier outputs were read. That takes about
0.3 ms a cell, so it is done on the first message that names a display, on a thread of its own, and
until then other cells are as they were.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from kernel_runtime.core.entries import walk
from kernel_runtime.core.execution_view import pointer
from kernel_runtime.core.outputs import DisplayIndex, Message, Output, OutputFolder
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionQueued,
    ExecutionStarted,
    GapRecorded,
    InputAnswered,
    InputRequested,
    InputWithdrawn,
    OutputRecorded,
)
from kernel_runtime.notebook.ids import notebook_id
from kernel_runtime.notebook.render import (
    CAP_BYTES,
    execution_metadata,
    fold_fact,
    rank,
    read_execution,
    timing_metadata,
)

TAIL = 16 << 10
"""bytes shown after the gap of an execution that goes on printing past the cap"""
_PAGE = 1000
_OPEN = 8
"""executions that have ended and whose folded outputs are kept, for what comes late"""
_NOBODY = ""
_OUTPUT = (OutputRecorded, GapRecorded)
_STATE = (
    ExecutionQueued,
    ExecutionStarted,
    ExecutionFinished,
    InputRequested,
    InputAnswered,
    InputWithdrawn,
)


class Shown(Struct, frozen=True, kw_only=True):
    """A cell as the journal has it."""

    cell_id: str
    """as a notebook has it"""
    execution: Execution
    source: str
    seq: int
    """of the entry that made this execution the one shown"""
    outputs: list[Output]
    more: bool
    """it is past its cap and goes on printing"""

    @property
    def state(self) -> str:
        """As JupyterLab has it."""
        return "idle" if self.execution.status == "done" else "running"

    @property
    def execution_count(self) -> int | None:
        count = self.execution.execution_count
        return count if count is not None and count >= 0 else None

    @property
    def metadata(self) -> dict[str, Any]:
        """What is ours of the cell's metadata."""
        return {
            "kernel_runtime": execution_metadata(self.execution),
            "execution": timing_metadata(self.execution) or None,
        }

    def cell(self) -> dict[str, Any]:
        """The whole cell."""
        return {
            "cell_type": "code",
            "id": self.cell_id,
            "metadata": {key: value for key, value in self.metadata.items() if value is not None},
            "source": self.source,
            "outputs": self.outputs,
            "execution_count": self.execution_count,
        }


class _Live:
    """An execution whose outputs are folded up to the cursor."""

    __slots__ = ("folder", "seq", "source")

    def __init__(self, folder: OutputFolder, source: str, seq: int) -> None:
        self.folder = folder
        self.source = source
        self.seq = seq


class Cells:
    """The session's cells. `take` entries in their order, ask `shown` for what has news."""

    def __init__(
        self,
        session: str,
        journal: Callable[[], JournalReader],
        path: Path,
        *,
        after: int,
        cap: int = CAP_BYTES,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self.cursor = after
        """the last entry that was taken"""
        self.touched: dict[str, bool] = {}
        """executions with news, in the order of these; True: more than outputs"""
        self.displays = _Displays(path, self._redisplay)
        self._on_news = on_news
        self.session = session
        self._journal = journal
        self._cap = cap
        self._shown: dict[str, str] = {}
        """by the journal's cell id, the execution shown; of the cells that had news"""
        self._live: OrderedDict[str, _Live] = OrderedDict()

    def take(self, entry: Entry) -> None:
        execution_id, fact = entry.execution_id, entry.fact
        if isinstance(fact, OutputRecorded):
            self.displays.note(execution_id or _NOBODY, fact.messages, self.cursor)
        self.cursor = entry.seq
        if execution_id is None:
            return
        if isinstance(fact, _OUTPUT):
            self.touched.setdefault(execution_id, False)
            live = self._live.get(execution_id)
            if live is not None:
                fold_fact(live.folder, fact)
        elif isinstance(fact, _STATE):
            self.touched[execution_id] = True
            live = self._live.get(execution_id)
            if live is not None and isinstance(fact, ExecutionStarted):
                live.seq = entry.seq

    def unfinished(self) -> set[str]:
        """Have news of all that is queued or runs; the notebook ids of their cells."""
        found = set()
        for status in ("queued", "running", "blocked"):
            for row in self._journal().executions(status=status):
                self.touched[row.execution_id] = True
                found.add(notebook_id(row.cell_id))
        return found

    def shown(self, execution_id: str) -> Shown | None:
        """What its cell shows; None where that is another execution, or one that is no cell."""
        execution = self._journal().execution(execution_id)
        if execution is None or not self._is_shown(execution):
            self._live.pop(execution_id, None)
            return None
        live = self._live.get(execution_id) or self._read(execution)
        ended = execution.status == "done"
        more = live.folder.is_capped and not ended
        self._keep(execution_id, live)
        return Shown(
            cell_id=notebook_id(execution.cell_id),
            execution=execution,
            source=live.source,
            seq=live.seq,
            outputs=live.folder.outputs(tail=TAIL if more else None),
            more=more,
        )

    def execution(self, execution_id: str) -> Execution | None:
        return self._journal().execution(execution_id)

    def is_pending(self, cell_id: str) -> bool:
        """Whether an execution of the cell is queued or runs."""
        last = self._journal().executions(cell_id=cell_id, last=_PAGE)
        return any(one.status != "done" for one in last)

    def order(self) -> list[str]:
        """All cells' notebook ids, in the order of first execution."""
        return [notebook_id(cell.cell_id) for cell in self._journal().cells()]

    def is_first(self, execution: Execution) -> bool:
        """Whether the cell was never executed before."""
        return len(self._journal().executions(cell_id=execution.cell_id)) == 1

    def _redisplay(self, executions: Iterable[str]) -> None:
        for execution_id in executions:
            self.touched.setdefault(execution_id, False)
        self._on_news()

    def _is_shown(self, execution: Execution) -> bool:
        journal = self._journal()
        shown_id = self._shown.get(execution.cell_id)
        if shown_id is None:
            for other in reversed(journal.executions(cell_id=execution.cell_id)):
                if other.execution_id != execution.execution_id and rank(other) > rank(execution):
                    if self._is_no_cell(other.execution_id):
                        continue
                    return False
        elif shown_id != execution.execution_id:
            shown = journal.execution(shown_id)
            if shown is not None and rank(execution) < rank(shown):
                return False
        if shown_id != execution.execution_id:
            if self._is_no_cell(execution.execution_id):
                return False
            self._shown[execution.cell_id] = execution.execution_id
        return True

    def _is_no_cell(self, execution_id: str) -> bool:
        queued = self._journal().entries(execution_id=execution_id, kinds=["ExecutionQueued"], limit=1)
        return bool(queued) and isinstance(queued[0].fact, ExecutionQueued) and not queued[0].fact.is_cell

    def _read(self, execution: Execution) -> _Live:
        at = pointer(self.session, execution.execution_id)
        folder = OutputFolder(cap_bytes=self._cap, pointer=at, displays=self.displays)
        source, seq = read_execution(self._journal(), execution, folder, upto=self.cursor)
        return _Live(folder, source, seq)

    def _keep(self, execution_id: str, live: _Live) -> None:
        self._live[execution_id] = live
        self._live.move_to_end(execution_id)
        while len(self._live) > _OPEN:
            self._live.popitem(last=False)


class _Displays(DisplayIndex):
    """What several executions show, once the journal was read for it."""

    def __init__(self, path: Path, changed: Callable[[Iterable[str]], None]) -> None:
        super().__init__()
        self._path = path
        self._changed = changed
        self._index: DisplayIndex | None = None
        self._waiting: list[tuple[str, list[Any]]] = []
        self._reading: asyncio.Task[None] | None = None

    def note(self, execution_id: str, messages: Iterable[Message], before: int = 0) -> set[str]:
        named = [message for message in messages if b'"display_id"' in bytes(message)]  # type: ignore[arg-type]
        if not named:
            return set()
        if self._index is None:
            self._waiting.append((execution_id, named))
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._read(before))
            return set()
        changed = self._index.note(execution_id, named)
        self._changed(changed)
        return changed

    def latest(self, display_id: str) -> tuple[Output, Output] | None:
        return self._index.latest(display_id) if self._index is not None else None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self, upto: int) -> None:
        index = await asyncio.to_thread(_index_of, self._path, upto)
        changed: set[str] = set()
        for execution_id, messages in self._waiting:
            changed |= index.note(execution_id, messages)
        self._waiting.clear()
        self._index = index
        self._changed(changed)


def _index_of(path: Path, upto: int) -> DisplayIndex:
    index = DisplayIndex()
    with JournalReader.open(path) as journal:
        for entry in walk(journal, upto=upto, kinds=("OutputRecorded",)):
            if isinstance(entry.fact, OutputRecorded):
                index.note(entry.execution_id or _NOBODY, entry.fact.messages)
    return index
