"""Journals in memory, written as a supervisor would: what a plan is read from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Entry

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class Record:
    """Entries, and how they are read. Each is a second after the one before."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.incarnation = 1
        self.add(
            f.SessionCreated(
                session_id="id-1", name="s", kernel="python3", cwd="/w", notebook="/w/n.ipynb", version="1"
            )
        )
        self.kernel()

    def kernel(self) -> None:
        self.add(
            f.KernelStarted(
                pid=1, start_time=1, boot_id="b", language="python", implementation="ipython", own=True
            )
        )

    def add(self, fact: f.Fact, *, principal: str = "agent:a") -> int:
        """Its seq."""
        seq = len(self.log) + 1
        self.log.append(
            Entry(
                seq=seq,
                at=START + seq * SECOND,
                mono=seq,
                incarnation=self.incarnation,
                principal=principal,
                kind=type(fact).__name__,
                fact=fact,
                execution_id=f.execution_of(fact),
                prev_hash="",
                hash=f"hash-{seq}",
            )
        )
        return seq

    def queue(self, name: str, source: str = "", **how: Any) -> None:
        cell = how.pop("cell_id", name)
        self.add(f.ExecutionQueued(execution_id=name, source=source, cell_id=cell, msg_id=f"m-{name}", **how))

    def start(self, name: str) -> None:
        self.add(f.ExecutionStarted(execution_id=name))

    def finish(self, name: str, outcome: str = "ok", **more: Any) -> int:
        return self.add(f.ExecutionFinished(execution_id=name, outcome=outcome, **more))

    def says(self, name: str, text: str, *, late: bool = False) -> int:
        return self.message(name, "stream", {"name": "stdout", "text": text}, late=late)

    def message(self, name: str, kind: str, content: dict[str, Any], *, late: bool = False) -> int:
        raw = msgspec.Raw(msgspec.json.encode({"type": kind, "content": content}))
        return self.add(f.OutputRecorded(messages=[raw], execution_id=name, late=late))

    def saw(self, name: str, names: dict[str, dict[str, Any]] | None = None, **more: Any) -> None:
        self.add(f.ExecutionObserved(execution_id=name, names=names or {}, **more))

    def ran(self, name: str, source: str = "", outcome: str = "ok", says: str = "", **how: Any) -> None:
        """One whole execution."""
        self.queue(name, source, **how)
        self.start(name)
        if says:
            self.says(name, says)
        self.finish(name, outcome)

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
        found = [
            entry
            for entry in self.log
            if entry.seq > after
            and (wanted is None or entry.kind in wanted)
            and (execution_id is None or entry.execution_id == execution_id)
        ]
        return found[: min(limit, 3)]  # few at a time, so that reading on is always part of it


def bound(digest: str | None = "d:1", **more: Any) -> dict[str, Any]:
    """What a probe says of a name that was bound."""
    return {"how": "bound", "type": "int", "digest": digest, **more}
