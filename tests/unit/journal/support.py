"""What tests of the journal share: drafts in few words, a clock that does not move by itself, raw access."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.journal import Journal
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionQueued,
    ExecutionStarted,
    Fact,
    OutputRecorded,
)

AGENT = "agent:a"


class FixedClock:
    """Wall time from 2026-01-01, monotonic from 0; each reading is one millisecond later."""

    def __init__(self) -> None:
        self.ticks = 0

    def __call__(self) -> tuple[int, int]:
        self.ticks += 1
        return 1_767_225_600_000_000_000 + self.ticks * 1_000_000, self.ticks * 1_000_000


def draft(fact: Fact, incarnation: int = 1, principal: str = AGENT) -> Draft:
    return Draft(fact, principal, incarnation)


def queued(name: str, source: str = "x = 1", **fields: Any) -> ExecutionQueued:
    """An execution called `name`, of the cell `c-name` unless said otherwise."""
    fields.setdefault("cell_id", f"c-{name}")
    return ExecutionQueued(execution_id=name, source=source, msg_id=f"m-{name}", **fields)


def started(name: str) -> ExecutionStarted:
    return ExecutionStarted(execution_id=name)


def finished(name: str, outcome: str = "ok", **fields: Any) -> ExecutionFinished:
    return ExecutionFinished(execution_id=name, outcome=outcome, **fields)


def printed(name: str | None, text: str, position: int | None = None) -> OutputRecorded:
    message = {"type": "stream", "content": {"name": "stdout", "text": text}}
    return OutputRecorded(
        messages=[msgspec.Raw(msgspec.json.encode(message))], execution_id=name, position=position
    )


def append(journal: Journal, *facts: Fact, incarnation: int = 1, sync: bool = False) -> list[int]:
    """Append facts, and return their `seq`."""
    made = journal.append([draft(fact, incarnation) for fact in facts], sync=sync)
    return [entry.seq for entry in made]


def run(journal: Journal, name: str, outcome: str = "ok", incarnation: int = 1, **fields: Any) -> None:
    """One execution from its intent to its outcome."""
    append(journal, queued(name, **fields), started(name), incarnation=incarnation)
    append(journal, printed(name, f"{name}\n"), incarnation=incarnation)
    append(journal, finished(name, outcome, execution_count=1), incarnation=incarnation)


@contextmanager
def plain_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as any program has it that knows nothing of us: the standard library's SQLite."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def without_triggers(path: Path) -> Iterator[sqlite3.Connection]:
    """Write access as somebody has it who takes the triggers away and puts them back."""
    with plain_sqlite(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _sql in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        try:
            yield connection
        finally:
            for _name, sql in triggers:
                connection.execute(sql)


def steps_of(connection: Any, call: Callable[[], object]) -> int:
    """Instructions of SQLite's virtual machine that a call takes: a cost that no busy machine changes."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection.set_progress_handler(count, 1)
    try:
        call()
    finally:
        connection.set_progress_handler(None, 1)
    return steps


def in_own_mounts(script: str, *args: str) -> list[str]:
    """Run a script where it may mount what nobody else sees, as root or as any user; its output's lines."""
    flags = ["-m"] if os.getuid() == 0 else ["-m", "-U", "-r"]
    done = subprocess.run(
        ["unshare", *flags, sys.executable, "-c", script, *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
