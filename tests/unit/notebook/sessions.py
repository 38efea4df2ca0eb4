"""Journals for notebook tests: a tiny one in memory, and how to fill any of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import nbformat

from kernel_runtime.core.projection import Projections
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Cell, Execution
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionQueued,
    ExecutionStarted,
    Fact,
    GapRecorded,
    KernelStarted,
    OutputRecorded,
    SessionCreated,
    execution_of,
)

SECOND = 1_000_000_000


class FakeJournal:
    """What NotebookBuilder reads of a JournalReader, and `append`, over a list."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.projections = Projections()
        self.reads = 0
        """entries handed out"""

    def append(self, fact: Fact, incarnation: int = 1, principal: str = "agent:a") -> None:
        seq = len(self.log) + 1
        entry = Entry(
            seq=seq,
            at=seq * SECOND,
            mono=seq,
            incarnation=incarnation,
            principal=principal,
            kind=type(fact).__name__,
            fact=fact,
            execution_id=execution_of(fact),
            prev_hash="",
            hash="",
        )
        self.log.append(entry)
        self.projections.apply(entry)

    def head(self) -> int:
        return len(self.log)

    def entries(
        self,
        after: int = 0,
        *,
        limit: int = 1000,
        execution_id: str | None = None,
        kinds: Iterable[str] | None = None,
        max_bytes: int | None = None,
    ) -> list[Entry]:
        wanted = None if kinds is None else set(kinds)
        found = (
            entry
            for entry in self.log[after:]
            if execution_id in (None, entry.execution_id) and (wanted is None or entry.kind in wanted)
        )
        page = list(itertools.islice(found, limit))
        self.reads += len(page)
        return page

    def execution(self, execution_id: str) -> Execution | None:
        return self.projections.executions.get(execution_id)

    def cells(self) -> list[Cell]:
        return sorted(self.projections.cells.values(), key=lambda cell: cell.position)

    def latest(self, kind: str) -> Entry | None:
        return next((entry for entry in reversed(self.log) if entry.kind == kind), None)


class Script:
    """Writes the journal of a session that did what the test says."""

    def __init__(self, append: Callable[..., object]) -> None:
        self.append = append
        self._count = 0
        created = SessionCreated(
            session_id="5e55-10", name="s", kernel="python3", cwd="/", notebook="n.ipynb", version="0"
        )
        append(created)
        append(
            KernelStarted(
                pid=1, start_time=1, boot_id="b", language="python", implementation="ipython", own=True
            )
        )

    def queue(self, source: str, cell_id: str | None = None, *, silent: bool = False) -> str:
        self._count += 1
        execution_id = f"e{self._count}"
        fact = ExecutionQueued(
            execution_id=execution_id,
            source=source,
            cell_id=cell_id or f"c{self._count}",
            msg_id=f"m{self._count}",
            silent=silent,
        )
        self.append(fact)
        return execution_id

    def start(self, execution_id: str) -> None:
        self.append(ExecutionStarted(execution_id=execution_id))

    def output(self, execution_id: str | None, *messages: dict[str, Any]) -> None:
        raws = [msgspec.Raw(json.dumps(message).encode()) for message in messages]
        self.append(OutputRecorded(execution_id=execution_id, messages=raws))

    def gap(self, execution_id: str) -> None:
        self.append(GapRecorded(execution_id=execution_id, reason="disk", messages=3, bytes=30))

    def finish(self, execution_id: str, outcome: str = "ok") -> None:
        self.append(
            ExecutionFinished(
                execution_id=execution_id,
                outcome=outcome,
                execution_count=int(execution_id.removeprefix("e")),
            )
        )

    def run(
        self, source: str, cell_id: str | None = None, *messages: dict[str, Any], outcome: str = "ok"
    ) -> str:
        execution_id = self.queue(source, cell_id)
        self.start(execution_id)
        if messages:
            self.output(execution_id, *messages)
        self.finish(execution_id, outcome)
        return execution_id


def printed(text: str) -> dict[str, Any]:
    return {"type": "stream", "content": {"name": "stdout", "text": text}}


def shown(text: str, display_id: str, kind: str = "display_data") -> dict[str, Any]:
    content = {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": display_id}}
    return {"type": kind, "content": content}


def load(data: bytes) -> Any:
    """A notebook that nbformat finds valid, exactly as it is."""
    document = json.loads(data)
    nbformat.validate(nbformat.from_dict(document), relax_add_props=False)
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    return document


def source_of(cell: Any) -> str:
    return "".join(cell["source"])


def text_of(cell: Any) -> str:
    """All stream text of a cell."""
    return "".join("".join(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream")
