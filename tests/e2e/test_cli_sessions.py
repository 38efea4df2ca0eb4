"""Creating, finding, stopping and examining sessions from the command line."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from kernel_runtime import places, process
from kernel_runtime.client import session_files
from tests.e2e.written import looked_at
from tests.support import eventually, krt, krt_json, processes_of


@pytest.fixture
def alice(krt_home: Path) -> Iterator[str]:
    """A session with a kernel, stopped in the end."""
    krt_json("new", "alice")
    yield "alice"
    krt_json("stop", "alice")


def nothing_lives(home: Path) -> None:
    """No process is left; the one that waited for the kernel ends some milliseconds after it."""
    eventually(lambda: not processes_of(home), what="no process is left")


def test_a_session_from_its_making_to_its_removal(krt_home: Path, tmp_path: Path) -> None:
    made = krt("new", "alice", "--cwd", str(tmp_path), "--notebook", str(tmp_path / "n.ipynb"))
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("session alice: python3, incarnation 1, kernel pid ")
    assert krt("exec", "alice", "import os; os.getcwd()").stdout == f"{str(tmp_path)!r}\n"
    (row,) = krt_json("ls")
    assert (row["name"], row["state"], row["incarnation"], row["executions"]) == ("alice", "idle", 1, 1)
    assert row["notebook"] == str(tmp_path / "n.ipynb")
    assert process.identify(row["kernel_pid"])
    assert process.identify(row["supervisor_pid"])
    busy = krt_json("rm", "alice", "--yes", exit_code=4)["error"]
    assert (busy["type"], "krt stop alice" in busy["hint"]) == ("SessionBusy", True)
    assert krt_json("stop", "alice") == {"session": "alice", "stopped": True, "left": []}
    nothing_lives(krt_home)
    (row,) = krt_json("ls")
    assert (row["state"], row["kernel_pid"], row["supervisor_pid"], row["executions"]) == (
        "stopped", None, None, 1,
    )  # fmt: skip
    assert krt("rm", "alice").returncode == 2
    assert krt("rm", "alice", "--yes").returncode == 0
    assert krt_json("ls") == []
    assert os.listdir(krt_home / "sessions") == []
    assert os.listdir(places.runtime_dir()) == []
    assert (tmp_path / "n.ipynb").exists()


def test_everything_made_is_private(alice: str, krt_home: Path) -> None:
    krt("exec", alice, "1")
    # what is written last: the notebook is there when this is
    mark = session_files.load(alice).directory / "notebook.mark"
    eventually(mark.exists, what="the notebook is written")
    roots = (krt_home, places.runtime_dir())
    found = {root: root.stat() for root in roots} | looked_at(Path.stat, *roots)
    assert {mark, mark.with_suffix(".ipynb")} <= found.keys()
    for path, info in found.items():
        mode = stat.S_IMODE(info.st_mode)
        if stat.S_ISDIR(info.st_mode):
            assert mode == 0o700, path
        else:
            assert stat.S_ISSOCK(info.st_mode) or not mode & 0o077, f"{path} {mode:o}"


def test_a_stopped_session_goes_on_in_a_new_incarnation(alice: str) -> None:
    """Who stops it knows what that means; others that saw the old heap are told."""
    krt("exec", alice, "x = 1", "--as", "agent:other")
    krt("stop", alice)
    assert krt("exec", alice, "x", "--as", "agent:other").returncode == 4
    assert krt("exec", alice, "'x' in globals()").stdout == "False\n"
    assert krt_json("ls")[0]["incarnation"] == 2


def test_m54_many_that_make_one_session_at_once_make_one(krt_home: Path) -> None:
    """Mechanism: rename(2) decides who creates, flock(2) who starts the supervisor."""
    many = [
        subprocess.Popen(
            [sys.executable, "-m", "kernel_runtime.cli", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
        for command in (("new", "a"), ("exec", "a", "--create", "n = globals().get('n', 0) + 1; n"))
    ]
    ended = [(child.communicate(timeout=100), child.returncode) for child in many]
    new, execs = ended[::2], ended[1::2]
    assert Counter(code for _, code in execs) == {0: 10}, [err for (_, err), code in execs if code]
    assert sorted(out for (out, _), _ in execs) == sorted(f"{n}\n" for n in range(1, 11))
    assert Counter(code for _, code in new) - Counter({4: 10, 0: 1}) == Counter(), new
    (row,) = krt_json("ls")
    supervisors = [
        who for who in processes_of(krt_home) if "kernel_runtime.supervisor" in process.command_line(who.pid)
    ]
    assert [who.pid for who in supervisors] == [row["supervisor_pid"]]
    assert row["incarnation"] == 1
    krt_json("stop", "a")


def test_d53_a_kernel_that_dies_at_start_leaves_nothing_behind(krt_home: Path, tmp_path: Path) -> None:
    spec = tmp_path / "kernels" / "broken"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-c", "import sys; sys.exit('no such luck')", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "b", "language": "b"}))
    failed = krt("new", "alice", "--kernel", "broken", JUPYTER_PATH=str(tmp_path))
    assert failed.returncode == 4
    assert "no such luck" in failed.stderr
    assert krt_json("ls") == []
    nothing_lives(krt_home)


def test_status_is_short_and_complete(alice: str) -> None:
    krt("exec", alice, "1 / 0")
    code = "\n".join(f"get_ipython().run_cell('x{i} = {i}')" for i in range(3))
    krt("exec", alice, code)
    table = krt("status", alice)
    lines = table.stdout.splitlines()
    assert lines[:2] == ["session alice: incarnation 1, idle", "1 partial, 1 live"]
    assert any(line.split()[:4] == ["partial", "error", "1", "/"] for line in lines)
    assert krt("status", alice, "--check").returncode == 8
    document = krt_json("status", alice)
    assert document["counts"]["partial"] == 1
    assert {cell["truth"] for cell in document["cells"]} == {"partial", "live"}


def test_brief_log_and_verify(alice: str) -> None:
    krt("exec", alice, "x = 1", "--as", "agent:a")
    assert "# alice: incarnation 1, idle; 1 live" in krt("brief", alice).stdout
    entries = [json.loads(line) for line in krt("log", alice, "--json").stdout.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert {"ExecutionQueued", "ExecutionStarted", "ExecutionFinished"} <= {
        entry["kind"] for entry in entries
    }
    last = krt("log", alice, "--last", "1", "--kind", "ExecutionQueued").stdout
    assert last.count("\n") == 1
    assert "agent:a ExecutionQueued" in last
    assert krt_json("log", alice, "--kind", "Nonsense", exit_code=2)["error"]["type"] == "UsageError"
    report = krt_json("verify", alice)
    assert (report["ok"], report["projections"], report["problems"]) == (True, "match", [])


def test_verify_finds_what_was_changed(krt_home: Path) -> None:
    krt("exec", "alice", "--create", "x = 1")
    krt("stop", "alice")
    with sqlite3.connect(session_files.load("alice").journal) as journal:
        journal.execute("DROP TRIGGER IF EXISTS entries_no_update")
        triggers = [
            name for (name,) in journal.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ]
        for name in triggers:
            journal.execute(f"DROP TRIGGER {name}")
        journal.execute("UPDATE entries SET principal = 'human:eve' WHERE seq = 2")
    journal.close()
    done = krt("verify", "alice")
    assert done.returncode == 9
    assert "entries 2" in done.stdout


def test_the_notebook_is_exported_valid(alice: str, tmp_path: Path) -> None:
    for source, status in (("print('a'); 6 * 7", 0), ("1 / 0", 1)):
        done = krt("exec", alice, source)
        assert done.returncode == status, done.stderr
    target = tmp_path / "out.ipynb"
    assert krt_json("export", alice, str(target))["cells"] == 2
    document = nbformat.read(target, as_version=4)
    nbformat.validate(document)
    assert [cell.source for cell in document.cells] == ["print('a'); 6 * 7", "1 / 0"]
    assert document.cells[1].outputs[0].ename == "ZeroDivisionError"


def test_follow_goes_on_from_a_cursor_until_the_session_is_stopped(krt_home: Path) -> None:
    krt("exec", "alice", "--create", "print('before')")
    tail = subprocess.Popen(
        [sys.executable, "-m", "kernel_runtime.cli", "follow", "alice", "--after", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    krt("exec", "alice", "print('during')")
    os.kill(krt_json("ls")[0]["supervisor_pid"], signal.SIGKILL)
    krt("exec", "alice", "print('after')")
    krt("stop", "alice")
    out, _ = tail.communicate(timeout=60)
    assert tail.returncode == 0
    entries = [json.loads(line) for line in out.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert all(f"{word}\\n" in out for word in ("before", "during", "after"))
    assert entries[-1]["kind"] == "SupervisorStopped"


def test_follow_shows_what_runs_from_its_start(alice: str, krt_home: Path) -> None:
    go_on = krt_home / "go on"
    wait = f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    krt("exec", alice, f"import os, time; print('go', flush=True)\n{wait}\nprint('end')", "--detach")
    tail = subprocess.Popen(
        [sys.executable, "-m", "kernel_runtime.cli", "follow", alice],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tail.stdout is not None
    assert tail.stdout.readline() == "go\n"
    go_on.touch()
    assert tail.stdout.readline() == "end\n"
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate(timeout=30)
    assert tail.returncode == 0
    assert "queued: import os, time; print('go'" in err
    assert "krt follow alice --after" in err


def test_d21_processes_that_a_stop_leaves_are_listed(krt_home: Path) -> None:
    code = "import subprocess as s; p = s.Popen(['sleep', '100'], start_new_session=True); p.pid"
    pid = int(krt("exec", "alice", "--create", code).stdout)
    stopped = krt("stop", "alice")
    who = process.identify(pid)
    if who is not None:
        process.signal_process(who, signal.SIGKILL)
        assert "sleep 100" in stopped.stderr
    assert stopped.returncode == 0


def test_the_front_door_is_where_connection_says(alice: str) -> None:
    path = Path(krt("connection", alice).stdout.strip())
    document = json.loads(path.read_text())
    assert {"shell_port", "iopub_port", "stdin_port", "control_port", "hb_port", "key"} <= set(document)


def test_interrupt_and_restart(alice: str) -> None:
    assert krt_json("interrupt", alice)["reached"] == "nothing-running"
    krt("exec", alice, "1 / 0")  # loads what formats tracebacks, within the time that an interrupt is given
    krt("exec", alice, "x = 1; import time; time.sleep(60)", "--detach")
    eventually(lambda: krt_json("ls")[0]["state"] == "busy", what="it runs")
    assert krt_json("interrupt", alice)["ended"] is True
    assert krt("wait", alice).returncode == 5
    assert krt_json("restart", alice) == {"session": alice, "incarnation": 2}


def test_looking_at_a_session_that_never_ran_starts_nothing(krt_home: Path) -> None:
    session_files.create("alice")
    assert krt("log", "alice").returncode == 0
    assert krt("verify", "alice").returncode == 0
    assert krt("wait", "alice").returncode == 3
    assert krt("export", "alice", "x.ipynb").returncode == 3
    assert krt("stop", "alice").returncode == 0
    assert krt_json("ls")[0]["state"] == "stopped"
    nothing_lives(krt_home)
    assert krt("rm", "alice", "--yes").returncode == 0


@pytest.mark.slow
def test_a_kernel_without_a_supervisor_is_seen_and_can_be_stopped(krt_home: Path) -> None:
    krt("exec", "alice", "--create", "x = 1")
    (row,) = krt_json("ls")
    os.kill(row["supervisor_pid"], signal.SIGKILL)
    eventually(lambda: process.identify(row["supervisor_pid"]) is None, what="the supervisor is dead")
    (orphaned,) = krt_json("ls")
    assert (orphaned["state"], orphaned["kernel_pid"], orphaned["supervisor_pid"]) == (
        "idle", row["kernel_pid"], None,
    )  # fmt: skip
    findings = krt_json("doctor")["checks"]
    assert any(f["check"] == "session alice" and "orphaned" in f["found"] for f in findings)
    assert krt_json("rm", "alice", "--yes", exit_code=4)["error"]["type"] == "SessionBusy"
    krt_json("stop", "alice")
    nothing_lives(krt_home)


def test_a_journal_that_cannot_be_read_is_told_by_every_command(krt_home: Path) -> None:
    krt("exec", "alice", "--create", "x = 1")
    krt("stop", "alice")
    journal = session_files.load("alice").journal
    journal.write_bytes(b"not a database, and long enough to be one" * 200)
    for command in (("exec", "alice", "1"), ("status", "alice"), ("log", "alice")):
        done = krt(*command)
        assert done.returncode == 9, done.stderr
        assert "next: " in done.stderr
    assert krt("verify", "alice").returncode == 9
    assert krt_json("doctor", exit_code=4)["ok"] is False
    nothing_lives(krt_home)


def test_doctor_finds_nothing_where_nothing_is_wrong(alice: str) -> None:
    done = krt("doctor")
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("nothing is wrong"), done.stdout


def test_doctor_tells_how_to_mend(krt_home: Path) -> None:
    session_files.create("alice")
    (krt_home / "sessions" / ".new-1").mkdir()
    krt_home.chmod(0o755)
    checks = {finding["check"]: finding for finding in krt_json("doctor")["checks"]}
    assert checks["KRT_HOME"]["level"] == "warning"
    assert checks["KRT_HOME"]["mend"] == f"chmod 700 {krt_home}"
    assert "rm -r" in checks["leftovers"]["mend"]
