"""Replays that end before their time: a kernel dies, a step is ended, all is killed, a disk is full."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.replay import replay, workspace
from tests.e2e import replayed
from tests.e2e.replayed import Record, looked_at_and_stopped, processes_under, reasons, verdicts
from tests.support import eventually
from tests.unit.journal.support import in_own_mounts

places = replayed.places  # autouse
record = replayed.record


@pytest.mark.slow
def test_a_kernel_that_died_when_it_was_recorded(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        session.execute("x = 1")
        session.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        session.execute("x = 2; x", accept=True)
        session.execute("exit()")
        eventually(lambda: session.row()["state"] == "dead", what="the kernel has gone")
        session.execute("x = 3; x", accept=True)
        looked_at_and_stopped(session)
    result = replay("s")
    assert verdicts(result) == ["same", "skipped", "same", "same", "same"]
    assert "the kernel died" in reasons(result)[1]
    assert result.verdict == "same"


@pytest.mark.slow
def test_a_kernel_that_dies_in_the_replay_takes_its_incarnation_with_it(
    record: Record, tmp_path: Path
) -> None:
    kill = "import os, signal; os.path.exists('die') and os.kill(os.getpid(), signal.SIGKILL)"
    record("x = 1", kill, "x", "x + 1", None, "y = 1; y")
    (tmp_path / "die").write_text("")
    result = replay("s")
    assert verdicts(result) == ["same", "different", "skipped", "skipped", "same"]
    assert result.executions[1]["outcome"]["replayed"] == "died"
    assert "ended (signal 9)" in reasons(result)[2]
    assert not result.ok


@pytest.mark.slow
def test_a_step_that_takes_too_long_is_interrupted_and_the_rest_goes_on(
    record: Record, tmp_path: Path
) -> None:
    record("import os, time\nif os.path.exists('slow'): time.sleep(600)", "'after'")
    (tmp_path / "slow").write_text("")
    result = replay("s", timeout=5)
    assert verdicts(result) == ["different", "same"]
    assert result.executions[0]["remarks"] == ["it was interrupted: it ran for 5 s"]


@pytest.mark.slow
def test_a_step_that_no_interrupt_ends_loses_its_kernel(record: Record, tmp_path: Path) -> None:
    stubborn = (
        "import os, time\nended = False\nwhile not ended:\n    try:\n"
        "        while os.path.exists('slow'): time.sleep(0.1)\n        ended = True\n"
        "    except BaseException: pass"
    )
    record(stubborn, "'after'", None, "'next'")
    (tmp_path / "slow").write_text("")
    result = replay("s", timeout=5)
    assert verdicts(result) == ["different", "skipped", "same"]
    assert "could not be interrupted" in reasons(result)[1]


SLEEPS = "import os, time\nif os.path.exists('slow'):\n    open('began', 'w').close(); time.sleep(600)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "signum, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_replay_that_is_ended_leaves_nothing(
    record: Record, tmp_path: Path, places: Path, signum: int, status: int
) -> None:
    command = begun(record, tmp_path)
    command.send_signal(signum)
    command.communicate(timeout=30)
    assert command.returncode == status
    assert list(workspace.base().iterdir()) == []
    assert processes_under(places) == []


@pytest.mark.slow
def test_a_replay_that_is_killed_ends_its_session_and_the_next_one_clears_up(
    record: Record, tmp_path: Path, places: Path
) -> None:
    command = begun(record, tmp_path)
    command.kill()
    command.communicate()
    eventually(lambda: not processes_under(places), timeout=30, what="the runner stopped the session")
    assert len(list(workspace.base().iterdir())) == 1
    assert len(workspace.sweep()) == 1


@pytest.mark.slow
def test_what_is_left_when_all_of_it_was_killed_goes_with_the_next_replay(
    record: Record, tmp_path: Path, places: Path
) -> None:
    command = begun(record, tmp_path)
    runner = [
        who
        for who in processes_under(places)
        if "kernel_runtime.replay.runner" in process.command_line(who.pid)
    ]
    command.kill()
    for who in runner:
        process.signal_process(who, signal.SIGKILL)
    command.communicate()
    assert processes_under(places)
    (tmp_path / "slow").unlink()
    assert replay("s").ok
    assert processes_under(places) == []


@pytest.mark.slow
def test_a_runner_that_is_killed_is_told(record: Record, tmp_path: Path, places: Path) -> None:
    command = begun(record, tmp_path)
    (runner,) = [
        who
        for who in processes_under(places)
        if "kernel_runtime.replay.runner" in process.command_line(who.pid)
    ]
    process.signal_process(runner, signal.SIGKILL)
    _, stderr = command.communicate(timeout=30)
    assert command.returncode == 4
    assert "was killed by signal 9" in stderr


def begun(record: Record, tmp_path: Path) -> subprocess.Popen[str]:
    """`krt replay` of a session, in the middle of a cell."""
    record(SLEEPS, "1 + 1")
    (tmp_path / "slow").write_text("")
    command = subprocess.Popen(
        # not confined: the cell says where we can see it that it has begun
        [sys.executable, "-m", "kernel_runtime.cli", "replay", "s", "--allow", "all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually((tmp_path / "began").exists, timeout=30, what="the cell that sleeps")
    return command


FULL = """
import os, subprocess, sys
from pathlib import Path
directory = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(directory)], check=True)
os.environ["TMPDIR"] = str(directory)
done = subprocess.run(
    [sys.executable, "-m", "kernel_runtime.cli", "replay", "s", "--json"], capture_output=True, text=True
)
print(done.returncode)
print(done.stdout.strip() or done.stderr)
(base,) = directory.glob("krt-replay-*")
print([str(path) for path in base.iterdir()])
"""


@pytest.mark.slow
def test_a_disk_that_runs_full_is_told_and_nothing_is_left(record: Record, places: Path) -> None:
    # what does not compress
    record(
        "import random\nr = random.Random(1)\nfor i in range(20_000): print(r.randbytes(200).hex())",
        "'beside'",
    )
    directory = places / "tiny"
    directory.mkdir()
    status, document, left = in_own_mounts(FULL, str(directory))
    told = json.loads(document)
    assert left == "[]"
    # how far it comes before the disk is full is nobody's to say
    if status == "0":
        first, second = told["executions"]
        assert first["verdict"] == "skipped", told
        assert first["reason"].startswith("gap: ")
        assert second["verdict"] == "same" or second["reason"].startswith("gap: "), told
    elif told["error"]["type"] == "KernelStartFailed":
        assert (status, "No space left" in told["error"]["stderr"]) == ("4", True), document
    else:
        assert (status, told["error"]["type"]) == ("4", "DiskFull"), document
