"""A journal that version 3 wrote opens, verifies, says the same, and goes on, with its segment. For ever."""

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
from tests.compat.make_journal_v3 import SECRET, SEGMENT, said, story
from tests.compat.test_journal_v1 import told
from tests.unit.journal.support import append, plain_sqlite

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    shutil.copy(HERE / SEGMENT, tmp_path / SEGMENT)
    return Path(shutil.copy(HERE / "journal_v3.db", tmp_path / "journal.db"))


def golden() -> dict[str, Any]:
    return dict(json.loads((HERE / "journal_v3.json").read_text(encoding="utf-8")))


def test_it_is_a_file_of_version_3(path: Path):
    with plain_sqlite(path) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (3,)


def test_it_has_every_kind_that_came_with_version_3():
    kinds = {entry["kind"] for entry in golden()["log"]}
    there = {type(fact).__name__ for _incarnation, _principal, said_ in story() for fact in said_}
    assert kinds == there | {"ExecutionFinished", "SegmentSealed", "PayloadRedacted"}
    before = {
        entry["kind"]
        for version in (1, 2)
        for entry in json.loads((HERE / f"journal_v{version}.json").read_text())["log"]
    }
    assert len(kinds - before) == 6
    assert kinds <= facts.KINDS.keys()


def test_it_verifies(path: Path):
    report = verify(path)
    assert report.ok, report.problems
    assert (report.projections, report.redacted) == ("match", 3)
    assert [(one.first, one.last, one.state) for one in report.archive] == [(1, 9, "whole")]
    assert (report.entries, report.head_hash) == (golden()["head"], golden()["log"][-1]["hash"])


def test_it_says_what_it_said(path: Path):
    assert told(said(path), golden()) == golden()


def test_what_was_taken_out_is_in_none_of_its_files(path: Path):
    for file in path.parent.iterdir():
        assert SECRET.encode() not in file.read_bytes()


def test_it_goes_on(path: Path):
    with Journal.open(path) as journal:
        append(journal, facts.PrincipalAttached())
    assert verify(path).ok


def test_it_can_be_checked_by_hand_as_documented(path: Path):
    document = (HERE.parents[1] / "docs" / "journal-format.md").read_text(encoding="utf-8")
    script = document.split("```python\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{golden()['head']} entries, 3 redacted, head {golden()['log'][-1]['hash']}\n"
