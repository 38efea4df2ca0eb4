"""The execution document of INTERFACE.md."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from kernel_runtime.core.execution_view import iso_time, view
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import (
    EffectsObserved,
    ExecutionFinished,
    ExecutionObserved,
    Fact,
    GapRecorded,
    OutputRecorded,
)

FIELDS = {
    "session", "execution_id", "key", "cell_id", "principal", "incarnation", "status", "outcome",
    "execution_count", "source", "queued_at", "started_at", "finished_at", "outputs", "gaps", "error",
    "blocked", "cursor",
}  # fmt: skip


def execution(**more: Any) -> Execution:
    fields: dict[str, Any] = {
        "execution_id": "e1", "cell_id": "c1", "principal": "agent:a", "msg_id": "m",
        "source_digest": "0" * 64, "queued_seq": 5, "queued_at": 0,
    } | more  # fmt: skip
    return Execution(**fields)


def entry(seq: int, fact: Fact) -> Entry:
    return Entry(
        seq=seq, at=0, mono=0, incarnation=1, principal="system", kind=type(fact).__name__, fact=fact,
        execution_id="e1", prev_hash="", hash="",
    )  # fmt: skip


def test_times_are_iso_8601_in_utc_to_the_microsecond():
    at = 1_700_000_000_123_456_789
    assert iso_time(at) == "2023-11-14T22:13:20.123456Z"
    assert datetime.fromisoformat(iso_time(at)) == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)


def test_every_field_of_the_interface_is_there_from_the_start():
    document = view("s", execution(), "1+1", [])
    assert set(document) >= FIELDS
    assert document["queued_at"] == "1970-01-01T00:00:00.000000Z"
    assert document["started_at"] is None
    assert document["cursor"] == 5
    json.dumps(document)


def test_outputs_gaps_and_cursor_come_from_the_entries():
    message = msgspec.Raw(b'{"type":"stream","content":{"name":"stdout","text":"hi"}}')
    entries = [
        entry(7, OutputRecorded(execution_id="e1", messages=[message, message])),
        entry(8, GapRecorded(execution_id="e1", reason="disk", messages=2, bytes=9)),
        entry(9, ExecutionFinished(execution_id="e1", outcome="ok")),
        entry(12, OutputRecorded(execution_id="e1", messages=[message], late=True)),
    ]
    document = view("s", execution(status="done", outcome="ok", finished_seq=9), "x", entries)
    assert document["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "hihihi"}]
    assert document["gaps"] == [{"reason": "disk", "messages": 2, "bytes": 9}]
    assert document["cursor"] == 12


def test_blocked_tells_since_when_as_a_time():
    blocked = {"on": "input", "prompt": "name? ", "pid": None, "since": 1_000_000_000}
    document = view("s", execution(status="blocked", blocked=blocked), "input()", [])
    assert document["blocked"] == {**blocked, "since": "1970-01-01T00:00:01.000000Z"}


def test_effects_come_once_they_were_observed():
    """Right: null until the probe has looked, then what it saw, and what a thread did later."""
    done = execution(status="done", outcome="ok", finished_seq=9)
    late = entry(12, EffectsObserved(execution_id="e1", effects=[{"kind": "file", "path": "/b"}]))
    assert view("s", done, "x", [late])["effects"] is None
    seen = entry(10, ExecutionObserved(execution_id="e1"))
    assert view("s", done, "x", [seen])["effects"] == {
        "verdict": "effect-free", "declared": None, "seen": [], "unseen": [],
    }  # fmt: skip
    document = view("s", done, "x", [seen, late])["effects"]
    assert (document["verdict"], document["seen"]) == ("effectful", [{"kind": "file", "path": "/b"}])
    pure = entry(10, ExecutionObserved(execution_id="e1", declared="effect-free"))
    assert view("s", done, "x", [pure, late])["effects"]["verdict"] == "declared"
