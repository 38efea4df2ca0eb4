"""The session's cells as notebook cells, rendered anew only where the journal has news.

A cell shows the execution that decides its truth: the one started last, or while none has
started, the one queued last. Its outputs are folded and capped; the journal holds all of them.
The same journal gives the same bytes.

Memory: the rendered cells, and the folded outputs of the few executions that are still printing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from kernel_runtime.core.entries import Entries, walk
from kernel_runtime.core.execution_view import iso_time, pointer
from kernel_runtime.core.outputs import DisplayIndex, OutputFolder
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Execution
from kernel_runtime.model.facts import (
    ExecutionQueued,
    ExecutionStarted,
    Fact,
    GapRecorded,
    KernelStarted,
    OutputRecorded,
    SessionCreated,
)
from kernel_runtime.notebook.document import cell_bytes, document_bytes, lined, lines
from kernel_runtime.notebook.ids import notebook_id

CAP_BYTES = 8 << 20
"""outputs of one cell in the file"""

_PAGE = 1000
_PAGE_BYTES = 4 << 20
_OPEN_FOLDERS = 2
_NOBODY = ""
"""stands for the execution of output that belongs to none: it shows nowhere, and may update displays"""
_SHOWN = ("ExecutionQueued", "ExecutionStarted", "OutputRecorded", "GapRecorded", "ExecutionFinished")


class Reader(Entries, Protocol):
    """What is read of a journal: JournalReader has it."""

    def head(self) -> int: ...

    def execution(self, execution_id: str) -> Execution | None: ...

    def cells(self) -> list[Cell]: ...

    def latest(self, kind: str) -> Entry | None: ...


class RenderedCell(Struct, frozen=True, kw_only=True):
    """A cell of ours as it stands in a notebook."""

    notebook_id: str
    cell_id: str
    execution_id: str
    seq: int
    """of the entry that made this execution the one shown"""
    source_digest: str
    data: bytes
    """the nbformat cell as `cell_bytes` gives it"""


class NotebookBuilder:
    """Keeps a session's cells rendered. `refresh` takes in what is new in the journal."""

    def __init__(
        self,
        reader: Reader,
        *,
        cap_bytes: int = CAP_BYTES,
        kernelspec: dict[str, Any] | None = None,
    ) -> None:
        self.head = 0
        self.cells: dict[str, RenderedCell] = {}
        """by notebook id, in the order of first execution"""
        self._reader = reader
        self._cap = cap_bytes
        self._kernelspec = kernelspec
        self._displays = DisplayIndex()
        self._shown: dict[str, str] = {}
        """cell_id → execution shown"""
        self._folders: OrderedDict[str, OutputFolder] = OrderedDict()
        self._session: SessionCreated | None = None

    def refresh(self) -> set[str]:
        """Notebook ids of the cells that were rendered anew."""
        if self.head == 0:
            return self._load()
        touched: dict[str, None] = {}
        while page := self._page(self.head):
            for entry in page:
                self._take(entry, touched)
            self.head = page[-1].seq
        return self._render(touched)

    @property
    def session_id(self) -> str:
        session = self._created()
        return session.session_id if session else ""

    def metadata(self) -> dict[str, Any]:
        """The notebook's own metadata."""
        session = self._created()
        started = self._reader.latest("KernelStarted")
        name = session.kernel if session else ""
        found: dict[str, Any] = {
            "kernelspec": self._kernelspec or {"name": name, "display_name": name},
            "kernel_runtime": {
                "session": session.name if session else "",
                "session_id": self.session_id,
                "head": self.head,
            },
        }
        if started is not None and isinstance(started.fact, KernelStarted) and started.fact.language:
            found["language_info"] = {"name": started.fact.language}
            found["kernelspec"].setdefault("language", started.fact.language)
        return found

    def document(self) -> bytes:
        """The whole notebook from the journal alone, valid nbformat 4.5."""
        return document_bytes((cell.data for cell in self.cells.values()), self.metadata())

    def stream(self) -> Iterator[bytes]:
        """The bytes of `document()` of a builder that was never refreshed, holding one cell at a time.

        The journal must not change meanwhile: read it in one transaction.
        """
        self.head = self._reader.head()
        self._note_displays()
        start, end = document_bytes([b"\0"], self.metadata()).split(b"\0")
        between = b""
        for cell in self._reader.cells():
            execution = self._reader.execution(cell.execution_id)
            if execution is not None:
                yield (between or start) + self._cell(execution).data
                between = b",\n"
        yield end if between else document_bytes([], self.metadata())

    def _load(self) -> set[str]:
        """First refresh: cells from the projection, displays from all outputs up to the head."""
        head = self._reader.head()
        if head == 0:
            return set()
        touched: dict[str, None] = {}
        for cell in self._reader.cells():
            self._shown[cell.cell_id] = cell.execution_id
            touched[cell.execution_id] = None
        self.head = head
        self._note_displays()
        return self._render(touched) | self.refresh()

    def _note_displays(self) -> None:
        """Of all outputs up to the head."""
        after = 0
        while after < self.head and (page := self._page(after, kinds=["OutputRecorded"])):
            for entry in page:
                if isinstance(entry.fact, OutputRecorded) and entry.seq <= self.head:
                    self._displays.note(entry.execution_id or _NOBODY, entry.fact.messages)
            after = page[-1].seq

    def _take(self, entry: Entry, touched: dict[str, None]) -> None:
        execution_id, fact = entry.execution_id, entry.fact
        if isinstance(fact, OutputRecorded):
            for other in self._displays.note(execution_id or _NOBODY, fact.messages):
                touched[other] = None
        if execution_id is None or entry.kind not in _SHOWN:
            return
        touched[execution_id] = None
        folder = self._folders.get(execution_id)
        if folder is not None:
            fold_fact(folder, fact)

    def _render(self, touched: dict[str, None]) -> set[str]:
        changed: set[str] = set()
        for execution_id in touched:
            execution = self._reader.execution(execution_id)
            if execution is None or not self._is_shown(execution):
                self._folders.pop(execution_id, None)
                continue
            cell = self._cell(execution)
            self.cells[cell.notebook_id] = cell
            changed.add(cell.notebook_id)
        return changed

    def _is_shown(self, execution: Execution) -> bool:
        """Whether this execution is what its cell shows, which it may have become just now."""
        shown_id = self._shown.get(execution.cell_id)
        if shown_id == execution.execution_id:
            return True
        shown = self._reader.execution(shown_id) if shown_id is not None else None
        if shown is not None and rank(execution) < rank(shown):
            return False
        queued = self._reader.entries(execution_id=execution.execution_id, kinds=["ExecutionQueued"], limit=1)
        if queued and isinstance(queued[0].fact, ExecutionQueued) and not queued[0].fact.is_cell:
            return False
        self._shown[execution.cell_id] = execution.execution_id
        return True

    def _cell(self, execution: Execution) -> RenderedCell:
        source, seq, folder = self._read(execution)
        metadata: dict[str, Any] = {"kernel_runtime": execution_metadata(execution)}
        if timing := timing_metadata(execution):
            metadata["execution"] = timing
        cell_id = notebook_id(execution.cell_id)
        count = execution.execution_count
        document = {
            "cell_type": "code",
            "id": cell_id,
            "metadata": metadata,
            "source": lines(source),
            "outputs": lined(folder.outputs()),
            "execution_count": count if count is not None and count >= 0 else None,
        }
        return RenderedCell(
            notebook_id=cell_id,
            cell_id=execution.cell_id,
            execution_id=execution.execution_id,
            seq=seq,
            source_digest=execution.source_digest,
            data=cell_bytes(document),
        )

    def _read(self, execution: Execution) -> tuple[str, int, OutputFolder]:
        """Source, the seq of its start (of its queueing while it has not), folded outputs."""
        execution_id = execution.execution_id
        folder = self._folders.pop(execution_id, None)
        complete = folder is not None
        if folder is None:
            session = self._created()
            folder = OutputFolder(
                cap_bytes=self._cap,
                pointer=pointer(session.name if session else "", execution_id),
                displays=self._displays,
            )
        source, seq = read_execution(self._reader, execution, None if complete else folder, upto=self.head)
        self._folders[execution_id] = folder
        while len(self._folders) > _OPEN_FOLDERS:
            self._folders.popitem(last=False)
        return source, seq, folder

    def _page(
        self, after: int, *, execution_id: str | None = None, kinds: Iterable[str] | None = None
    ) -> list[Entry]:
        return self._reader.entries(
            after, limit=_PAGE, execution_id=execution_id, kinds=kinds, max_bytes=_PAGE_BYTES
        )

    def _created(self) -> SessionCreated | None:
        if self._session is None:
            entry = self._reader.latest("SessionCreated")
            if entry is not None and isinstance(entry.fact, SessionCreated):
                self._session = entry.fact
        return self._session


