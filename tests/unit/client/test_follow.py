"""Reading along: each entry once and in order, whatever happens between two looks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kernel_runtime.client.follow import Follower
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import ExecutionFinished, ExecutionStarted, Fact


def entry(seq: int, execution_id: str = "e", *, end: bool = False) -> Entry:
    fact: Fact = (
        ExecutionFinished(execution_id=execution_id, outcome="ok")
        if end
        else ExecutionStarted(execution_id=execution_id)
    )
    return Entry(
        seq=seq, at=0, mono=0, incarnation=1, principal="system", kind=type(fact).__name__,
        fact=fact, execution_id=execution_id, prev_hash="", hash="",
    )  # fmt: skip


class FakeRecord:
    """A journal that grows by one step each time somebody waits for news, or just before he reads."""

    def __init__(self, *steps: list[Entry], unannounced: list[Entry] | None = None) -> None:
        self.all: list[Entry] = []
        self.steps = list(steps)
        self.unannounced = unannounced or []
        self.journal: Any = self

    def head(self) -> int:
        head = self.all[-1].seq if self.all else 0
        # what the writer does between our look at the head and our read
        self.all += self.unannounced
        self.unannounced = []
        return head

    def entries(self, after: int, *, max_bytes: int, execution_id: str | None) -> list[Entry]:
        found = [e for e in self.all if e.seq > after and execution_id in (None, e.execution_id)]
        return found[:2]

    async def peek(self, execution_id: str) -> Execution:
        ends = [e.seq for e in self.all if e.kind == "ExecutionFinished" and e.execution_id == execution_id]
        return Execution(
            execution_id=execution_id, cell_id="c", principal="p", msg_id="m", source_digest="",
            queued_seq=1, queued_at=0, finished_seq=ends[0] if ends else None,
        )  # fmt: skip

    async def news(self, after: int, deadline: float | None) -> bool:
        if any(e.seq > after for e in self.all):
            return True
        if not self.steps:
            return False
        self.all += self.steps.pop(0)
        return True


def read(record: FakeRecord, after: int = 0, **how: Any) -> list[int]:
    async def run() -> list[int]:
        return [e.seq async for batch in Follower(record, after, **how) for e in batch]

    return asyncio.run(run())


@pytest.mark.parametrize("after, seen", [(0, [1, 2, 3, 4, 5]), (3, [4, 5]), (5, [])])
def test_all_after_the_cursor_until_the_session_is_stopped(after: int, seen: list[int]) -> None:
    record = FakeRecord([entry(1), entry(2), entry(3)], [entry(4)], [entry(5)])
    assert read(record, after) == seen


def test_it_ends_with_the_execution_it_follows() -> None:
    steps = [entry(1)], [entry(2), entry(3, "other", end=True), entry(4, end=True), entry(5)]
    assert read(FakeRecord(*steps), until="e") == [1, 2, 3, 4]


def test_only_its_own_where_asked() -> None:
    steps = [entry(1)], [entry(2, "other"), entry(3), entry(4, end=True)]
    assert read(FakeRecord(*steps), until="e", only=True) == [1, 3, 4]


def test_of_one_that_ended_before_the_cursor_nothing() -> None:
    record = FakeRecord([entry(4)])
    record.all = [entry(1), entry(2, end=True)]
    assert read(record, 2, until="e") == []


def test_what_comes_between_two_looks_is_not_passed_over() -> None:
    """Mechanism: entries of others move the head while ours is written just after we looked at it."""
    record = FakeRecord([entry(4, end=True)], unannounced=[entry(3)])
    record.all = [entry(1), entry(2, "other")]
    assert read(record, 1, until="e", only=True) == [3, 4]


def test_a_time_limit_ends_it() -> None:
    record = FakeRecord([entry(2)])
    record.all = [entry(1)]
    assert read(record, timeout=0) == [1]
