"""A worker leaves, the next one comes: what the handoff says, and the proof that it can be followed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.errors import BadProbe, NotFound, SessionBusy, UsageError
from tests.support import krt, krt_json


@pytest.fixture
def session(krt_home: Path, tmp_path: Path) -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:planner", cwd=str(tmp_path)) as attached:
        try:
            yield attached
        finally:
            attached.stop()


def test_versions_follow_each_other_and_the_journal_completes_them(session: kr.Session) -> None:
    with pytest.raises(NotFound, match="no handoff"):
        session.handoff()
    session.execute("rows = list(range(12))", timeout=60)
    failed = session.execute("1 / 0", timeout=60)
    first = session.handoff(goal="sum the rows", completed=["made rows"], references=["name:rows"])
    assert (first.version, first.complete, first.principal) == (1, False, "agent:planner")
    observed = first.document.observed
    assert observed["since"]["outcomes"] == {"ok": 1, "error": 1}
    assert (observed["incarnation"], observed["state"]) == (1, "idle")
    assert observed["ran"][-1]["execution_id"] == failed.execution_id
    assert observed["notebook"].endswith(".ipynb")
    session.execute("2", timeout=60)
    second = session.handoff(next_action="add up `rows`", risks=["none known"], complete=True)
    assert (second.version, second.complete) == (2, True)
    assert (second.document.goal, second.document.completed) == ("sum the rows", ["made rows"])
    assert second.document.observed["since"]["outcomes"] == {"ok": 1}
    assert session.handoff() == second
    kinds = [entry.kind for entry in session.follow(timeout=0) if entry.kind == "HandoffWritten"]
    assert len(kinds) == 2
    assert "- next action: add up `rows`" in session.brief()


def test_without_a_next_action_nothing_is_complete_and_nothing_is_written(session: kr.Session) -> None:
    with pytest.raises(UsageError, match="next action"):
        session.handoff(goal="g", complete=True, claims=["x :: port 1 listens"])
    with pytest.raises(NotFound):
        session.handoff()
    assert session.claims() == []
    with pytest.raises(UsageError, match="no reference"):
        session.handoff(references=["df"])
    with pytest.raises(BadProbe):
        session.handoff(goal="g", claims=["x :: prot 1"])
    with pytest.raises(UsageError, match="no claim with a probe"):
        session.handoff(goal="g", claims=["x"])


def test_two_workers_do_not_lose_each_others_words(session: kr.Session) -> None:
    session.handoff(goal="g", completed=["one"])
    with kr.attach("alice", principal="agent:other") as other:
        other.handoff(completed=["two"])
    assert session.handoff(completed=["three"]).document.completed == ["one", "two", "three"]
    with pytest.raises(SessionBusy, match="version 3"):
        session.handoff(completed=["four"], expect_version=2)


def test_a_fresh_client_can_resume_or_is_told_why_not(session: kr.Session, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("a\n")
    done = session.execute("rows = list(range(12))", timeout=60)
    session.handoff(
        goal="sum the rows",
        next_action="add up `rows`",
        references=[
            "entry:1",
            f"execution:{done.execution_id[:8]}",
            f"cell:{done.cell_id}",
            "name:rows",
            "file:out.csv",
        ],
        claims=["rows are there :: name rows has 12 rows", ("written", "file out.csv exists 2 bytes")],
        complete=True,
    )
    with kr.attach("alice", principal="agent:fresh") as fresh:
        tested = fresh.test_handoff()
        assert (tested.ok, tested.failures, tested.notes) == (True, [], [])
        assert tested.checked == {"references": 5, "claims": 2}
    (tmp_path / "out.csv").unlink()
    session.execute("del rows", timeout=60)
    session.withdraw_claim("c1")
    session.handoff(
        next_action="continue or stop",
        references=["entry:999999", "process:p9", "cell:nope", "execution:ffffffff"],
    )
    tested = session.test_handoff()
    assert {failure["what"] for failure in tested.failures} == {
        "next action",
        "reference name:rows",
        "reference file:out.csv",
        "reference entry:999999",
        "reference process:p9",
        "reference cell:nope",
        "reference execution:ffffffff",
        "claim c1 'rows are there'",
        "claim c2 'written'",
    }
    assert "whoever wrote it has not declared it complete" in tested.notes


def test_from_the_command_line(session: kr.Session, tmp_path: Path) -> None:
    assert krt("handoff", "alice").returncode == 3
    assert krt("handoff", "alice", "--goal", "sum", "--complete").returncode == 2
    session.execute("x = 1", timeout=60)
    made = krt(
        "handoff", "alice", "--goal", "sum it", "--done", "made x", "--next", "print x", "--risk", "none",
        "--ref", "name:x", "--claim", "x is one :: name x == 1", "--verification", "by eye", "--complete",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("# Handoff of alice, version 1 (complete)")
    assert "- x is one (`name x == 1`, c1)" in made.stdout
    shown = krt_json("handoff", "alice")
    assert (shown["version"], shown["document"]["next_action"]) == (1, "print x")
    good = krt("handoff", "alice", "--test")
    assert (good.returncode, "a fresh client can resume" in good.stdout) == (0, True)
    file = tmp_path / "handoff.json"
    file.write_text(json.dumps({"risks": [], "references": ["name:y"], "claims": []}))
    changed = krt_json("handoff", "alice", "--file", str(file), "--done", "said it")["document"]
    assert (changed["risks"], changed["references"], changed["claims"]) == ([], ["name:y"], [])
    assert changed["completed"] == ["made x", "said it"]
    bad = krt_json("handoff", "alice", "--test", exit_code=8)
    assert (bad["ok"], bad["failures"][0]["what"]) == (False, "reference name:y")
    assert krt("handoff", "alice", "--file", "-", stdin='{"goal": "again"}').returncode == 0
    assert krt("handoff", "alice", "--file", "-", stdin="[]").returncode == 2
    assert krt("handoff", "alice", "--file", "-", stdin='{"nonsense": 1}').returncode == 2
    assert krt("handoff", "alice", "--file", str(tmp_path / "none.json")).returncode == 2
    assert krt("handoff", "alice", "--markdown", "--json").returncode == 2
