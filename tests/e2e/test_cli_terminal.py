"""`krt` on a real terminal: prompts, passwords, Ctrl-C, the console."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from kernel_runtime.cli import running
from kernel_runtime.client.session_files import load
from tests.e2e.written import contents
from tests.support import eventually, krt, krt_json

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def alice(krt_home: Path) -> Iterator[str]:
    """A session with a kernel, stopped in the end."""
    krt_json("new", "alice")
    yield "alice"
    krt_json("stop", "alice")


@pytest.fixture
def terminals() -> Iterator[list[pexpect.spawn]]:
    opened: list[pexpect.spawn] = []
    yield opened
    for terminal in opened:
        terminal.close(force=True)


def spawn(terminals: list[pexpect.spawn], *args: str) -> pexpect.spawn:
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "kernel_runtime.cli", *args],
        encoding="utf-8",
        timeout=30,
        dimensions=(24, 200),
    )
    terminals.append(terminal)
    return terminal


def status_of(terminal: pexpect.spawn) -> int:
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus is not None, terminal.signalstatus
    return int(terminal.exitstatus)


def test_a_question_is_asked_and_answered(alice: str, terminals: list[pexpect.spawn]) -> None:
    terminal = spawn(terminals, "exec", alice, "name = input('name? '); print('hello', name)")
    terminal.expect_exact("name? ")
    terminal.sendline("bob")
    terminal.expect_exact("hello bob")
    assert status_of(terminal) == 0


def test_w26_a_password_is_not_echoed_and_in_no_file(
    alice: str, terminals: list[pexpect.spawn], krt_home: Path
) -> None:
    terminal = spawn(terminals, "exec", alice, "import getpass; len(getpass.getpass('secret: '))")
    terminal.expect_exact("secret: ")
    terminal.sendline("correct-horse")
    terminal.expect_exact("13")
    assert "correct-horse" not in terminal.before
    assert status_of(terminal) == 0
    eventually(Path(load(alice).notebook).exists, what="the notebook is written")
    files = contents(krt_home)
    assert {"journal.db", "notebook.ipynb"} <= {path.name for path in files}
    assert not [path for path, content in files.items() if b"correct-horse" in content]


@pytest.fixture
def person() -> Iterator[int]:
    """The other end of a terminal that is this process's stdin."""
    master, slave = pty.openpty()
    before = os.dup(0)
    os.dup2(slave, 0)
    yield master
    os.dup2(before, 0)
    for fd in (before, slave, master):
        os.close(fd)


