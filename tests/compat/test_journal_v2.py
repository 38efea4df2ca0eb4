"""A journal that version 2 wrote opens, verifies, says the same, and goes on. For ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.journal import Journal, verify
from kernel_runtime.model import facts
from tests.compat.make_journal_v2 import said, story
from tests.compat.test_journal_v1 import told
from tests.unit.journal.support import append, plain_sqlite

HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(HERE / "journal_v2.db", tmp_path / "journal.db"))


def golden() -> dict[str, Any]:
    return dict(json.loads((HERE / "journal_v2.json").read_text(encoding="utf-8")))


def test_it_is_a_file_of_version_2(path: Path):
    with plain_sqlite(path) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (2,)


def test_it_has_every_kind_that_came_with_version_2():
    kinds = {entry["kind"] for entry in golden()["log"]}
    assert kinds == {type(fact).__name__ for _incarnation, _principal, said_ in story() for fact in said_}
    first = {entry["kind"] for entry in json.loads((HERE / "journal_v1.json").read_text())["log"]}
    assert len(kinds - first) == 9
    assert kinds <= facts.KINDS.keys()


def test_it_tells_every_truth_that_names_give_a_cell():
    assert {cell["heap"] for cell in golden()["cells"]} == {"", "live", "superseded", "stale", "unknown"}


def test_it_verifies(path: Path):
    report = verify(path)
    assert report.ok, report.problems
    assert report.projections == "match"
    assert (report.entries, report.head_hash) == (golden()["head"], golden()["log"][-1]["hash"])


def test_it_says_what_it_said(path: Path):
    assert told(said(path), golden()) == golden()


def test_it_goes_on(path: Path):
    with Journal.open(path) as journal:
        append(
            journal,
            facts.NamesDrifted(names={"df": {"how": "mutated", "digest": "xxh3_128:9"}}, found="idle"),
            incarnation=2,
        )
        with journal.reader() as reader:
            name = reader.name("df")
    assert name is not None
    assert name.drifted
    assert verify(path).ok
