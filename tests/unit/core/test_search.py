"""Finding executions by what all of their entries say together."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kernel_runtime.core.search import Query, Search
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import (
    ClaimMade,
    EffectsObserved,
    ExecutionFinished,
    ExecutionObserved,
    ExecutionQueued,
    NamesDrifted,
    OutputRecorded,
)
from tests.unit.core.support import entry


def _printed(execution_id: str, text: str, name: str = "stdout") -> OutputRecorded:
    message = {"type": "stream", "content": {"name": name, "text": text}}
    return OutputRecorded(execution_id=execution_id, messages=[msgspec.Raw(json.dumps(message).encode())])


def _queued(execution_id: str, source: str) -> ExecutionQueued:
    return ExecutionQueued(execution_id=execution_id, source=source, cell_id=execution_id, msg_id="")


WROTE = {"kind": "file", "how": "write", "path": "/data/out.csv"}

JOURNAL: list[Entry] = [
    entry(1, _queued("load", "df = read('Flüge')"), principal="agent:planner"),
    entry(2, _printed("load", "Loa"), principal="system"),
    entry(3, _printed("load", "warn", "stderr"), principal="system"),
    entry(4, _printed("load", "ded 12"), principal="system"),
    entry(5, ExecutionFinished(execution_id="load", outcome="ok"), principal="system"),
    entry(6, ExecutionObserved(execution_id="load", names={"df": {"how": "bound"}}), principal="system"),
    entry(7, _queued("save", "df.save()"), principal="human:ada"),
    entry(8, ExecutionFinished(execution_id="save", outcome="error"), principal="system"),
    entry(
        9, ExecutionObserved(execution_id="save", reads=["df"], effects=[WROTE], declared=None),
        principal="system",
    ),
    entry(10, NamesDrifted(names={"df": {"how": "mutated"}}, found="idle"), principal="system"),
    entry(
        11, ClaimMade(claim_id="c1", text="loaded is done", probe="name df"), principal="agent:planner"
    ),
    entry(
        12, EffectsObserved(execution_id="load", effects=[{"kind": "host", "how": "connect", "port": 8080}]),
        principal="system",
    ),
]  # fmt: skip


def found(**query: Any) -> list[int]:
    search = Search(Query(**query))
    for one in JOURNAL:
        search.see(one)
    return [one.seq for one in JOURNAL if search.wants(one)]


LOAD, SAVE = [1, 2, 3, 4, 5, 6, 12], [7, 8, 9]


@pytest.mark.parametrize(
    "query, seqs",
    [
        ({"principal": "agent:*"}, sorted([*LOAD, 11])),
        ({"principal": "human:ada"}, SAVE),
        ({"principal": "system"}, [10]),
        ({"outcome": "error"}, SAVE),
        ({"name": "df"}, sorted([*LOAD, *SAVE, 10])),
        ({"effect": "file"}, SAVE),
        ({"effect": "file:OUT.csv"}, SAVE),
        ({"effect": "file:other"}, []),
        ({"effect": "host:8080"}, LOAD),
        ({"effect": "effectful"}, sorted([*LOAD, *SAVE])),
        ({"effect": "effect-free"}, LOAD),
        ({"text": "FLÜGE"}, LOAD),
        ({"text": "loaded 12"}, LOAD),
        ({"text": "loaded"}, sorted([*LOAD, 11])),
        ({"text": "loawarn"}, []),
        ({"text": "df", "outcome": "ok"}, LOAD),
        ({"principal": "agent:*", "outcome": "error"}, []),
        ({"since": 8000, "until": 9000}, [8, 9]),
        ({"since": 8000, "outcome": "ok"}, [12]),
    ],
)
def test_found(query, seqs):
    assert found(**query) == seqs