def test_a_password_typed_as_soon_as_its_prompt_is_seen_is_not_echoed(
    person: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal echoes what is typed when it is typed, not when it is read: whoever saw the prompt while
    the echo was still on had the start of a password on the screen.

    Right: the echo is off before a prompt is shown, and on again when the answer has been read.
    """

    def shown(fd: int, text: str) -> None:
        if text == "secret: ":
            os.write(person, b"correct-horse\n")
            # the kernel hands typed lines on, and echoes them, at its leisure
            assert select.select([0], [], [], 30)[0] == [0]

    monkeypatch.setattr(running, "write", shown)
    assert running.ask("secret: ", hidden=True, still=lambda: True) == "correct-horse\n"
    os.write(person, b"afterwards\n")
    assert select.select([0], [], [], 30)[0] == [0]
    echoed = os.read(person, 4096)
    assert (b"correct-horse" in echoed, b"afterwards" in echoed) == (False, True), echoed


def test_w25_a_question_answered_elsewhere_is_withdrawn_here(
    alice: str, terminals: list[pexpect.spawn]
) -> None:
    terminal = spawn(terminals, "exec", alice, "input('who? ')")
    terminal.expect_exact("who? ")
    krt("answer", alice, "elsewhere")
    terminal.expect_exact("no longer asked")
    terminal.expect_exact("'elsewhere'")
    assert status_of(terminal) == 0


def test_ctrl_d_is_end_of_file(alice: str, terminals: list[pexpect.spawn]) -> None:
    terminal = spawn(terminals, "exec", alice, "input('who? ')")
    terminal.expect_exact("who? ")
    terminal.sendeof()
    terminal.expect_exact("EOFError")
    assert status_of(terminal) == 1


def test_i24_ctrl_c_at_a_question_interrupts_the_cell(alice: str, terminals: list[pexpect.spawn]) -> None:
    terminal = spawn(terminals, "exec", alice, "input('who? ')")
    terminal.expect_exact("who? ")
    terminal.sendintr()
    terminal.expect_exact("KeyboardInterrupt")
    assert status_of(terminal) == 5


def test_ctrl_c_interrupts_and_the_traceback_is_seen(alice: str, terminals: list[pexpect.spawn]) -> None:
    terminal = spawn(terminals, "exec", alice, "import time\nprint('go')\ntime.sleep(60)")
    terminal.expect_exact("go")
    terminal.sendintr()
    terminal.expect_exact("KeyboardInterrupt")
    assert status_of(terminal) == 5


def test_c29_a_progress_bar_moves(alice: str, terminals: list[pexpect.spawn]) -> None:
    code = "import time\nfor i in range(5): print(f'\\r{i}/4', end='', flush=True); time.sleep(0.2)\nprint()"
    terminal = spawn(terminals, "exec", alice, code)
    assert status_of(terminal) == 0
    assert "\r0/4\r1/4" in terminal.before


def test_the_console_runs_cells_and_detaches(alice: str, terminals: list[pexpect.spawn]) -> None:
    terminal = spawn(terminals, "attach", alice)
    terminal.expect_exact("alice> ")
    terminal.sendline("x = 6 * 7")
    terminal.expect_exact("alice> ")
    terminal.sendline("for i in range(2):")
    terminal.expect_exact(".....> ")
    terminal.sendline("    print('line', i)")
    terminal.expect_exact(".....> ")
    terminal.sendline("")
    terminal.expect_exact("line 0")
    terminal.expect_exact("line 1")
    terminal.expect_exact("alice> ")
    terminal.sendline("1 / 0")
    terminal.expect_exact("division by zero")
    terminal.expect_exact("alice> ")
    terminal.sendline("import time; print('go'); time.sleep(60)")
    terminal.expect_exact("go\r\n")
    terminal.sendintr()
    terminal.expect_exact("KeyboardInterrupt")
    terminal.expect_exact("alice> ")
    terminal.sendeof()
    terminal.expect_exact("detached")
    assert status_of(terminal) == 0
    assert krt("exec", alice, "x").stdout == "42\n"


def test_r4_attaching_shows_what_runs_from_its_start(alice: str, terminals: list[pexpect.spawn]) -> None:
    code = "import time; print('began', flush=True); time.sleep(60)"
    krt("exec", alice, code, "--detach", "--as", "agent:planner")
    eventually(lambda: krt_json("ls")[0]["state"] == "busy", what="it runs")
    terminal = spawn(terminals, "attach", alice)
    terminal.expect(r"agent:planner is running [0-9a-f-]+ since .*: import time; print\('began'")
    terminal.expect_exact("began")
    terminal.sendintr()
    terminal.expect_exact("KeyboardInterrupt")
    terminal.expect_exact("alice> ")
    terminal.sendeof()
    assert status_of(terminal) == 0


def test_the_console_asks_before_it_goes_on_in_a_new_heap(alice: str, terminals: list[pexpect.spawn]) -> None:
    terminal = spawn(terminals, "attach", alice)
    terminal.expect_exact("alice> ")
    terminal.sendline("x = 1")
    terminal.expect_exact("alice> ")
    terminal.sendline("import os; os._exit(0)")
    terminal.expect_exact("died")
    terminal.expect_exact("alice> ")
    terminal.sendline("'x' in globals()")
    terminal.expect_exact("run it in the new heap? [y/N]")
    terminal.sendline("y")
    terminal.expect_exact("False")
    terminal.expect_exact("alice> ")
    terminal.sendeof()
    assert status_of(terminal) == 0


def test_rm_asks_first(krt_home: Path, terminals: list[pexpect.spawn]) -> None:
    krt("exec", "alice", "--create", "1")
    krt("stop", "alice")
    terminal = spawn(terminals, "rm", "alice")
    terminal.expect_exact("for ever?")
    terminal.sendline("n")
    assert status_of(terminal) == 0
    assert len(krt_json("ls")) == 1
    terminal = spawn(terminals, "rm", "alice")
    terminal.expect_exact("for ever?")
    terminal.sendline("y")
    assert status_of(terminal) == 0
    assert krt_json("ls") == []