def read_execution(
    reader: Reader, execution: Execution, folder: OutputFolder | None, *, upto: int
) -> tuple[str, int]:
    """Source, and the seq of its start (of its queueing while it has not).

    What it put out, up to the entry `upto`, goes into the folder; with None only the rest is read.
    """
    source, seq = "", execution.queued_seq
    kinds = _SHOWN[:2] if folder is None else _SHOWN[:4]
    for entry in walk(reader, execution_id=execution.execution_id, kinds=kinds):
        if isinstance(entry.fact, ExecutionQueued):
            source = entry.fact.source
        elif isinstance(entry.fact, ExecutionStarted):
            seq = entry.seq
        elif folder is not None and entry.seq <= upto:
            fold_fact(folder, entry.fact)
    return source, seq


def fold_fact(folder: OutputFolder, fact: Fact) -> None:
    """Take what one entry adds to an execution's outputs."""
    if isinstance(fact, OutputRecorded):
        for message in fact.messages:
            folder.add(message)
    elif isinstance(fact, GapRecorded):
        folder.gap(fact.reason, fact.messages, fact.bytes)


def rank(execution: Execution) -> tuple[bool, int]:
    """Of a cell's executions the one of the highest rank is shown."""
    return execution.started_at is not None, execution.queued_seq


def execution_metadata(execution: Execution) -> dict[str, Any]:
    """`metadata.kernel_runtime` of a cell that shows this execution."""
    found = {
        "execution_id": execution.execution_id,
        "incarnation": execution.incarnation,
        "outcome": execution.outcome,
        "principal": execution.principal,
        "source_digest": execution.source_digest,
    }
    if execution.status != "done":
        found["status"] = execution.status
    return found


def timing_metadata(execution: Execution) -> dict[str, str]:
    """`metadata.execution`, as JupyterLab records it."""
    found: dict[str, str] = {}
    if execution.started_at is not None:
        found["iopub.execute_input"] = found["iopub.status.busy"] = iso_time(execution.started_at)
        if execution.finished_at is not None:
            found["iopub.status.idle"] = found["shell.execute_reply"] = iso_time(execution.finished_at)
    return found
