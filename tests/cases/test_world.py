"""The world of a session: whose process it is, how it ended, who listens, whose file is open."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from tests.cases.support import kernel_pid, stopped
from tests.support import eventually

pytestmark = pytest.mark.slow

Row = dict[str, Any]

SLEEP = ["sleep", "600"]
"""the command of what a shell forked, once it is no longer the shell"""

SERVER = """
import subprocess, sys
server = subprocess.Popen(
    [sys.executable, "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)",
     "--password", "hunter2"])
server.pid
"""


def rows(session: kr.Session, kind: str, **fields: object) -> list[Row]:
    found = [row for row in session.resources() if row["kind"] == kind]
    return [row for row in found if all(row.get(name) == value for name, value in fields.items())]


def alive(session: kr.Session, pid: int) -> Row:
    """Its row; empty when it has none."""
    return next(iter(rows(session, "process", pid=pid, truth="true")), {})


def listening(session: kr.Session, pid: int) -> Row:
    """Its row, once it listens."""
    return eventually(lambda: row if (row := alive(session, pid)).get("ports") else {}, what="it listens")


def ended(session: kr.Session, pid: int) -> Row:
    return eventually(
        lambda: next(iter(rows(session, "process", pid=pid, truth="false")), {}), what="its end"
    )


def test_a_session_that_did_nothing_has_a_working_directory_and_nothing_else(fresh: kr.Session) -> None:
    fresh.execute("1")
    found = fresh.resources()
    assert {row["kind"] for row in found} == {"env"}
    by_name = {row["name"]: row for row in found}
    assert by_name["cwd"]["value"] == str(Path.cwd())
    before = environment(fresh)
    fresh.execute("import os; os.environ['API_TOKEN'] = 'abc'; os.environ['COLOUR'] = 'red'")
    after = environment(fresh)
    assert (after["value"]["API_TOKEN"], after["value"]["COLOUR"]) == ("***", "red")
    assert after["digest"] != before["digest"]


def environment(session: kr.Session) -> Row:
    """The kernel's word for it, which is left out when it does not come at once."""
    (row,) = eventually(lambda: rows(session, "env", name="environment"), what="the kernel answers in time")
    return row


def test_a_server_started_in_a_cell_and_killed_later(fresh: kr.Session) -> None:
    started = fresh.execute(SERVER)
    pid = int(started.text)
    row = listening(fresh, pid)
    assert row["started_by"] == started.execution_id
    assert row["source"] == "import subprocess, sys"
    assert row["evidence"] == {"by": "environment", "execution": "environment"}
    assert row["command"][-2:] == ["--password", "***"]
    assert row["memory_bytes"] > 1_000_000
    (port,) = rows(fresh, "socket", state="listening")
    assert (port["pid"], port["port"], port["address"]) == (
        pid,
        row["ports"][0],
        f"127.0.0.1:{row['ports'][0]}",
    )
    assert (port["started_by"], port["holder"]) == (started.execution_id, "process")

    os.kill(pid, signal.SIGKILL)
    gone = ended(fresh, pid)
    assert (gone["signal"], gone["started_by"], gone["state"]) == (
        signal.SIGKILL,
        started.execution_id,
        "ended",
    )
    assert gone["ended_at"] >= gone["started_at"]
    assert rows(fresh, "socket") == []


def test_a_daemon_that_forked_twice_and_cleared_its_environment(fresh: kr.Session) -> None:
    code = "subprocess.run('setsid env -i sh -c \"echo \\$\\$; sleep 600 & wait\" > pid &', shell=True)"
    started = fresh.execute(f"import os, subprocess; os.chdir(os.environ['KRT_HOME']); {code}")
    file = Path(os.environ["KRT_HOME"]) / "pid"
    pid = int(eventually(lambda: file.exists() and file.read_text().strip(), what="the daemon's pid"))
    row = eventually(lambda: alive(fresh, pid), what="the daemon")
    assert row["evidence"]["by"] == "adopted"
    assert row["started_by"] in (started.execution_id, None)
    (below,) = eventually(lambda: rows(fresh, "process", parent=pid, command=SLEEP), what="its child")
    assert below["evidence"]["by"] == "descendant"
    os.kill(below["pid"], signal.SIGTERM)
    assert ended(fresh, pid)["exit_status"] == 0


def test_an_orphan_has_its_exit_status_from_wait(fresh: kr.Session) -> None:
    started = fresh.execute(
        "import subprocess; print(subprocess.run('(sleep 1; exit 7) > /dev/null 2>&1 & echo $!', shell=True, "
        "capture_output=True, text=True).stdout)"
    )
    row = ended(fresh, int(started.text))
    assert (row["exit_status"], row["signal"], row["started_by"]) == (7, None, started.execution_id)


def test_a_fork_of_the_kernel_is_told_as_one(fresh: kr.Session) -> None:
    started = fresh.execute(
        "import multiprocessing, time; p = multiprocessing.get_context('fork').Process("
        "target=time.sleep, args=(600,)); p.start(); p.pid"
    )
    row = eventually(lambda: alive(fresh, int(started.text)), what="the fork")
    assert (row["fork"], row["started_by"]) == (True, started.execution_id)
    assert row["evidence"] == {"by": "environment", "execution": "time"}
    assert rows(fresh, "socket") == []  # it holds the kernel's own, which are nobody's resource
    fresh.execute("p.kill(); p.join()")
    assert ended(fresh, row["pid"])["started_by"] == started.execution_id


