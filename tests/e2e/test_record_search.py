"""Asking the record: which executions made a value, and which did what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from tests.cases.support import entries
from tests.support import eventually, krt, krt_json


@pytest.fixture
def alice(krt_home: Path) -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:planner") as session:
        yield session
    krt_json("stop", "alice")


def _queued(*conditions: str) -> list[str]:
    """Sources of the executions that are found."""
    result = krt("log", "alice", "--json", "--kind", "ExecutionQueued", *conditions)
    assert result.returncode == 0, result.stderr
    documents: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    return [document["fact"]["source"] for document in documents]


def test_why_and_log_on_a_real_kernel(alice: kr.Session, tmp_path: Path) -> None:
    writes = f"open({str(tmp_path / 'out.csv')!r}, 'w').write('1')"
    for source in [
        "rate = 2",
        "data = [1, 2, 3]",
        "noise = 'silence'",
        "def scale(values): return [rate * value for value in values]",
        "alias = data; alias.append(4)",
        "total = sum(scale(data))",
        writes,
        "1 / 0",
        "data = None",
    ]:
        last = alice.execute(source)
    # the record alone is asked, and what a cell did is in it some time after its outcome
    eventually(lambda: entries(alice, "ExecutionObserved", execution=last), 30, "the last is observed")
    why = krt_json("why", "alice", "total")
    assert (why["state"], why["incarnation"], why["unobserved"]) == ("present", 1, [])
    sources = [one["source"] for one in why["executions"]]
    assert sources == [
        "rate = 2",
        "data = [1, 2, 3]",
        "def scale(values): return [rate * value for value in values]",
        "alias = data; alias.append(4)",
        "total = sum(scale(data))",
    ]
    assert {"name": "data", "how": "mutated"} in why["executions"][3]["because"]
    assert "data = None" not in krt("why", "alice", "total").stdout
    near = krt("why", "alice", "totl")
    assert (near.returncode, "did you mean 'total'" in near.stderr) == (3, True)

    assert _queued("--outcome", "error") == ["1 / 0"]
    assert _queued("--effect", "file:out.csv", "--by", "agent:*") == [
        f"open({str(tmp_path / 'out.csv')!r}, 'w').write('1')"
    ]
    assert _queued("--variable", "rate") == ["rate = 2", "total = sum(scale(data))"]
    assert _queued("--text", "SILENCE", "--since", "10m") == ["noise = 'silence'"]
    assert _queued("--text", "silence", "--until", "2020-01-01") == []
    assert krt("log", "alice", "--since", "yesterday").returncode == 2
    alice.restart()
    alice.accept()
    assert krt_json("why", "alice", "total")["state"] == "lost"
