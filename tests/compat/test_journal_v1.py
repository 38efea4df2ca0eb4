"""A journal that version 1 wrote opens, verifies, says the same, and goes on. For ever."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.journal import Journal, verify
from kernel_runtime.model import facts
from tests.compat.make_journal_v1 import said, story
from tests.unit.journal.support import append, plain_sqlite, without_triggers

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(HERE / "journal_v1.db", tmp_path / "journal.db"))


def golden() -> dict[str, Any]:
    return dict(json.loads((HERE / "journal_v1.json").read_text(encoding="utf-8")))


def test_it_is_a_file_of_version_1(path: Path):
    with plain_sqlite(path) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (1,)
        assert {row[0] for row in plain.execute("SELECT codec FROM payloads")} == {"zstd", "raw"}


def test_it_has_every_kind_that_version_1_knew():
    kinds = {entry["kind"] for entry in golden()["log"]}
    assert kinds == {type(fact).__name__ for _incarnation, _principal, said in story() for fact in said}
    assert len(kinds) == 23
    assert kinds <= facts.KINDS.keys()


def test_it_verifies(path: Path):
    report = verify(path)
    assert report.ok, report.problems
    assert (report.entries, report.head_hash) == (golden()["head"], golden()["log"][-1]["hash"])


def test_it_says_what_it_said(path: Path):
    assert told(said(path), golden()) == golden()


def test_it_goes_on(path: Path):
    with Journal.open(path) as journal:
        assert journal.head == golden()["head"]
        append(journal, facts.ExecutionFinished(execution_id=journal_alive(journal), outcome="unknown"))
    assert verify(path).ok
    now = said(path)
    assert told(now["log"][:-1], golden()["log"]) == golden()["log"]


def journal_alive(journal: Journal) -> str:
    with journal.reader() as reader:
        (alive,) = reader.executions(status="blocked")
    return alive.execution_id


def told(now: Any, then: Any) -> Any:
    """`now` without the fields that came after: additions are allowed, changes are not."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: told(value, then[key]) for key, value in now.items() if key in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [told(one, other) for one, other in zip(now, then, strict=True)]
    return now


def test_it_can_be_checked_by_hand_as_documented(path: Path):
    document = (HERE.parents[1] / "docs" / "journal-format.md").read_text(encoding="utf-8")
    script = document.split("```python\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{golden()['head']} entries, head {golden()['log'][-1]['hash']}\n"
    assert golden()["log"][5]["hash"] in document

    with without_triggers(path) as plain:
        plain.execute("UPDATE entries SET principal = 'human:eve' WHERE seq = 9")
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert "chain at 9" in done.stderr