def test_connections_and_files_of_the_kernel_itself(fresh: kr.Session, tmp_path: Path) -> None:
    (tmp_path / "read.txt").write_text("12345")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        fresh.execute(
            f"import os, socket; os.chdir({str(tmp_path)!r});"
            f"c = socket.create_connection(('127.0.0.1', {port}));"
            "r = open('read.txt'); r.read(2); w = open('out.csv', 'w'); w.write('abc'); w.flush();"
            "a = open('log', 'a'); d = open('gone', 'w'); os.remove('gone')"
        )
        (row,) = rows(fresh, "socket")
        assert (row["state"], row["peer"], row["holder"]) == ("connected", f"127.0.0.1:{port}", "kernel")
        assert row["pid"] == kernel_pid(fresh)
        files = rows(fresh, "file")
        assert [(Path(f["path"]).name, f["mode"], f["deleted"]) for f in files] == [
            ("gone", "write", True), ("log", "append", False), ("out.csv", "write", False),
            ("read.txt", "read", False),
        ]  # fmt: skip
        assert (files[2]["bytes"], files[2]["position"]) == (3, 3)
        assert rows(fresh, "env", name="cwd")[0]["value"] == str(tmp_path)
        fresh.execute("c.close(); r.close(); w.close(); a.close(); d.close(); os.chdir('/')")
        assert rows(fresh, "file") == rows(fresh, "socket") == []


def test_terminals_of_processes(fresh: kr.Session) -> None:
    started = fresh.execute("import pexpect; t = pexpect.spawn('sleep 600'); t.pid")
    (row,) = eventually(lambda: rows(fresh, "terminal"), what="a terminal")
    assert (row["pid"], row["started_by"]) == (int(started.text), started.execution_id)
    assert row["path"].startswith("/dev/pts/")
    fresh.execute("t.close(force=True)")


def test_it_is_told_while_a_cell_runs_and_when_the_kernel_is_dead(fresh: kr.Session) -> None:
    pid = int(fresh.execute(SERVER).text)
    running = fresh.submit("import time; time.sleep(600)")
    assert alive(fresh, pid)
    os.kill(kernel_pid(fresh), signal.SIGKILL)
    running.wait(20)
    row = alive(fresh, pid)
    assert row["evidence"]["by"] == "environment"
    assert rows(fresh, "env") == []


def test_after_a_supervisor_was_killed_the_next_one_finds_the_same(fresh: kr.Session) -> None:
    started = fresh.execute(SERVER)
    before = listening(fresh, int(started.text))
    os.kill(fresh.row()["supervisor_pid"], signal.SIGKILL)
    row = eventually(lambda: alive(fresh, int(started.text)), what="the server, seen by another supervisor")
    assert row["started_by"] == started.execution_id
    assert row["ports"] == before["ports"]
    # nor does it list what its predecessor knew to be the kernel's own
    assert [one["pid"] for one in rows(fresh, "socket")] == [row["pid"]]
    os.kill(row["pid"], signal.SIGTERM)
    assert ended(fresh, row["pid"])["signal"] == signal.SIGTERM


def test_another_session_started_in_a_cell_is_not_this_ones(fresh: kr.Session) -> None:
    made = fresh.execute(
        "import kernel_runtime as kr\nwith kr.attach('inner', create=True) as s: s.execute('1')"
    )
    assert made.outcome == "ok", made.error
    with stopped("inner") as inner:
        own = {kernel_pid(inner), int(inner.row()["supervisor_pid"])}
        assert all(map(process.identify, own))
        assert [row for row in rows(fresh, "process", truth="true") if row["pid"] in own] == []


def test_a_kernel_of_two_processes_lists_neither_and_what_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of bash is a Python process and the bash that runs the cells."""
    directory = tmp_path / "kernels" / "bash"
    directory.mkdir(parents=True)
    argv = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
    (directory / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "b", "language": "bash"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with stopped("two", kernel="bash") as session:
        started = session.execute("env -i sleep 600 & disown; echo")
        (row,) = eventually(lambda: rows(session, "process", command=SLEEP), what="sleep")
        assert [one["pid"] for one in rows(session, "process")] == [row["pid"]]
        assert (row["evidence"]["by"], row["started_by"]) == ("descendant", started.execution_id)
        assert rows(session, "socket") == []
        waits = session.submit("sleep 60")

        def child() -> Row:
            activity = session.why()["why"].get("activity", {})
            return activity["evidence"] if activity.get("doing") == "waiting on a child" else {}

        evidence = eventually(child, what="it waits on its bash")
        assert "bash" in evidence["child"]["command"][0]
        assert "cell" not in evidence
        os.kill(row["pid"], signal.SIGKILL)
        session.interrupt()
        waits.wait(30)


def test_a_bound_says_what_it_left_out(fresh: kr.Session) -> None:
    fresh.execute("import subprocess; many = [subprocess.Popen(['sleep', '600']) for _ in range(5)]")
    found = [row for row in fresh.resources(limit=2) if row["kind"] == "process"]
    assert [row["truth"] for row in found] == ["true", "true", "unknown"]
    assert found[-1]["evidence"] == {"left_out": 3}


def test_ps_is_a_table_for_people(fresh: kr.Session) -> None:
    started = fresh.execute(SERVER)
    pid = int(started.text)
    listening(fresh, pid)
    shown = subprocess.run(
        [sys.executable, "-m", "kernel_runtime.cli", "ps", fresh.name],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    lines = shown.splitlines()
    assert lines[0].startswith(f"session {fresh.name}: idle, kernel pid {kernel_pid(fresh)}, in ")
    assert any(line.startswith(str(pid)) and started.execution_id[:8] in line for line in lines), shown
    assert "hunter2" not in shown
    assert "listening" in shown
