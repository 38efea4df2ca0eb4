"""A cell that waits because something it started reads the kernel's terminal: seen, answered, survived."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.blocking import Execution
from kernel_runtime.errors import NotBlocked
from kernel_runtime.model.facts import InputAnswered, InputRequested, InputWithdrawn
from tests.cases.support import cell_of, entries, kernel_pid, state, stopped, streamed
from tests.contract.stock import stock_client
from tests.e2e.written import contents
from tests.support import eventually, krt, krt_json, waits

TOKEN = "import subprocess\nsubprocess.run(['bash', '-c', 'read -p \"token: \" t </dev/tty; echo got $t'])"
PASSWORD = (
    "import subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import getpass; print(len(getpass.getpass(\"Password: \")))'])"
)
PAGER = """
import os, tty
tty.setraw(0)
print("-- MORE --", end="", flush=True, file=open("/dev/tty", "w"))
print(os.read(0, 9))
"""
SECRET = "correct-horse-battery"


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with stopped("blocked") as session:
        session.execute("import subprocess, os, sys")
        yield session


def asks(session: kr.Session, source: str, **how: Any) -> tuple[Execution, dict[str, Any]]:
    """A cell, and what it is blocked on."""
    x = session.submit(source, **how)
    return x, blocked_on(session, x)


def blocked_on(session: kr.Session, x: Execution) -> dict[str, Any]:
    found = eventually(lambda: session.peek(x.execution_id).blocked, what="blocked")
    assert found is not None
    return found


def test_a_child_that_reads_the_terminal_is_seen_and_answered(session: kr.Session) -> None:
    x, blocked = asks(session, TOKEN)
    assert (blocked["on"], blocked["prompt"]) == ("terminal", "token: ")
    assert process.command_line(blocked["pid"])[:2] == ["bash", "-c"]
    assert state(session) == "blocked"
    (asked,) = [e.fact for e in entries(session, "InputRequested", execution=x)]
    assert isinstance(asked, InputRequested)
    assert (asked.on, asked.pid, asked.command[0]) == ("terminal", blocked["pid"], "bash")
    session.answer("hunter")
    assert "got hunter\n" in x.wait(timeout=30).text
    assert x.outcome == "ok"


@pytest.mark.parametrize(
    "source, prompt, got",
    [
        (
            'subprocess.run([sys.executable, \'-c\', \'print("<" + input("child? ") + ">")\'])',
            "child? ",
            "<yes>",
        ),
        ("os.system('read a; echo \"<$a>\"')", "", "<yes>"),
        ('!bash -c \'read -p "Proceed? " a; echo "<$a>"\' x', "Proceed? ", "<yes>"),
        ("print('say it'); print('<' + sys.stdin.readline().strip() + '>')", "say it", "<yes>"),
    ],
    ids=["child", "os.system", "bang", "the-kernel-itself"],
)
def test_whatever_reads_its_stdin(session: kr.Session, source: str, prompt: str, got: str) -> None:
    x, blocked = asks(session, source)
    assert (blocked["on"], blocked["prompt"]) == ("terminal", prompt)
    session.answer("yes")
    assert got in x.wait(timeout=30).text


def test_a_password_is_in_no_file(session: kr.Session, krt_home: Path) -> None:
    x, blocked = asks(session, PASSWORD)
    assert (blocked["on"], blocked["prompt"]) == ("terminal-password", "Password: ")
    session.answer(SECRET)
    assert f"{len(SECRET)}\n" in x.wait(timeout=30).text
    (answered,) = [e.fact for e in entries(session, "InputAnswered", execution=x)]
    assert isinstance(answered, InputAnswered)
    assert answered.value is None
    cell_of(session.name, x)
    files = contents(krt_home)
    assert {"journal.db", "notebook.ipynb"} <= {path.name for path in files}
    assert not [path for path, content in files.items() if SECRET.encode() in content]


def test_one_question_after_the_other(session: kr.Session) -> None:
    source = 'os.system(\'printf "one? " >/dev/tty; read a; printf "two? " >/dev/tty; read b; echo $a-$b\')'
    x, blocked = asks(session, source)
    assert blocked["prompt"] == "one? "
    session.answer("1")
    eventually(lambda: blocked_on(session, x)["prompt"] == "two? ", what="the second question")
    session.answer("2")
    assert "1-2\n" in x.wait(timeout=30).text


def test_the_command_line_answers_and_sends_the_end(session: kr.Session) -> None:
    x, _ = asks(session, "subprocess.run(['cat'])")
    done = krt("exec", session.name, "1", "--timeout", "0")
    assert done.returncode in (6, 7)
    assert krt_json("answer", session.name, "--eof")["execution_id"] == x.execution_id
    assert x.wait(timeout=30).outcome == "ok"
    done = krt("exec", session.name, TOKEN)
    assert done.returncode == 7
    assert "token: " in done.stderr
    krt_json("answer", session.name, "hunter")
    assert "got hunter" in krt("wait", session.name).stdout


def test_an_interrupt_ends_what_reads(session: kr.Session) -> None:
    session.execute("1 / 0")  # loads what formats tracebacks: the interrupt is what is timed
    x, blocked = asks(session, TOKEN)
    reader = process.identify(blocked["pid"])
    assert reader is not None
    session.interrupt()
    # on a busy machine the traceback may take longer than the ladder
    assert x.wait(timeout=30).outcome == "interrupted"
    assert x.blocked is None
    eventually(lambda: not process.is_alive(reader), what="the reader has ended")
    with pytest.raises(NotBlocked):
        session.answer("too late")
    assert session.execute("1 + 1").text == "2"


def test_a_reader_that_goes_away_is_no_question(session: kr.Session) -> None:
    source = (
        "p = subprocess.Popen(['bash', '-c', 'read t </dev/tty']); p.wait(); import time; time.sleep(600)"
    )
    x, blocked = asks(session, source)
    reader = process.identify(blocked["pid"])
    assert reader is not None
    process.signal_process(reader, signal.SIGKILL)
    eventually(lambda: session.peek(x.execution_id).status == "running", what="busy again")
    (withdrawn,) = [e.fact for e in entries(session, "InputWithdrawn", execution=x)]
    assert isinstance(withdrawn, InputWithdrawn)
    assert "ended" in withdrawn.reason
    session.interrupt()
    assert x.wait(timeout=30).outcome == "interrupted"


def test_the_cells_own_question_comes_first(session: kr.Session, tmp_path: Path) -> None:
    go = tmp_path / "go"
    child = "p = subprocess.Popen(['bash', '-c', 'read t </dev/tty; echo got $t'])\n"
    x, blocked = asks(session, child + waits(go) + "print(input('own? ')); p.wait()")
    assert blocked["on"] == "terminal"
    go.touch()
    eventually(lambda: blocked_on(session, x)["on"] == "input", what="the cell asks")
    session.answer("first")
    eventually(lambda: blocked_on(session, x)["on"] == "terminal", what="the child asks again")
    session.answer("second")
    text = x.wait(timeout=30).text
    assert "first\n" in text
    assert "got second\n" in text


def test_an_editor_waits_for_keys(session: kr.Session, tmp_path: Path) -> None:
    script = tmp_path / "pager.py"
    script.write_text(PAGER)
    pager = shlex.join([sys.executable, str(script)])
    x, blocked = asks(session, f"os.system({pager!r})")
    assert (blocked["on"], blocked["prompt"]) == ("terminal", "-- MORE --")
    session.answer("q")
    assert "b'q'" in x.wait(timeout=30).text
    # it did not set the terminal back: the next cell finds it as it should be
    assert (
        "echo"
        in session.execute("subprocess.run(['stty', '-a'], capture_output=True, text=True).stdout").text
    )
    _, blocked = asks(session, "os.system('read a; echo \"<$a>\"')")
    session.answer("line")
    assert "<line>" in session.wait(timeout=30).text


def test_a_background_process_does_not_block_a_later_cell(session: kr.Session) -> None:
    session.execute("p = subprocess.Popen(['bash', '-c', 'read t </dev/tty'])")
    x = session.submit("import time; time.sleep(1.5)")
    assert x.wait(timeout=30).outcome == "ok"
    assert entries(session, "InputRequested", execution=x) == []


def test_an_answer_through_the_next_supervisor(session: kr.Session) -> None:
    x, blocked = asks(session, TOKEN)
    os.kill(session.row()["supervisor_pid"], signal.SIGKILL)
    with kr.attach(session.name) as again:
        assert again.peek(x.execution_id).blocked == blocked
        assert again.row()["state"] == "blocked"
        again.answer("hunter")
        after = again.wait(x.execution_id, timeout=30)
        assert (after.outcome, "got hunter\n" in after.text) == ("ok", True)


def test_the_kernel_killed_while_blocked(session: kr.Session) -> None:
    x, _ = asks(session, TOKEN)
    os.kill(kernel_pid(session), signal.SIGKILL)
    assert x.wait(timeout=30).outcome == "died"
    assert x.evidence["signal"] == signal.SIGKILL
    assert x.blocked is None
    with pytest.raises(NotBlocked):
        session.answer("nobody")


@pytest.mark.parametrize("killed", ["kernel", "supervisor", "both"])
def test_a_server_survives_whoever_started_it(killed: str) -> None:
    """Nobody's end is a hang-up of the terminal, and `stop` leaves nothing."""
    with stopped("survives") as session:
        pid = int(session.execute("import subprocess\np = subprocess.Popen(['sleep', '1000'])\np.pid").text)
        server = process.identify(pid)
        kernel = process.identify(kernel_pid(session))
        supervisor = process.identify(session.row()["supervisor_pid"])
        assert server is not None
        assert kernel is not None
        assert supervisor is not None
        parent = process.identify(int((process.stat_fields(kernel.pid) or [])[1]))
        assert parent is not None
        victims = {"kernel": [kernel], "supervisor": [supervisor], "both": [supervisor, kernel]}[killed]
        for victim in victims:
            process.signal_process(victim, signal.SIGKILL)
        eventually(lambda: not any(map(process.is_alive, victims)), what="killed")
        if kernel in victims:
            eventually(lambda: not process.is_alive(parent), what="the kernel's parent ends after it")
        with kr.attach("survives", accept=True) as again:
            assert process.is_alive(server)
            assert again.execute("1", accept=True).outcome == "ok"
            assert process.is_alive(server)
    assert not process.is_alive(server)


