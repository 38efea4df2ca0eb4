"""A secret that was printed is taken out of every file of its session, and the record still stands."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.client.blocking import Execution
from kernel_runtime.client.connection import ControlLine
from kernel_runtime.client.session_files import load
from kernel_runtime.journal import JournalReader, verify
from kernel_runtime.journal.forms import Forms
from kernel_runtime.model import facts
from tests.cases.support import entries, stopped
from tests.e2e.written import contents
from tests.support import eventually, krt, krt_json

pytestmark = pytest.mark.slow

SECRET = 'correct horse "battéry"'
"""with what shell, JSON and Python each write in another way"""
WRITTEN = repr(SECRET)

EVERYWHERE = f"""
import os, subprocess, sys
secret = {WRITTEN}
print("stdout:", secret)
print("stderr:", secret, file=sys.stderr)
print("x" * 8000 + secret)
subprocess.run([sys.executable, "-c", "pass", secret])
given = input("which one? ")
secret
"""


@pytest.fixture
def alice() -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:a") as session:
        yield session
        session.stop()


def said_everywhere(session: kr.Session) -> list[str]:
    """Ids of executions that said it: in source, outputs, answer, arguments; and in an error."""
    first = session.submit(EVERYWHERE)
    eventually(lambda: session.row()["state"] == "blocked", what="it asks", timeout=30)
    session.answer(SECRET)
    assert first.wait(timeout=30).outcome == "ok"
    failed = session.execute("raise ValueError(secret)")
    spawned = session.spawn([sys.executable, "-c", f"print({WRITTEN})", SECRET])
    session.claim(f"{SECRET} works", probe="expr True")
    log = load("alice").directory / "processes" / f"{spawned.process_id}.log"
    eventually(lambda: str(log) in holding(log.parent), what="what the process said is in its log")
    # its end and its last screen are written after what it said, and may hold it as well
    session.wait_process(spawned.process_id, timeout=30)
    eventually(log.with_suffix(".screen").exists, what="its last screen is kept")
    return [first.execution_id, failed.execution_id]


def holding(*places: Path) -> list[str]:
    """Files that hold it, read as bytes; in words, so that a failure says which."""
    forms = [SECRET, WRITTEN[1:-1], json.dumps(SECRET)[1:-1], json.dumps(SECRET, ensure_ascii=False)[1:-1]]
    needles = {form.encode() for form in forms}
    files = contents(*places)
    return [str(file) for file, content in files.items() if any(needle in content for needle in needles)]


def printed(execution: Execution) -> str:
    """What the journal has of its output by now."""
    with JournalReader.open(load("alice").journal) as reader:
        found = reader.entries(execution_id=execution.execution_id, kinds=["OutputRecorded"])
        return "".join(facts.encode(entry.fact).decode() for entry in found)


def redact(*options: str, text: str = SECRET) -> subprocess.CompletedProcess[str]:
    return krt("redact", "alice", "--text-stdin", "--reason", "it was printed", *options, stdin=text)


def test_no_file_of_the_session_holds_it(alice: kr.Session, krt_home: Path) -> None:
    ids = said_everywhere(alice)
    alice.execute("1 + 1")
    with (load("alice").directory / "kernel-1.log").open("a") as log:
        log.write(f"Fatal Python error: {SECRET}")
    before = holding(krt_home)
    assert {Path(file).name for file in before} >= {"journal.db-wal", "kernel-1.log", "p1.log"}
    done = krt_json("redact", "alice", "--text-stdin", "--reason", "oops", "--as", "human:kim", stdin=SECRET)
    assert (done["left"], done["files"]) == ([], [])
    assert set(done["kinds"]) >= {
        "ClaimMade",
        "ExecutionFinished",
        "ExecutionObserved",
        "ExecutionQueued",
        "InputAnswered",
        "OutputRecorded",
        "ProcessSpawned",
    }
    assert holding(krt_home, Path(os.environ["KRT_RUNTIME_DIR"])) == []
    shown = [
        krt(*command).stdout
        for command in (
            ["log", "alice", "--json"],
            ["status", "alice", "--json"],
            ["wait", "alice", ids[0]],
            ["wait", "alice", ids[1], "--json"],
            ["brief", "alice"],
            ["ps", "alice", "--json"],
            ["claims", "alice", "--json"],
        )
    ]
    assert krt("export", "alice", str(krt_home / "out.ipynb")).returncode == 0
    shown.append((krt_home / "out.ipynb").read_text())
    assert all("[redacted]" in text for text in [*shown[:4], shown[-1]])
    assert not any(SECRET in text or json.dumps(SECRET)[1:-1] in text for text in shown)
    report = krt_json("verify", "alice")
    assert (report["ok"], report["projections"]) == (True, "match")
    assert [(one["principal"], one["reason"]) for one in report["redactions"]] == [("human:kim", "oops")]
    assert "entries redacted by human:kim" in krt("verify", "alice").stdout
    assert alice.execute("len(secret)").text == str(len(SECRET)), "the heap is the kernel's"
    assert redact().returncode == 3, "nothing is left to be found"


@pytest.mark.slow
def test_what_is_refused(alice: kr.Session) -> None:
    ran = alice.execute(f"print({WRITTEN})")
    # nothing but a redaction may move the head from here on; these come when they come
    eventually(lambda: entries(alice, "EnvironmentRecorded"), 30, "the environment is on record")
    eventually(lambda: entries(alice, "ExecutionObserved", execution=ran), 30, "the cell is observed")
    head = krt_json("verify", "alice")["head"]
    for text, options, code, why in (
        ("", [], 2, "no text"),
        ("\n", [], 2, "no text"),
        ("abc", [], 2, "3 characters"),
        ("stdout", ["--force"], 2, "journal is written with"),
        ("printed", [], 2, "holds the text itself"),
        ("never said", [], 3, "stands nowhere"),
    ):
        done = redact(*options, text=text)
        assert (done.returncode, why in done.stderr) == (code, True), (text, done.stderr)
    for options in (["--execution", "ffffffff"], ["--entry", "99999"]):
        assert krt("redact", "alice", "--reason", "x", *options).returncode == 3
    assert krt("redact", "alice", "--reason", "x").returncode == 2
    assert krt("redact", "alice", "--reason", "x", "--entry", "1", "--text-stdin", stdin="y").returncode == 2
    assert krt("redact", "nobody", "--reason", "x", "--entry", "1").returncode == 3
    assert krt_json("verify", "alice")["head"] == head
    assert SECRET in ran.text
    assert krt("redact", "alice", "--reason", "x", "--execution", ran.execution_id[:8]).returncode == 1
    assert SECRET not in krt("wait", "alice", ran.execution_id).stdout


def test_people_s_cells_of_the_notebook(alice: kr.Session) -> None:
    """What people wrote is theirs, and stays, but for the text; it may stand in several lines of theirs."""
    alice.execute(f"a = {WRITTEN}")
    path = Path(load("alice").notebook)
    eventually(path.exists, what="the notebook is written")
    document = json.loads(path.read_text())
    lines = ["# Mine\n", f"the key is {SECRET}\n", "and more"]
    document["cells"].insert(0, {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": lines})
    path.write_text(json.dumps(document))
    assert redact().returncode == 0
    cells = json.loads(path.read_text())["cells"]
    assert "".join(cells[0]["source"]) == "# Mine\nthe key is [redacted]\nand more"
    assert "".join(cells[1]["source"]) == "a = '[redacted]'"
    assert "truth" not in cells[1]["metadata"]["kernel_runtime"], "it is what ran, not an edit"


@pytest.mark.slow
def test_a_notebook_that_a_page_has_open(alice: kr.Session) -> None:
    """The page would write it back: so it is left, named, and done when the page is closed."""
    alice.execute(f"a = {WRITTEN}")
    path = load("alice").notebook
    # itself: the journal beside it has the text before
    eventually(lambda: path in holding(Path(path).parent), what="the notebook is written")
    asked("hold_notebook", holder="a page", seconds=60.0)
    done = redact()
    assert done.returncode == 1
    assert "a page has it open" in done.stdout
    assert f"STILL IN: {path}" in done.stdout
    asked("release_notebook", holder="a page")
    # 3: what ran is rendered from the journal as soon as the file is ours again
    assert redact().returncode in (0, 3)
    assert holding(load("alice").directory) == []


def asked(op: str, **arguments: object) -> None:
    line = ControlLine(load("alice"), "human:kim")

    async def ask() -> None:
        try:
            await line.request(op, arguments)
        finally:
            line.close()

    asyncio.run(ask())


def test_a_busy_session(alice: kr.Session) -> None:
    """What was said can be taken out while a cell runs; what is still to run runs as it was asked."""
    alice.execute("import time")
    running = alice.submit(f"print({WRITTEN}, flush=True)\ntime.sleep(600)")
    eventually(
        lambda: json.dumps(SECRET, ensure_ascii=False)[1:-1] in printed(running), what="it has printed"
    )
    waits = alice.submit(f"b = {WRITTEN}")
    refused = redact()
    assert refused.returncode == 4
    assert waits.execution_id in refused.stderr
    assert krt("redact", "alice", "--reason", "x", "--execution", running.execution_id).returncode == 4
    alice.interrupt()
    alice.interrupt()
    again = alice.submit("print('next', flush=True)\ntime.sleep(600)")
    eventually(lambda: "next" in printed(again), what="it runs")
    assert redact().returncode == 0
    assert alice.peek(again.execution_id).status == "running"
    assert "[redacted]" in printed(running)
    alice.interrupt()
    assert again.wait(timeout=30).outcome == "interrupted"
    assert verify(load("alice").journal).ok


@pytest.mark.slow
def test_two_at_once(alice: kr.Session) -> None:
    alice.execute(f"print({WRITTEN})")
    command = [sys.executable, "-m", "kernel_runtime.cli", "redact", "alice", "--text-stdin", "--reason", "x"]
    both = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: one.communicate(SECRET, timeout=60), both))
    codes = sorted(one.returncode for one in both)
    assert codes in ([0, 3], [0, 0]), codes
    report = verify(load("alice").journal)
    assert report.ok
    assert len(report.redactions) == 1
    assert holding(load("alice").directory) == []


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before-rewrite", "after-rewrite", "redacted", "swept", "before-truncate"])
def test_killed_in_the_middle(
    point: str, krt_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after, never between; and doing it again finishes it."""
    points = tmp_path / "points"
    points.mkdir()
    monkeypatch.setenv("KRT_FAILPOINT", f"{point}:kill")
    monkeypatch.setenv("KRT_FAILPOINT_DIR", str(points))
    with stopped("alice") as session:
        said_everywhere(session)
        journal = load("alice").journal
        before = payloads(journal)
        (points / "arm").touch()
        killed = redact()
        assert killed.returncode == 4, killed.stderr
        assert (points / "hit").exists()
        monkeypatch.delenv("KRT_FAILPOINT")
        report = verify(journal)
        assert report.ok, report.problems
        after = payloads(journal)
        changed = [seq for seq in before if before[seq] != after[seq]]
        assert bool(changed) == (point != "before-rewrite")
        assert bool(report.redactions) == bool(changed)
        assert report.redacted == len(changed)
        assert Forms(SECRET).is_in(b"".join(after.values())) == (point == "before-rewrite")
        # 3: only the journal's log and free pages had it still, and that is done before it is said
        assert redact().returncode in ((0,) if point == "before-rewrite" else (0, 3))
        assert holding(krt_home) == []
        assert verify(journal).ok
        assert session.execute("6 * 7").text == "42"


def payloads(journal: Path) -> dict[int, bytes]:
    with JournalReader.open(journal) as reader:
        return {row[0]: payload for row, payload in reader.rows()}


def test_somebody_reads_the_journal_meanwhile(alice: kr.Session) -> None:
    """A reader in the middle of a look holds older pages of the log: it is waited for, or said so."""
    alice.execute(f"print({WRITTEN})")
    with JournalReader.open(load("alice").journal) as reader, ThreadPoolExecutor() as pool:
        reader.connection.execute("BEGIN")
        reader.head()
        done = pool.submit(redact)
        eventually(lambda: verify(load("alice").journal).redacted, what="it is taken out", timeout=30)
        reader.connection.execute("ROLLBACK")
        assert done.result().returncode == 0
    assert holding(load("alice").directory) == []
