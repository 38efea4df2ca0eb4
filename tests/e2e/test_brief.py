"""The brief of a real session: what a worker needs to know, with the entries that prove it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.client.brief import Brief
from tests.support import eventually, krt, krt_json


@pytest.fixture
def session(krt_home: Path, tmp_path: Path) -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:planner", cwd=str(tmp_path)) as attached:
        try:
            yield attached
        finally:
            attached.stop()


def lines_of(brief: str, title: str) -> list[str]:
    """The lines under a heading."""
    after = brief.partition(f"## {title}\n")[2]
    return after.partition("\n\n")[0].splitlines()


def test_what_is_not_live_and_which_names_are_worth_knowing(session: kr.Session) -> None:
    session.execute("rows = list(range(100_000)); limit = 3; import os", timeout=60)
    read = session.execute("total = sum(rows)", timeout=60)
    changed = session.execute("rows.append(1)", timeout=60)
    told: list[Brief] = []

    def with_its_rows() -> bool:
        told[:] = [session.brief()]
        return "100,001 rows" in told[0]

    # a brief leaves out what the kernel does not count within a second
    eventually(with_its_rows, timeout=30)
    (brief,) = told
    (stale,) = lines_of(brief, "Not live")
    assert stale.startswith(f"- stale: total = sum(rows) ({read.execution_id[:8]})")
    assert f"rows changed by {changed.execution_id[:8]}" in stale
    names = lines_of(brief, "Names worth knowing")
    assert names[0].startswith("- rows: list, 100,001 rows, ")
    assert not any(name.startswith("- os:") for name in names)
    head = session.status().report
    entries = {entry.seq: entry for entry in session.follow(timeout=0)}
    assert head.state == "idle"
    for line in brief.lines:
        assert all(entry in entries for entry in line.entries)
    cited = next(line for line in brief.lines if line.text == stale).entries
    assert any(entries[seq].execution_id == changed.execution_id for seq in cited)
    assert any(entries[seq].execution_id == read.execution_id for seq in cited)


def test_what_blocks_comes_first_with_how_to_answer(session: kr.Session) -> None:
    asked = session.execute("name = input('who? ')", timeout=60)
    assert asked.status == "blocked"
    (line,) = lines_of(session.brief(), "Now")
    assert line.startswith("- blocked: name = input('who? ')")
    assert "asks 'who?'" in line
    assert "krt answer alice TEXT" in line
    session.answer("me")
    eventually(lambda: session.status().state == "idle", what="it went on")


def test_after_a_death_it_says_so_and_which_claims_went_with_it(session: kr.Session) -> None:
    session.execute("x = 1", timeout=60)
    session.claim("x is one", probe="name x == 1")
    session.execute("import os; os.kill(os.getpid(), 9)", timeout=60)
    brief = session.brief()
    assert "why: KernelDied, signal 9 [#" in brief
    (claim,) = lines_of(brief, "Claims that do not hold")
    assert claim.startswith("- false: x is one (`name x == 1`, c1); the kernel is dead")
    assert any(line.startswith("- restart: ") for line in lines_of(brief, "Next"))


def test_from_the_command_line(session: kr.Session) -> None:
    for i in range(12):
        session.execute(f"x{i} = {i}", timeout=60)
    document = krt_json("brief", "alice", "--max-tokens", "100")
    assert len(document["brief"]) <= 400
    assert "… " in document["brief"]
    assert document["lines"][0] == {"text": document["brief"].splitlines()[0], "entries": []}
    assert any(line["entries"] for line in document["lines"])
    assert krt("brief", "alice").stdout.startswith("# alice: incarnation 1, idle; 12 live\n")