def test_the_terminal_outlives_the_supervisor_and_nobody_waits_for_a_reader(session: kr.Session) -> None:
    """More than a terminal's buffers hold, written while the supervisor is stopped."""
    supervisor = session.row()["supervisor_pid"]
    done = Path(session.execute("import tempfile; d = tempfile.mkdtemp(); print(d)").text.strip()) / "done"
    x = session.submit(f"open('/dev/tty', 'w').write('x' * 500_000); open({str(done)!r}, 'w').close()")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        eventually(done.exists, what="written")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert x.wait(timeout=30).outcome == "ok"
    log = next((Path(os.environ["KRT_HOME"]) / "sessions" / session.name).glob("kernel-*.tty"))
    assert log.stat().st_size <= 1 << 18


def test_a_jupyter_client_is_asked(session: kr.Session) -> None:
    with stock_client(session) as client:
        client.execute(TOKEN, allow_stdin=True)
        asked = client.get_stdin_msg(timeout=20)
        assert asked["content"] == {"prompt": "token: ", "password": False}
        client.input("hunter")
        eventually(lambda: session.row()["state"] == "idle", what="ended")
    assert "got hunter\n" in streamed(entries(session, "OutputRecorded"))


def test_a_jupyter_client_that_allows_no_input_is_told_and_the_reader_gets_end_of_file(
    session: kr.Session,
) -> None:
    with stock_client(session) as client:
        msg_id = client.execute("subprocess.run(['cat']).returncode", allow_stdin=False)
        told = ""
        while True:
            message = client.get_iopub_msg(timeout=20)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if message["msg_type"] == "stream" and message["content"]["name"] == "stderr":
                told += message["content"]["text"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
    assert "reads the terminal" in told
    assert [e.fact.eof for e in entries(session, "InputAnswered") if isinstance(e.fact, InputAnswered)] == [
        True
    ]
