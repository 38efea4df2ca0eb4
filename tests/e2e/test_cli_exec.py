"""`krt exec` and `krt wait` on real sessions: outputs, exit status, keys, notebooks, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime import process
from kernel_runtime.client import session_files
from kernel_runtime.client.blocking import observe
from tests.support import eventually, krt, krt_json, waits


@pytest.fixture
def alice(krt_home: Path) -> Iterator[str]:
    """A session with a kernel, stopped in the end."""
    krt_json("new", "alice")
    yield "alice"
    krt_json("stop", "alice")


def start(*args: str, **how: Any) -> subprocess.Popen[str]:
    """`krt` in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "kernel_runtime.cli", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def running(name: str) -> str | None:
    """The execution that the kernel has now."""
    with observe(name) as session:
        row = session.running()
        return None if row is None else row.execution_id


def kill_kernel(name: str) -> None:
    kernel = session_files.living_kernel(session_files.load(name))
    assert kernel is not None
    process.signal_process(kernel, signal.SIGKILL)
    eventually(lambda: krt_json("ls")[0]["state"] == "dead", what="the death is seen")


def notebook(path: Path, *sources: str) -> Path:
    cells: list[dict[str, Any]] = [
        {"id": f"cell-{n}", "cell_type": "code", "source": source, "metadata": {}, "outputs": [],
         "execution_count": None}
        for n, source in enumerate(sources)
    ]  # fmt: skip
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    return path


