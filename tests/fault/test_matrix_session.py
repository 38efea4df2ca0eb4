"""Faults of a whole session: crash loops, starts that fail, strangers, races, full disks, take-overs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.errors import CrashLoop, DiskFull, HeapLost, KernelStartFailed
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import GapRecorded
from kernel_runtime.model.facts import KernelStartFailed as StartFailed
from tests.fault.rig import Rig, printed_by
from tests.support import eventually, waits

# -- D16, D17: who is there, and who only looks like it


def test_d16_supervisor_killed_in_mid_cell(rig: Rig):
    """The cell finishes, all its output is in the journal, the next command adopts, `stop` leaves nothing."""
    session = rig.attach()
    go, end = rig.root / "go", rig.root / "end"
    rig.submit(session, "first", rig.cell("first", inside=waits(go)) + f"open({str(end)!r}, 'w').close()")
    eventually(lambda: rig.ran("first"), what="it runs")
    kernel, session_id = rig.kernel_pid(), rig.file.session_id
    rig.kill(rig.supervisor_pid())
    session.detach()
    go.touch()
    eventually(end.exists, timeout=30, what="it ends, and nobody is there")
    with JournalReader.open(rig.file.journal) as reader:
        row = reader.by_key("first")
    assert row is not None
    assert row.status == "running", "nobody wrote that it ended"
    other = rig.attach("agent:b")
    assert other.attached["kernel_pid"] == kernel
    assert other.wait(key="first", timeout=30).outcome == "ok"
    rig.check("first")
    assert other.stop() == []
    eventually(
        lambda: not process.marked_processes("KRT_SESSION_ID", session_id), what="no process of ours is left"
    )


@pytest.fixture
def stranger() -> Iterator[process.ProcessId]:
    """A living process that has nothing to do with us; any signal at all would end it."""
    child = subprocess.Popen(["sleep", "300"], start_new_session=True, env={"PATH": os.environ["PATH"]})
    who = process.identify(child.pid)
    assert who is not None
    yield who
    alive = child.poll() is None
    child.kill()
    child.wait()
    assert alive, "a stranger was signalled"


@pytest.mark.parametrize(
    "what", ["pid", pytest.param("pid and start time of another boot", marks=pytest.mark.slow)]
)
def test_d17_kernel_json_names_a_stranger(rig: Rig, stranger: process.ProcessId, what: str):
    """A pid alone proves nothing: start time and boot id are compared, and nobody else is signalled."""
    session = rig.attach()
    session.execute("x = 1")
    path = rig.file.directory / "kernel.json"
    record = path.read_bytes()
    rig.kill(rig.supervisor_pid())
    rig.kill(rig.kernel_pid())
    session.detach()
    document = json.loads(record)
    named = _process_of(document)
    named["pid"] = stranger.pid
    if what != "pid":
        named["start_time"] = stranger.start_time
    if what == "pid and start time of another boot":
        named["boot_id"] = "0f0f0f0f-0000-0000-0000-000000000000"
    path.write_text(json.dumps(document))
    lock = rig.file.directory / "supervisor.lock"
    lock.write_text(json.dumps({"pid": stranger.pid, "start_time": 1, "boot_id": process.boot_id()}))
    (rig.file.directory / "journal.lock").touch()
    after = rig.attach()
    with pytest.raises(HeapLost):
        after.execute("x")
    assert after.execute("2 + 3", accept=True).text == "5"
    after.interrupt()
    after.restart()
    rig.settle(after)
    after.stop()
    assert process.is_alive(stranger)
    rig.check()


def _process_of(document: dict[str, object]) -> dict[str, object]:
    found = document["process"]
    assert isinstance(found, dict)
    return found


# -- D53, crash loop


def test_d53_kernel_that_dies_at_every_start(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    """Three tries, then a clear stop with its stderr; once mended, the session goes on."""
    site = rig.root / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'kernel_runtime.kernel' in sys.orig_argv:\n"
        "    sys.stderr.write('sitecustomize: no such licence\\n'); sys.stderr.flush(); os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    session = rig.attach()
    first = rig.submit(session, "first", rig.cell("first"))
    first.wait(30)
    assert first.outcome == "aborted"
    assert first.error is not None
    assert first.error.ename == "KernelStartFailed"
    assert "no such licence" in "\n".join(first.error.traceback)
    tries = [e.fact for e in rig.entries() if isinstance(e.fact, StartFailed)]
    assert [(t.attempt, t.exit_status) for t in tries] == [(1, 3), (2, 3), (3, 3)]
    assert session.row()["state"] == "dead"
    with pytest.raises(KernelStartFailed, match="died 3 times") as told:
        session.restart()
    assert "no such licence" in told.value.fields["stderr"]
    assert told.value.fields["exit_status"] == 3
    rig.check("first")
    (site / "sitecustomize.py").write_text("")
    assert session.execute("1 + 1").text == "2"


def test_a_crash_loop_is_broken(rig: Rig):
    """After five deaths in a row only `restart` starts a kernel, also for the next supervisor."""
    session = rig.attach()
    for number in range(5):
        x = session.submit("import os; os.kill(os.getpid(), 11)", key=f"k{number}", accept=True)
        assert x.wait(20).outcome == "died"
        eventually(lambda: session.row()["state"] == "dead", what="it is dead")
    with pytest.raises(CrashLoop, match="5 times"):
        session.submit("1", accept=True)
    rig.kill(rig.supervisor_pid())
    with pytest.raises(CrashLoop, match="5 times"):
        session.submit("1", accept=True)
    session.restart()
    assert session.execute("1 + 1").text == "2"
    rig.check()


# -- M54


def _race(rig: Rig, rounds: int) -> None:
    """Two processes, `krt new` and `krt exec --create`, at the same instant."""
    krt = [sys.executable, "-m", "kernel_runtime.cli"]
    for number in range(rounds):
        name = f"race-{number}"
        new = subprocess.Popen(
            [*krt, "new", name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        run = subprocess.Popen(
            [*krt, "exec", name, "--create", "20 + 3"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = run.communicate(timeout=60)
        _, new_err = new.communicate(timeout=60)
        assert run.returncode == 0, err
        assert out.strip() == "23"
        assert new.returncode == 0 or "exists already" in new_err
        session = session_files.load(name)
        with JournalReader.open(session.journal) as reader:
            kinds = [e.kind for e in reader.entries()]
        assert kinds.count("SessionCreated") == kinds.count("SupervisorStarted") == 1
        assert kinds.count("KernelStarting") == kinds.count("KernelStarted") == 1
        other = Rig.attach_to(name)
        other.stop()
        other.detach()
        session_files.remove(name)


@pytest.mark.slow
def test_m54_two_at_the_same_instant(rig: Rig):
    """One session, one supervisor, one kernel."""
    rig.attach()
    _race(rig, 2)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_m54_fifty_times(rig: Rig):
    rig.attach()
    _race(rig, 50)


_RACER = """
import sys, kernel_runtime as kr
for line in sys.stdin:
    with kr.attach(line.strip(), create=True, principal="agent:" + sys.argv[1]) as s:
        print(s.attached["supervisor_pid"], s.execute("20 + 3").text, flush=True)
