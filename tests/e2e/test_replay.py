"""Records of real sessions, replayed in real kernels."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.client.blocking import Execution
from kernel_runtime.errors import (
    JournalCorrupt,
    NoSuchSession,
    Refused,
    SessionExists,
    UnknownKernelSpec,
    UsageError,
)
from kernel_runtime.replay import replay, workspace
from kernel_runtime.replay.result import Result
from tests.support import eventually, krt, krt_json
from tests.unit.journal.support import in_own_mounts


@pytest.fixture(autouse=True)
def places(tmp_path: Path) -> Iterator[Path]:
    """The directory under which this test's replays have their places; nothing may be left in it."""
    assert tmp_path.exists()  # made before TMPDIR is another one
    root = Path(tempfile.mkdtemp(prefix="rp-"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TMPDIR", str(root))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield root
        left = [str(path) for path in workspace.base().iterdir()]
        running = processes_under(root)
    shutil.rmtree(root, ignore_errors=True)
    assert left == []
    assert running == []


def processes_under(root: Path) -> list[process.ProcessId]:
    """Living processes of a replay whose places are there."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (env := process.environment_of(int(name))) is not None:
            who = process.identify(int(name))
            if env.get("KRT_HOME", "").startswith(f"{root}/") and who is not None:
                found.append(who)
    return found


def looked_at_and_stopped(session: kr.Session) -> None:
    """A stop does not wait until the last cell has been looked at, and its names would be missing."""
    session.status(limit=0)
    session.stop()


Record = Callable[..., None]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Runs cells in a session `s` and stops it. `None` in place of a cell is a restart."""

    def run(*cells: str | None, name: str = "s", principal: str = "agent:a") -> None:
        with kr.attach(name, create=True, cwd=str(tmp_path), principal=principal) as session:
            for cell in cells:
                if cell is None:
                    session.restart()
                else:
                    session.execute(cell, accept=True, stop_on_error=False, timeout=30)
            looked_at_and_stopped(session)

    yield run
    for name in session_files.names():
        with kr.attach(name) as session:
            session.stop()


def verdicts(result: Result) -> list[str]:
    return [row["verdict"] for row in result.executions]


def reasons(result: Result) -> list[str]:
    return [row["reason"] or "" for row in result.executions]


def test_a_session_comes_out_the_same(record: Record) -> None:
    """Out of order, an error that is expected, two kernels, and who ran it does not matter."""
    record("x = 1", "print(x); x", "1/0", "del x", None, "y = 2", "y + 1")
    document = krt_json("replay", "s")
    assert document["verdict"] == "same"
    assert [row["verdict"] for row in document["executions"]] == ["same"] * 6
    assert document["names"] == [{"name": "y", "verdict": "same"}]
    assert document["integrity"] == {"ok": True, "problems": []}


def test_what_comes_out_otherwise_is_different(record: Record, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1\n")
    record("data = open('data.txt').read(); print(data)", "print('beside')", "len(data)")
    (tmp_path / "data.txt").write_text("22\n")
    document = krt_json("replay", "s", exit_code=1)
    assert document["verdict"] == "different"
    assert [row["verdict"] for row in document["executions"]] == ["different", "same", "different"]
    assert "22" in document["executions"][0]["diff"]
    assert document["executions"][2]["after"]["names"] == ["data"]
    assert {"name": "data", "verdict": "different"} in document["names"]
    (first, last) = document["changed"]
    assert (first["because"], last["because"]["steps"]) == (None, [1])


@pytest.mark.slow
def test_two_replays_that_disagree_are_nondeterministic(record: Record) -> None:
    record("import os; os.urandom(8).hex()", "x = 3; x")
    result = replay("s", two_times=True)
    assert (result.verdict, verdicts(result), result.ok) == (
        "nondeterministic",
        ["nondeterministic", "same"],
        False,
    )


ASKS = """
a = input('one? ')
try:
    b = input('two? ')
except EOFError:
    b = 'end'
print(a, b)
"""
READS = "import subprocess; subprocess.run(['bash', '-c', 'read -p \"t: \" t </dev/tty; echo $t'])"


def asked(session: kr.Session, x: Execution, prompt: str) -> None:
    """Wait for that question."""
    eventually(lambda: (session.peek(x.execution_id).blocked or {}).get("prompt") == prompt, what=prompt)


@pytest.mark.slow
def test_recorded_answers_are_given_again(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        for answers in (["Ada", None], ["Bo", "Cy"]):
            x = session.submit(ASKS)
            for prompt, answer in zip(["one? ", "two? "], answers, strict=True):
                asked(session, x, prompt)
                session.answer(answer, eof=answer is None)
            assert x.wait(timeout=20).outcome == "ok"
        x = session.submit(READS)
        asked(session, x, "t: ")
        session.answer("typed")
        assert "typed" in x.wait(timeout=20).text
        looked_at_and_stopped(session)
    result = replay("s")
    assert (result.verdict, verdicts(result)) == ("same", ["same"] * 3), [
        (row["reason"], row["diff"]) for row in result.executions
    ]
    assert [[asked["how"] for asked in row["asked"]] for row in result.executions] == [
        ["recorded"] * 2
    ] * 2 + [["recorded"]]
    skipped = replay("s", inputs="none")
    assert verdicts(skipped) == ["skipped"] * 3


@pytest.mark.slow
def test_another_question_and_one_more_are_told(record: Record, tmp_path: Path) -> None:
    (tmp_path / "n").write_text("1")
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.submit("n = int(open('n').read())\nfor i in range(n): print(input(f'{n} {i}? '))")
        eventually(lambda: session.peek(x.execution_id).blocked)
        session.answer("yes")
        x.wait(timeout=20)
        looked_at_and_stopped(session)
    (tmp_path / "n").write_text("3")
    (row,) = replay("s").executions
    assert row["verdict"] == "different"
    assert [(asked["how"], asked["prompt"], asked.get("recorded")) for asked in row["asked"]] == [
        ("recorded", "3 0? ", "1 0? "),
        ("end", "3 1? ", None),
    ]
    (tmp_path / "n").write_text("0")
    (row,) = replay("s").executions
    assert "does not ask '1 0? '" in row["reason"]


@pytest.mark.slow
def test_a_cell_that_asks_for_ever_is_interrupted(record: Record, tmp_path: Path) -> None:
    record(
        "import os\nwhile os.path.exists('ask'):\n    try: input('? ')\n    except EOFError: pass", "1 + 1"
    )
    (tmp_path / "ask").write_text("")
    result = replay("s")
    assert verdicts(result) == ["different", "same"]
    assert result.executions[0]["outcome"] == {"recorded": "ok", "replayed": "interrupted"}
    assert any("not in the record" in remark for remark in result.executions[0]["remarks"])


@pytest.mark.slow
def test_a_password_is_asked_for_or_its_execution_is_skipped(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.submit("import getpass; n = len(getpass.getpass('pw: ')); n")
        eventually(lambda: session.peek(x.execution_id).blocked)
        session.answer("four")
        assert x.wait(timeout=20).text == "4"
        session.execute("n * 2")
        looked_at_and_stopped(session)
    result = replay("s")
    assert verdicts(result) == ["skipped", "different"]
    assert "asked for a secret" in reasons(result)[0]
    assert result.executions[1]["after"] == {"names": ["n"], "steps": [1]}
    questions: list[tuple[str, bool]] = []

    def answer(prompt: str, hidden: bool) -> str:
        questions.append((prompt, hidden))
        return "four"

    result = replay("s", secrets="ask", ask=answer)
    assert (verdicts(result), questions) == (["same", "same"], [("pw: ", True)])
    with pytest.raises(UsageError, match="nobody to ask"):
        replay("s", secrets="ask")
    assert krt("replay", "s", "--secrets", "ask").returncode == 2


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
        "import os, time\nwhile os.path.exists('slow'):\n"
        "    try: time.sleep(0.1)\n    except BaseException: pass"
    )
    record(stubborn, "'after'", None, "'next'")
    (tmp_path / "slow").write_text("")
    result = replay("s", timeout=5)
    assert verdicts(result) == ["different", "skipped", "same"]
    assert "could not be interrupted" in reasons(result)[1]


LATE = """
import threading, time
def later():
    time.sleep(0.7)
    print('late', flush=True)
    box.append(1)
box = []
t = threading.Thread(target=later); t.start()
print('now')
"""


@pytest.mark.slow
def test_late_output_is_waited_for_where_it_was_recorded(record: Record, tmp_path: Path) -> None:
    """The record's next cell ran when the thread's output had come, and saw what the thread had done.

    A replay that only follows the order of the cells runs that one at once, and finds nothing.
    """
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.execute(LATE)
        eventually(lambda: "late" in x.refresh().text, what="late output")
        session.execute("import time; time.sleep(0.3); box")
        x = session.execute(LATE)
        eventually(lambda: "late" in x.refresh().text, what="late output at the end")
        looked_at_and_stopped(session)
    result = replay("s")
    assert (result.verdict, verdicts(result)) == ("same", ["same"] * 3)


@pytest.mark.slow
def test_a_display_that_another_cell_updates_is_compared_where_it_is_shown(record: Record) -> None:
    record(
        "h = display('a', display_id='d')",
        "h = display('b', display_id='d', update=True)",
        "from IPython.display import clear_output; print(1); clear_output(); print(2)",
    )
    result = replay("s")
    assert (result.verdict, len(result.executions)) == ("same", 3)


@pytest.mark.slow
def test_setting_a_name_shows_what_changes_downstream(record: Record) -> None:
    record("rate = 0.1", "price = 100", "tax = price * rate", "print('beside')", "price + tax", "price")
    document = krt_json("replay", "s", "--set", "rate=0.2", exit_code=1)
    assert document["settings"] == [
        {"name": "rate", "value": 0.2, "number": 2, "after": 1, "why": "it binds rate first"}
    ]
    (changed,) = document["changed"]
    assert changed["number"] == 6
    assert changed["because"] == {"names": ["tax"], "steps": [2]}
    assert {row["name"]: row["verdict"] for row in document["names"]} == {
        "rate": "different", "tax": "different", "price": "same",
    }  # fmt: skip
    done = krt("replay", "s", "--set", "rate=0.2")
    assert done.stdout.startswith("s: different (")
    assert "set: rate = 0.2 after step 1" in done.stdout
    assert "reads tax, not as recorded since step 2" in done.stdout
    assert krt("replay", "s", "--set", "rate=open('x')").returncode == 2


@pytest.mark.slow
def test_a_session_is_left_at_that_point_of_history(record: Record, krt_home: Path) -> None:
    record("x = 1", "x = x + 1", "x = 100")
    ends = [entry["seq"] for entry in log("s", "ExecutionFinished")]
    document = krt_json("replay", "s", "--until", str(ends[1]), "--keep", "then")
    assert (document["kept"], len(document["executions"])) == ("then", 2)
    with kr.attach("then", accept=True) as session:
        assert session.execute("x").text == "2"
        session.stop()
    with pytest.raises(SessionExists):
        replay("s", keep="then")
    with pytest.raises(UsageError, match="no entry"):
        replay("s", until=10_000)


@pytest.mark.slow
def test_a_kept_session_does_not_repeat_effects_unasked(record: Record, tmp_path: Path) -> None:
    record("open('out.txt', 'a').write('x')")
    with pytest.raises(Refused, match="1 executions have effects"):
        replay("s", keep="then")
    assert not session_files.exists("then")
    assert (tmp_path / "out.txt").read_text() == "x"
    assert replay("s", keep="then", allow=["all"]).kept == "then"
    assert (tmp_path / "out.txt").read_text() == "xx"


@pytest.mark.slow
def test_a_replay_that_cannot_keep_leaves_no_session(record: Record) -> None:
    record("x = 1")
    with pytest.raises(UnknownKernelSpec):
        replay("s", keep="then", kernel="nope")
    assert not session_files.exists("then")


def log(name: str, kind: str) -> list[dict[str, Any]]:
    done = krt("log", name, "--kind", kind, "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def notebook(path: Path, *cells: tuple[str, list[dict[str, Any]]], kernel: str = "python3") -> Path:
    made = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": s, "outputs": o, "execution_count": n}
        for n, (s, o) in enumerate(cells, 1)
    ]
    metadata = {"kernelspec": {"name": kernel, "display_name": kernel}}
    path.write_text(json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def said(text: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": text}]


@pytest.mark.slow
def test_a_plain_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", ("x = 1; print(x)", said("1\n")), ("print(x + 1)", said("3\n")))
    document = krt_json("replay", str(path), exit_code=1)
    assert (document["kind"], document["order"]) == ("notebook", "document")
    assert [(row["cell_id"], row["verdict"]) for row in document["executions"]] == [
        ("c1", "same"),
        ("c2", "different"),
    ]


@pytest.mark.slow
def test_an_export_and_a_bundle_are_replayed_as_the_session_ran(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        session.execute("x = 1", cell_id="first")
        session.execute("x += 1; x", cell_id="second")
        session.execute("x = 10; x", cell_id="first")
        looked_at_and_stopped(session)
    path = tmp_path / "export.ipynb"
    assert krt("export", "s", str(path)).returncode == 0
    result = replay(path)
    assert result.order == "executed"
    # what `first` was before is in no file: x is not bound when `second` runs
    assert verdicts(result) == ["different", "same"]
    bundle = tmp_path / "s.bundle"
    assert krt("bundle", "s", str(bundle)).returncode == 0
    result = replay(bundle)
    assert (result.kind, result.verdict, verdicts(result)) == ("bundle", "same", ["same"] * 3)


def test_what_cannot_be_replayed_is_said(record: Record, tmp_path: Path) -> None:
    with pytest.raises(NoSuchSession):
        replay("nobody")
    assert krt("replay", "nobody").returncode == 3
    assert krt("replay", str(tmp_path / "none.ipynb")).returncode == 3
    path = notebook(tmp_path / "n.ipynb", ("1", []), kernel="not-here")
    with pytest.raises(UnknownKernelSpec) as caught:
        replay(path)
    assert "python3" in caught.value.hint
    session_files.create("fresh", cwd=tmp_path)
    assert krt("replay", "fresh").returncode == 3


@pytest.mark.slow
def test_a_damaged_record_is_refused_unless_forced(record: Record) -> None:
    record("x = 1; x", "x + 1")
    path = session_files.load("s").journal
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("DROP TRIGGER IF EXISTS entries_no_update")
    triggers = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("UPDATE entries SET principal = 'agent:b' WHERE kind = 'ExecutionFinished'")
    connection.close()
    with pytest.raises(JournalCorrupt):
        replay("s")
    assert krt("replay", "s").returncode == 9
    result = replay("s", force=True)
    assert result.integrity["ok"] is False
    assert result.integrity["problems"]
    assert verdicts(result) == ["same", "same"]


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


@pytest.mark.slow
def test_the_record_is_only_read(record: Record) -> None:
    record("x = 1", "x")
    directory = session_files.load("s").directory

    def files() -> dict[str, bytes]:
        # -shm is SQLite's index of the log, for as long as somebody reads
        found = (path for path in directory.iterdir() if path.is_file() and not path.name.endswith("-shm"))
        return {path.name: path.read_bytes() for path in found}

    before = files()
    replay("s")
    assert files() == before


@pytest.mark.slow
def test_a_bound_that_cut_the_record_cuts_the_replay(record: Record, krt_home: Path) -> None:
    krt_home.mkdir(exist_ok=True)
    (krt_home / "bounds.json").write_text('{"execution": 20000}')
    record("for i in range(2000): print(i, 'x' * 50, flush=True)", "'beside'")
    result = replay("s")
    assert verdicts(result) == ["skipped", "same"]
    assert "record (execution-bound)" in reasons(result)[0]
    assert "replay (execution-bound)" in reasons(result)[0]


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
    if status == "0":
        first, second = told["executions"]
        assert first["verdict"] == "skipped", told
        assert first["reason"].startswith("gap: ")
        assert second["verdict"] == "same"
    else:
        assert (status, told["error"]["type"]) == ("4", "DiskFull"), document


@pytest.mark.slow
def test_a_person_is_asked_at_the_terminal(record: Record, tmp_path: Path) -> None:
    with kr.attach("s", create=True, cwd=str(tmp_path)) as session:
        x = session.submit("import getpass; n = len(getpass.getpass('pw: ')); print(input('and? '), n)")
        asked(session, x, "pw: ")
        session.answer("four")
        asked(session, x, "and? ")
        session.answer("yes")
        assert x.wait(timeout=20).text == "yes 4\n"
        looked_at_and_stopped(session)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "kernel_runtime.cli", "replay", "s", "--secrets", "ask", "--inputs", "ask"],
        encoding="utf-8",
        timeout=60,
    )
    child.expect("pw: ")
    child.sendline("hush")
    child.expect("and\\? ")
    child.sendline("no")
    child.expect(pexpect.EOF)
    shown = child.before
    child.close()
    assert child.exitstatus == 1
    assert "hush" not in shown
    assert "s: different" in shown


@pytest.mark.slow
def test_a_session_can_be_kept_from_before_anything_had_run(record: Record) -> None:
    record("x = 1")
    first = log("s", "KernelStarted")[0]["seq"]
    result = replay("s", until=first, keep="then")
    assert (result.executions, result.kept) == ([], "then")
    with kr.attach("then", accept=True) as session:
        assert session.execute("'x' in globals()").text == "False"
        session.stop()


@pytest.mark.slow
def test_a_notebook_of_a_kernelspec_of_ours_runs_in_the_kernel_behind_it(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", ("print(1)", said("1\n")), kernel="krt-python3")
    assert verdicts(replay(path)) == ["same"]