def test_outputs_go_to_their_streams_and_the_outcome_to_the_exit_status(alice: str) -> None:
    good = krt("exec", alice, "import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (good.returncode, good.stdout, good.stderr) == (0, "out\n42\n", "err\n")
    bad = krt("exec", alice, "print('before'); 1 / 0")
    assert (bad.returncode, bad.stdout) == (1, "before\n")
    assert bad.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "\x1b" not in bad.stderr


def test_the_document_has_every_field_of_the_interface(alice: str) -> None:
    document = krt_json("exec", alice, "print('x')")
    assert set(document) >= {
        "session", "execution_id", "key", "cell_id", "principal", "incarnation", "status", "outcome",
        "execution_count", "source", "queued_at", "started_at", "finished_at", "outputs", "gaps", "error",
        "blocked", "cursor",
    }  # fmt: skip
    assert (document["outcome"], document["outputs"][0]["text"]) == ("ok", "x\n")
    failed = krt_json("exec", alice, "1 / 0", exit_code=1)
    assert failed["error"]["ename"] == "ZeroDivisionError"


def test_code_comes_from_the_command_line_stdin_or_a_file(alice: str, tmp_path: Path) -> None:
    assert krt("exec", alice, "-", stdin="1 + 1").stdout == "2\n"
    assert krt("exec", alice, stdin="1 + 2").stdout == "3\n"
    (tmp_path / "a.py").write_text("x = 4\nx")
    assert krt("exec", alice, "--file", str(tmp_path / "a.py")).stdout == "4\n"


def test_who_acts_is_recorded(alice: str) -> None:
    assert krt_json("exec", alice, "1", "--as", "agent:a")["principal"] == "agent:a"
    assert krt_json("exec", alice, "1", KRT_PRINCIPAL="agent:b")["principal"] == "agent:b"


def test_a_key_runs_once_and_is_refused_for_other_source(alice: str) -> None:
    source = "n = globals().get('n', 0) + 1; n"
    assert krt("exec", alice, source, "--key", "k").stdout == "1\n"
    again = krt("exec", alice, source, "--key", "k")
    assert (again.returncode, again.stdout) == (0, "1\n")
    assert "not run again" in again.stderr
    error = krt_json("exec", alice, "n = 9", "--key", "k", exit_code=4)["error"]
    assert (error["type"], krt("exec", alice, "n").stdout) == ("KeyConflict", "1\n")


def test_detach_and_wait(alice: str) -> None:
    detached = krt(
        "exec", alice, "import time; time.sleep(0.5); print('end'); 1 / 0", "--detach", "--key", "d"
    )
    assert detached.returncode == 0
    execution_id = detached.stdout.strip()
    waited = krt("wait", alice, execution_id[:8])
    assert (waited.returncode, waited.stdout) == (1, "end\n")
    assert krt_json("wait", alice, "--key", "d", exit_code=1)["execution_id"] == execution_id
    assert krt_json("wait", alice, "0000000000", exit_code=3)["error"]["type"] == "NoSuchExecution"


def until(go: Path, value: str) -> str:
    """A cell that runs until that file is there."""
    return f"{waits(go)}{value!r}"


def test_the_time_is_up_and_it_goes_on(alice: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    late = krt("exec", alice, until(go, "end"), "--timeout", "0.5")
    assert late.returncode == 6
    assert "krt wait alice" in late.stderr
    document = krt_json("wait", alice, "--timeout", "0", exit_code=6)
    assert document["status"] == "running"
    go.touch()
    assert krt("wait", alice).stdout == "'end'\n"


def test_another_incarnation_than_expected_is_refused(alice: str) -> None:
    assert krt("exec", alice, "1", "--expect-incarnation", "1").returncode == 0
    error = krt_json("exec", alice, "1", "--expect-incarnation", "7", exit_code=4)["error"]
    assert error["type"] == "IncarnationMismatch"


def test_a_lost_heap_is_refused_with_its_table_until_accepted(alice: str) -> None:
    krt("exec", alice, "df = 5")
    kill_kernel(alice)
    refused = krt("exec", alice, "df")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "lost" in refused.stderr
    assert "df = 5" in refused.stderr
    assert "--accept" in refused.stderr
    accepted = krt("exec", alice, "'df' in globals()", "--accept")
    assert (accepted.returncode, accepted.stdout) == (0, "False\n")
    shown = krt("exec", alice, "1", "--create")
    assert (shown.returncode, shown.stdout) == (0, "1\n")
    assert "1 lost" in shown.stderr


def test_d11_a_cell_that_kills_its_kernel_died(alice: str) -> None:
    died = krt("exec", alice, "import os; print('last words', flush=True); os.kill(os.getpid(), 9)")
    assert (died.returncode, died.stdout) == (5, "last words\n")
    assert "died" in died.stderr
    assert krt("status", alice, "--check").returncode == 8


def test_input_without_a_terminal_says_what_is_asked_and_can_be_answered(alice: str) -> None:
    blocked = krt("exec", alice, "name = input('name? '); name")
    assert blocked.returncode == 7
    assert "'name? '" in blocked.stderr
    assert "krt answer alice" in blocked.stderr
    assert "asks 'name?'" in krt("status", alice).stdout.splitlines()[-1]
    assert krt_json("wait", alice, exit_code=7)["blocked"]["prompt"] == "name? "
    assert krt("answer", alice, "-", stdin="bob\n").returncode == 0
    assert krt("wait", alice).stdout.rstrip().endswith("'bob'")
    assert krt_json("answer", alice, "late", exit_code=4)["error"]["type"] == "NotBlocked"


def test_end_of_file_is_an_answer(alice: str) -> None:
    assert krt("exec", alice, "input()").returncode == 7
    krt_json("answer", alice, "--eof")
    assert "EOFError" in krt("wait", alice).stderr


def test_a_notebook_runs_up_to_the_first_error_and_resumes_after_it_is_mended(
    alice: str, tmp_path: Path
) -> None:
    log = tmp_path / "ran"
    ran = f"open({str(log)!r}, 'a').write"
    path = notebook(tmp_path / "n.ipynb", f"{ran}('a')", f"{ran}('b'); 1 / 0", f"{ran}('c'); print('end')")
    first = krt("exec", alice, "--file", str(path))
    assert first.returncode == 1
    assert "cell 2 of 3" in first.stderr
    assert log.read_text() == "ab"
    notebook(path, f"{ran}('a')", f"{ran}('B')", f"{ran}('c'); print('end')")
    second = krt("exec", alice, "--file", str(path))
    assert (second.returncode, second.stdout.splitlines()[-1]) == (0, "end")
    assert log.read_text() == "abBc"
    krt("exec", alice, "--file", str(path))
    assert log.read_text() == "abBc"
    documents = krt("exec", alice, "--file", str(path), "--again", "--json").stdout.splitlines()
    assert [json.loads(line)["cell_id"] for line in documents] == ["cell-0", "cell-1", "cell-2"]
    assert log.read_text() == "abBcaBc"


def test_a_notebook_whose_runner_was_killed_resumes_and_runs_nothing_twice(
    alice: str, tmp_path: Path
) -> None:
    log, go = tmp_path / "ran", tmp_path / "go"
    a, b, c = (f"open({str(log)!r}, 'a').write({letter!r})\n" for letter in "abc")
    path = notebook(tmp_path / "n.ipynb", a, b + until(go, "b"), c)
    runner = start("exec", alice, "--file", str(path))
    eventually(lambda: log.exists() and log.read_text() == "ab", timeout=30, what="the second cell runs")
    runner.kill()
    runner.communicate()
    go.touch()
    assert krt("exec", alice, "--file", str(path)).returncode == 0
    assert log.read_text() == "abc"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_ended_from_outside_it_detaches(alice: str, number: signal.Signals, tmp_path: Path) -> None:
    go = tmp_path / "go"
    runner = start("exec", alice, until(go, "end"))
    eventually(lambda: running(alice), what="it runs")
    runner.send_signal(number)
    runner.communicate()
    assert runner.returncode == -number
    go.touch()
    assert krt("wait", alice).stdout == "'end'\n"


def test_ctrl_c_interrupts_the_cell(alice: str) -> None:
    runner = start("exec", alice, "import time\nprint('go', flush=True)\ntime.sleep(60)")
    assert runner.stdout is not None
    assert runner.stdout.readline() == "go\n"
    runner.send_signal(signal.SIGINT)
    _, err = runner.communicate(timeout=30)
    assert runner.returncode == 5
    assert "KeyboardInterrupt" in err
    assert krt("exec", alice, "'alive'").stdout == "'alive'\n"


def test_ctrl_c_while_queued_takes_it_back_and_leaves_the_one_that_runs_alone(
    alice: str, tmp_path: Path
) -> None:
    """Right: the queued one is `aborted` at once (it never started); somebody else's goes on."""
    go = tmp_path / "go"
    first = krt("exec", alice, until(go, "first"), "--detach").stdout.strip()
    eventually(lambda: running(alice) == first, what="the first runs")
    second = start("exec", alice, "'second'")
    assert second.stderr is not None
    assert "queued" in second.stderr.readline()
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=30)
    assert second.returncode == 5
    assert running(alice) == first
    go.touch()
    assert krt("wait", alice, first).stdout == "'first'\n"


def test_a_reader_that_leaves_is_a_detach(alice: str) -> None:
    runner = start("exec", alice, "import time\nfor i in range(20): print('x' * 100_000, flush=True)\n'end'")
    assert runner.stdout is not None
    runner.stdout.read(10)
    runner.stdout.close()
    runner.stdout = None
    assert (runner.communicate(timeout=30)[1], runner.returncode) == ("", 141)
    assert krt("wait", alice).stdout.endswith("'end'\n")


def test_d16_a_supervisor_killed_in_mid_cell_is_not_noticed(alice: str) -> None:
    runner = start("exec", alice, "import time\nfor i in range(40): print(i, flush=True); time.sleep(0.05)")
    assert runner.stdout is not None
    said = runner.stdout.readline()
    (row,) = krt_json("ls")
    os.kill(row["supervisor_pid"], signal.SIGKILL)
    said += runner.stdout.read()  # communicate() would leave out what readline read ahead
    err = runner.communicate(timeout=60)[1]
    assert (runner.returncode, said, err) == (0, "".join(f"{i}\n" for i in range(40)), "")
    (after,) = krt_json("ls")
    assert after["kernel_pid"] == row["kernel_pid"]
    assert after["supervisor_pid"] != row["supervisor_pid"]


def test_c30_much_output_passes_through(alice: str) -> None:
    lines = krt("exec", alice, "for i in range(200_000): print(i)")
    assert lines.stdout == "".join(f"{i}\n" for i in range(200_000))
    long = krt("exec", alice, "print('x' * 30_000_000)")
    assert len(long.stdout) == 30_000_001


@pytest.mark.parametrize(
    "data, status",
    [(b"x = '\xff'", 2), (b"x" * (50 << 20), 2), (b"\xef\xbb\xbf1 + 1", 0)],
    ids=["not UTF-8", "50 MB", "byte order mark"],
)
def test_sources_that_are_none_change_nothing(alice: str, tmp_path: Path, data: bytes, status: int) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(data)
    before = krt_json("ls")[0]["executions"]
    done = krt("exec", alice, "--file", str(script))
    assert done.returncode == status, done.stderr
    assert krt_json("ls")[0]["executions"] == before + (status == 0)
