"""The recorder's accounts: what is kept, what is counted, and when a count is told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kernel_runtime.model.facts import GapRecorded, OutputRecorded
from kernel_runtime.supervisor.bounds import Bounds
from kernel_runtime.supervisor.recorder import Recorder

PARENT = json.dumps({"msg_id": "krt-exec-e1", "msg_type": "execute_request", "session": "s"}).encode()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def make(directory: Path, **bounds: int) -> Recorder:
    return Recorder("0" * 8, directory, Bounds(**bounds))


def gaps(recorder: Recorder, *, asked: bool = False) -> list[tuple[str, int]]:
    """Gaps that are told now, and so journaled."""
    drafts = recorder.take(1, gaps=asked)
    recorder.journaled(drafts)
    return [(d.fact.reason, d.fact.bytes) for d in drafts if isinstance(d.fact, GapRecorded)]


def test_output_that_was_refused_is_not_counted_twice(tmp_path: Path) -> None:
    recorder = make(tmp_path, execution=1000, session=1000)
    for _ in range(5):  # a full disk: taken, refused, and it comes again
        assert recorder.stream("stdout", PARENT, b"x" * 600) is not None
        recorder.forget()
    assert recorder.stream("stdout", PARENT, b"x" * 600) is not None
    (draft,) = recorder.take(1)
    recorder.journaled((draft,))
    assert isinstance(draft.fact, OutputRecorded)
    recorder.forget()  # nothing is given back for what is an entry
    assert recorder.stream("stdout", PARENT, b"x" * 600) is None
    assert gaps(recorder, asked=True) == [("execution-bound", 600)]


def test_text_is_not_left_out_for_coming_in_large_pieces(tmp_path: Path) -> None:
    recorder = make(tmp_path, message=100)
    assert recorder.stream("stdout", PARENT, b"x" * 500) is not None
    content = json.dumps({"data": {"text/plain": "x" * 500}}).encode()
    assert not recorder.output("display_data", [b"", b"{}", PARENT, b"{}", content])
    assert [reason for reason, _ in gaps(recorder, asked=True)] == ["message-bound"]


def test_a_gap_that_grows_is_told_ever_more_rarely(tmp_path: Path, now: list[float]) -> None:
    """A day of output over the bound costs a few entries an hour, and each execution starts anew."""
    recorder = make(tmp_path, execution=0)
    told = []
    for second in range(3600):
        now[0] = 100.0 + second
        recorder.stream("stdout", PARENT, b"x")
        if gaps(recorder):
            told.append(second)
    assert told[0] == 2
    assert len(told) < 70
    recorder.stream("stdout", PARENT, b"x")
    assert gaps(recorder, asked=True) != []
    recorder.stream("stdout", PARENT, b"x")
    now[0] += 2
    assert gaps(recorder) == [("execution-bound", 1)]


def test_counted_output_is_told_before_the_outbox_is_full(tmp_path: Path, now: list[float]) -> None:
    """What is counted and not told yet stays in the outbox, so half of that is as long as it waits."""
    recorder = make(tmp_path, execution=0, outbox=1000)
    recorder.stream("stdout", PARENT, b"x" * 499)
    assert gaps(recorder) == []
    recorder.stream("stdout", PARENT, b"x")
    assert gaps(recorder) == [("execution-bound", 500)]


def test_output_behind_a_gap_takes_its_count_along(tmp_path: Path, now: list[float]) -> None:
    recorder = make(tmp_path, message=100)
    content = json.dumps({"data": {"text/plain": "x" * 500}}).encode()
    recorder.output("display_data", [b"", b"{}", PARENT, b"{}", content])
    recorder.stream("stdout", PARENT, b"after")
    assert gaps(recorder) == [("message-bound", len(content))]
