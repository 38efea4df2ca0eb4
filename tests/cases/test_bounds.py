"""Bounds of what is kept: each leaves a gap with counts, none stops a session from being used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime.client import session_files
from kernel_runtime.client.blocking import Execution
from kernel_runtime.errors import UsageError
from kernel_runtime.model.facts import GapRecorded
from tests.cases.support import cell_of, directory, entries, running, stopped, text_in
from tests.support import eventually

MB = 1 << 20


@contextmanager
def bounded(name: str, **bounds: int) -> Iterator[kr.Session]:
    """A session with a bounds.json of its own."""
    session_files.create(name)
    (directory(name) / "bounds.json").write_text(json.dumps(bounds))
    with stopped(name) as session:
        yield session


def missing(session: kr.Session, execution: Execution, reason: str) -> int:
    """Bytes in gaps, all for that reason, as journal and document both tell."""
    gaps = gaps_of(session, execution)
    assert {gap.reason for gap in gaps} == {reason}
    assert all(gap.messages >= 1 for gap in gaps)
    total = sum(gap.bytes for gap in gaps)
    assert [(g["reason"], g["bytes"]) for g in execution.gaps] == [(reason, total)]
    return total


def gaps_of(session: kr.Session, execution: Execution | None = None) -> list[GapRecorded]:
    found = entries(session, "GapRecorded", execution=execution)
    return [entry.fact for entry in found if isinstance(entry.fact, GapRecorded)]


def size_of(path: Path) -> int:
    """Bytes on disk under a directory whose files come and go."""
    total = 0
    for root, _, names in os.walk(path):
        for name in names:
            try:
                total += Path(root, name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def test_execution_bound() -> None:
    """Past what one execution may say, output is counted: kept and missing add up to what was printed. The
    next execution starts with a bound of its own.
    """
    with bounded("execution", execution=MB) as session:
        x = session.execute("for i in range(50_000):\n    print('x' * 99)", timeout=60)
        assert x.outcome == "ok"
        assert 0 < len(x.text) <= MB
        assert len(x.text) + missing(session, x, "execution-bound") == 50_000 * 100
        assert "not recorded: execution-bound" in text_in(cell_of(session.name, x), "stderr")
        after = session.execute("print('small')")
        assert (after.text, after.gaps) == ("small\n", [])


def test_cell_that_prints_for_ever() -> None:
    """A cell that never stops printing fills neither the journal nor the outbox, and an interrupt ends it.
    What it printed meanwhile is counted.
    """
    with bounded("endless", execution=MB, outbox=4 * MB) as session:
        session.execute("import os; n = 0")
        session.execute("1 / 0")  # loads what formats tracebacks, so that the interrupt need not wait for it
        x = session.submit("while True:\n    print(os.urandom(512).hex()); n += 1025")
        eventually(lambda: entries(session, "GapRecorded", execution=x), timeout=20, what="the first gap")
        sizes = [size_of(directory(session.name))]
        count = len(entries(session, "GapRecorded", execution=x))
        while len(entries(session, "GapRecorded", execution=x)) < count + 1:
            sizes.append(size_of(directory(session.name)))
            assert running(session, x)
        told = session.interrupt()
        assert told.ended
        assert x.wait(timeout=30).outcome == "interrupted"
        assert max(sizes) < 24 * MB
        printed = int(session.execute("n").text)
        gaps = gaps_of(session, x)
        kept = len(x.text)
        # the interrupt may fall between a print and its count, or into one
        assert 0 <= kept + sum(gap.bytes for gap in gaps) - printed <= 2 * 1025 + 100
        # told once for each half of the outbox's bound, and now and then for being old; two reasons at most
        assert len(gaps) <= 2 * (printed // (2 * MB) + 4)
        errors = [out["ename"] for out in x.outputs if out["output_type"] == "error"]
        assert errors == ["KeyboardInterrupt"], "how it ended is shown although it had said too much"


def test_gap_is_told_before_output_that_comes_after_it() -> None:
    """A supervisor killed after it recorded output that came behind a gap has recorded the gap too: what
    it counted in memory only would be a hole without a word.
    """
    with bounded("counted", execution=MB) as session:
        a = session.execute(
            "import threading, time\n"
            "def fill():\n"
            "    for _ in range(300): print('x' * 9_999)\n"
            "t = threading.Thread(target=fill)\n"
        )
        session.execute("t.start(); t.join()", cell_id="filler")
        b = session.execute("print('behind the gap')")
        os.kill(int(session.row()["supervisor_pid"]), signal.SIGKILL)
        assert session.execute("1").outcome == "ok"
        assert b.refresh().text == "behind the gap\n"
        rows = session.coroutines.journal.executions()
        kept = sum(len(session.execution(row.execution_id).text) for row in rows)
        missing_ = sum(gap.bytes for gap in gaps_of(session))
        assert kept + missing_ == 300 * 10_000 + len(a.text) + len(b.text) + len("1")


def test_session_bound() -> None:
    """What all executions of a session may say together: the first has its output, a later one its gap."""
    with bounded("session", session=2 * MB) as session:
        source = "import os\nfor i in range(150):\n    print(os.urandom(4999).hex() + 'x')"
        first = session.execute(source, timeout=30)
        assert (len(first.text), first.gaps) == (150 * 10_000, [])
        second = session.execute(source, timeout=30)
        assert second.outcome == "ok"
        assert len(second.text) + missing(session, second, "session-bound") == 150 * 10_000
        assert session.execute("1 + 1").outcome == "ok"


def test_message_bound() -> None:
    """One message over the bound is left out whole and counted; the ones around it are kept. Text is a
    stream and no message: it is never left out for coming in large pieces.
    """
    with bounded("message", message=100_000) as session:
        source = """