"""


def test_m54_two_clients_that_attach_at_the_same_instant(rig: Rig):
    """Without the time an interpreter takes to start, they meet in the middle of each step."""
    rig.attach()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("a", "b")
    ]
    for number in range(3):
        name = f"race-{number}"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write(name + "\n")
            racer.stdin.flush()
        answers = [racer.stdout.readline().split() for racer in racers if racer.stdout is not None]
        assert answers[0] == answers[1], "two supervisors"
        assert answers[0][1] == "23"
        other = Rig.attach_to(name)
        other.stop()
        other.detach()
        session_files.remove(name)
    for racer in racers:
        racer.communicate(timeout=30)


# -- S49: a full disk


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """KRT_HOME on a file system of 4 MB. It has to be mounted: nothing else fills up as a disk does."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.fail(f"a tmpfs cannot be mounted here, so nothing is proved (run as root): {mounted.stderr}")
    monkeypatch.setenv("KRT_HOME", str(disk / "home"))
    yield disk
    eventually(
        lambda: subprocess.run(["umount", str(disk)], capture_output=True, check=False).returncode == 0,
        what="nobody uses the disk any more",
    )


@pytest.fixture
def full_rig(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    (tmp_path / "elsewhere").mkdir()
    rig = Rig(tmp_path / "elsewhere", monkeypatch)
    yield rig
    (small_disk / "ballast").unlink(missing_ok=True)
    rig.close()


def fill(disk: Path) -> None:
    """Leave nothing free."""
    with open(disk / "ballast", "ab", buffering=0) as ballast:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(b"\0" * size)


def test_s49_a_cell_is_refused_before_dispatch(full_rig: Rig, small_disk: Path):
    """The reason named; what was acknowledged is there; writing goes on when space returns."""
    rig = full_rig
    session = rig.attach()
    assert rig.submit(session, "first", rig.cell("first")).wait(30).outcome == "ok"
    fill(small_disk)
    padding = "# " + "0123456789abcdef" * 64 + "\n"
    refused, why = "", None
    for number in range(200):  # what is already allocated may hold a few more
        key = f"more-{number}"
        try:
            rig.submit(session, key, padding + rig.cell(key, lines=1))
        except DiskFull as error:
            refused = key
            why = error
            break
    assert why is not None, "nothing was ever refused"
    assert "no space left" in why.message
    assert why.hint
    assert rig.ran(refused) == 0
    (small_disk / "ballast").unlink()
    rig.settle(session)
    assert rig.outcome(refused) == ""
    assert rig.submit(session, "after", rig.cell("after")).wait(30).outcome == "ok"
    rig.settle(session)
    rig.check("first", "after", refused)
    for _, _, key in rig.acknowledged:
        assert rig.ran(key) == 1, key


def test_s49_a_session_that_never_ran_cannot_start_on_a_full_disk(small_disk: Path, tmp_path: Path):
    """What a starting supervisor writes first, before it has a journal, was refused by the system and told as
    a fault of ours, with exit code 70. Right: the disk is named, and later all goes as ever.
    """
    session_files.create("new", cwd=tmp_path)
    fill(small_disk)
    with pytest.raises(DiskFull, match="no space left") as refused, kr.attach("new") as session:
        session.execute("1")
    assert refused.value.hint
    (small_disk / "ballast").unlink()
    with kr.attach("new") as session:
        assert session.execute("20 + 3").text.strip() == "23"
        session.stop()


def test_s49_output_while_the_disk_is_full(full_rig: Rig, small_disk: Path):
    """Ends up recorded or counted in a gap, in order; the outcome is what the kernel said."""
    rig = full_rig
    session = rig.attach()
    go = rig.root / "go"
    lines = 20_000
    source = (
        rig.cell("first", lines=lines, inside=waits(go)) + "open(" + repr(str(rig.root / "end")) + ", 'w')\n"
    )
    first = rig.submit(session, "first", source)
    eventually(lambda: rig.ran("first"), what="it runs")
    fill(small_disk)
    go.touch()
    eventually((rig.root / "end").exists, timeout=30, what="the cell is not held up by a full disk")
    threading.Event().wait(1.5)
    (small_disk / "ballast").unlink()
    first.wait(40)
    assert first.outcome == "ok"
    rig.settle(session)
    rig.check()
    assert rig.ran("first") == 1
    mine = [e for e in rig.entries() if e.execution_id in (first.execution_id, None)]
    numbers = [int(line.split()[1]) for line in printed_by(mine).splitlines() if line.startswith("first ")]
    assert numbers == sorted(set(numbers)), "in order, none twice"
    gaps = [e.fact for e in mine if isinstance(e.fact, GapRecorded)]
    assert gaps or len(numbers) == lines, "a hole that nobody counted"
    assert session.execute("1 + 1").text == "2"


# -- what the next supervisor must know


def test_an_answered_prompt_is_not_asked_again(rig: Rig, tmp_path: Path):
    """The prompt is still in the outbox; that it was answered is in the journal."""
    session = rig.attach()
    gate = tmp_path / "gate"
    x = rig.submit(
        session,
        "asks",
        f"name = input('who? ')\n{waits(gate)}print('hello', name)",
    )
    eventually(lambda: session.row()["state"] == "blocked", what="it asks")
    session.answer("world")
    rig.kill(rig.supervisor_pid())
    other = rig.attach("agent:b")
    assert other.row()["state"] == "busy"
    gate.touch()
    x.wait(20)
    assert (x.outcome, x.text) == ("ok", "hello world\n")
    rig.check()
    assert [e.kind for e in rig.entries()].count("InputRequested") == 1


def test_a_prompt_outlives_the_supervisor(rig: Rig):
    """Blocked stays blocked, and an answer through the next supervisor reaches the kernel."""
    session = rig.attach()
    x = rig.submit(session, "asks", "print('hello', input('who? '))")
    eventually(lambda: session.row()["state"] == "blocked", what="it asks")
    rig.kill(rig.supervisor_pid())
    other = rig.attach("agent:b")
    assert other.row()["state"] == "blocked"
    other.answer("world")
    x.wait(20)
    assert (x.outcome, x.text) == ("ok", "hello world\n")
    rig.check()
    assert [e.kind for e in rig.entries()].count("InputRequested") == 1


def test_gaps_are_counted_across_supervisors(rig: Rig):
    """What a bound left out is counted once, whoever supervised: kept and counted are all there was."""
    home = Path(os.environ["KRT_HOME"])
    home.mkdir(mode=0o700, parents=True)
    (home / "bounds.json").write_text(json.dumps({"message": 2000}))
    session = rig.attach()
    session.execute("from IPython.display import display")
    source = (
        "import time\n"
        "for i in range(400):\n"
        "    display({'text/plain': ('x' * 3000 if i % 2 else str(i))}, raw=True)\n"
        "    time.sleep(0.005)\n"
    )
    x = rig.submit(session, "shown", source)
    for _ in range(3):
        threading.Event().wait(0.4)
        rig.kill(rig.supervisor_pid())
        rig.attach_anew()
    x.wait(30)
    rig.check()
    kept = [int(o["data"]["text/plain"]) for o in x.outputs if "data" in o]
    assert kept == list(range(0, 400, 2))
    assert sum(gap["messages"] for gap in x.gaps) == 200


def test_quit_is_nobodys_death(rig: Rig):
    """The kernel said that it would leave; that its supervisor died meanwhile does not change it."""
    rig.failpoint("after-outcome", "kill")
    session = rig.attach()
    session.execute("x = 1")
    rig.no_more_failpoints()
    rig.arm()
    x = rig.submit(session, "quits", "quit()")
    x.wait(20)
    other = rig.attach_anew()
    rig.settle(other)
    # it may look idle until its death is told
    (died,) = eventually(lambda: [e for e in rig.entries() if e.kind == "KernelDied"], what="its death")
    assert died.fact.by_user_code is True  # type: ignore[attr-defined]
    rig.check()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_supervisor_killed_again_and_again(rig: Rig):
    """A cell that prints for ten seconds, a supervisor that lives for half of one."""
    session = rig.attach()
    lines = 20_000
    source = (
        f"with open({str(rig.side)!r}, 'a') as f: f.write('long\\n')\n"
        "import time\n"
        f"for i in range({lines}):\n"
        "    print('long', i)\n"
        "    if i % 100 == 0: time.sleep(0.05)\n"
    )
    x = rig.submit(session, "long", source)
    while rig.outcome("long") is None:
        rig.kill(rig.supervisor_pid())
        rig.attach_anew()
        threading.Event().wait(0.3)
    x.wait(30)
    assert x.outcome == "ok"
    rig.check("long", lines=lines)


def test_s49_a_full_disk_stops_nobody_from_interrupting_and_stopping(full_rig: Rig, small_disk: Path):
    """What ends something has a reserve of its own: a cell that filled the disk can be ended."""
    rig = full_rig
    session = rig.attach()
    x = rig.submit(session, "sleeps", "import time\ntime.sleep(600)")
    eventually(lambda: session.row()["state"] == "busy", what="it runs")
    fill(small_disk)
    session.interrupt()
    x.wait(20)
    assert x.outcome == "interrupted"
    (small_disk / "ballast").unlink()
    again = rig.submit(session, "sleeps again", "import time\ntime.sleep(600)")
    eventually((rig.file.directory / "reserve").exists, what="the reserve is back")
    fill(small_disk)
    session.stop()
    again.wait(20)
    assert again.outcome == "died"
    (small_disk / "ballast").unlink(missing_ok=True)
    rig.check()
