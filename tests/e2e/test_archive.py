"""A session's past in sealed files: it goes on, reads as before, and whatever dies loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.client.session_files import load
from kernel_runtime.journal import JournalReader, verify
from tests.cases.support import stopped
from tests.support import krt, krt_json


def log(name: str = "alice") -> list[dict[str, object]]:
    done = krt("log", name, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def filled(session: kr.Session) -> str:
    """Some executions, one with much output; the id of that one."""
    session.execute("import random\ndef f(n): return random.Random(n).randbytes(200_000).hex()")
    ran = session.execute("print(f(1))")
    session.execute("raise ValueError('no')")
    return ran.execution_id


@pytest.mark.slow
def test_the_past_reads_as_before_and_the_session_goes_on(tmp_path: Path) -> None:
    with kr.attach("alice", create=True) as session:
        much = filled(session)
        before, printed = log(), krt("wait", "alice", much).stdout
        done = krt_json("archive", "alice", "--to", str(tmp_path / "a"))
        assert done["left"] == []
        assert done["journal_bytes"]["after"] < done["bytes"]
        assert log()[: len(before)] == before
        assert krt("wait", "alice", much).stdout == printed
        assert session.execute("6 * 7").text == "42"
        assert krt_json("archive", "alice")["first"] == done["last"] + 1
        assert krt("archive", "alice", "--before", "3").returncode == 2
        report = krt_json("verify", "alice")
        assert [one["state"] for one in report["archive"]] == ["whole", "whole"]
        session.stop()
    # another supervisor, without the file: it starts, runs, and says what is missing where it matters
    hidden = Path(done["file"]).rename(tmp_path / "hidden")
    with kr.attach("alice") as session:
        session.accept()
        assert session.execute("1 + 1").text == "2"
        missing = krt("wait", "alice", much)
        assert missing.returncode == 4
        assert done["file"] in missing.stderr
        checked = krt("verify", "alice")
        assert checked.returncode == 9
        assert "chain is whole" in checked.stdout
        assert done["file"] in checked.stdout
        hidden.rename(done["file"])
        assert krt("wait", "alice", much).stdout == printed
        assert krt("verify", "alice").returncode == 0
        session.stop()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["segment-written", "before-rewrite", "after-rewrite", "archived"])
def test_killed_in_the_middle(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is in the journal, or sealed and said so; and what was begun can be done again."""
    points = tmp_path / "points"
    points.mkdir()
    monkeypatch.setenv("KRT_FAILPOINT", f"{point}:kill")
    monkeypatch.setenv("KRT_FAILPOINT_DIR", str(points))
    with stopped("alice") as session:
        filled(session)
        journal = load("alice").journal
        before = rows(journal)
        (points / "arm").touch()
        assert krt("archive", "alice").returncode == 4
        assert (points / "hit").exists()
        monkeypatch.delenv("KRT_FAILPOINT")
        report = verify(journal)
        assert report.ok, report.problems
        assert bool(report.archive) == (point in ("after-rewrite", "archived"))
        assert rows(journal)[: len(before)] == before
        assert krt("archive", "alice").returncode == 0
        assert rows(journal)[: len(before)] == before
        assert verify(journal).ok
        assert session.execute("6 * 7").text == "42"


def rows(journal: Path) -> list[tuple[int, str, bytes]]:
    with JournalReader.open(journal) as reader:
        return [(row[0], row[10], payload) for row, payload in reader.rows()]