from IPython.display import display
display({"text/plain": "small"}, raw=True)
display({"text/plain": "x" * 200_000}, raw=True)
display({"text/plain": "after"}, raw=True)
"""
        x = session.execute(source)
        assert [out["data"]["text/plain"] for out in x.outputs if out["output_type"] == "display_data"] == [
            "small",
            "after",
        ]
        assert missing(session, x, "message-bound") > 200_000
        assert x.gaps[0]["messages"] == 1
        text = session.execute("for i in range(5000):\n    print('y' * 99)")
        assert (len(text.text), text.gaps) == (500_000, [])


def test_free_disk_bound(krt_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system of 40 MB output is kept while more than its twentieth is free, and counted after: the
    disk never runs full for what a cell prints, and the next cell is accepted.
    """
    small = krt_home.parent / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=700", "tmpfs", str(small)], check=True)
    try:
        monkeypatch.setenv("KRT_HOME", str(small / "home"))
        with bounded("disk", outbox=4 * MB) as session:
            session.execute("import os")
            source = "for i in range(6000):\n    print(os.urandom(4999).hex() + 'x')"
            x = session.execute(source, timeout=90)
            assert x.outcome == "ok"
            reasons = {gap["reason"] for gap in x.gaps}
            assert reasons <= {"disk", "outbox-bound"}
            assert "disk" in reasons
            assert len(x.text) + sum(gap["bytes"] for gap in x.gaps) == 6000 * 10_000
            info = os.statvfs(small)
            assert info.f_bavail > 0
            assert session.execute("1 + 1", timeout=30).outcome == "ok"
    finally:
        monkeypatch.undo()
        # the kernel's parent outlives the stop by some milliseconds, and has its log open there
        eventually(
            lambda: subprocess.run(["umount", str(small)], capture_output=True, check=False).returncode == 0,
            what="nobody uses the disk any more",
        )


@pytest.mark.parametrize("text", ["{", '{"executions": 5}', '{"message": "big"}', "[]"])
def test_bounds_that_cannot_be_read(text: str) -> None:
    """A bounds.json that is none is refused with its path, before anything runs."""
    name = f"bad-{abs(hash(text)) % 10_000}"
    session_files.create(name)
    (directory(name) / "bounds.json").write_text(text)
    with pytest.raises(UsageError, match=r"bounds\.json"):
        kr.attach(name)
