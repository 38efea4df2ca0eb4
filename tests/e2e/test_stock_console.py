"""`jupyter console --existing`, unmodified, on a real terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pexpect
import pytest

import kernel_runtime as kr
from tests.contract.stock import executions, kernel_of, running_session
from tests.support import eventually


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with running_session() as opened:
        yield opened


@pytest.fixture
def console(session: kr.Session) -> Iterator[Any]:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "jupyter_console", "--existing", session.connection_file(), "--simple-prompt"],
        env={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
        encoding="utf-8",
        timeout=30,
        dimensions=(40, 200),
    )
    try:
        child.expect_exact("In [1]:")
        yield child
    finally:
        child.close(force=True)


def test_input_output_error_interrupt_and_exit(session, console):
    console.sendline("print('from ' + 'the console'); 40 + 2")
    console.expect_exact("from the console")
    console.expect_exact("42")
    console.expect(r"In \[\d+\]:")

    console.sendline("1 / 0")
    console.expect_exact("ZeroDivisionError")
    console.expect(r"In \[\d+\]:")

    console.sendline("'you said ' + input('say: ')")
    console.expect_exact("say: ")
    console.sendline("hello")
    console.expect_exact("you said hello")
    console.expect(r"In \[\d+\]:")

    console.sendline("import time; print('wai' + 'ting', flush=True); time.sleep(60)")
    console.expect_exact("waiting")
    eventually(lambda: session.row()["state"] == "busy", what="it runs")
    # this console interrupts no kernel that it did not start, and says so; the cell goes on
    console.sendintr()
    console.expect_exact("Cannot interrupt kernels we didn't start")
    assert session.row()["state"] == "busy"
    assert session.interrupt().ended
    console.expect_exact("KeyboardInterrupt")
    console.expect(r"In \[\d+\]:")

    kernel = kernel_of(session)
    console.sendline("kept = 'after the console'")
    console.expect(r"In \[\d+\]:")
    console.sendeof()
    console.expect_exact("really want to exit")
    console.sendline("y")
    console.expect(pexpect.EOF)
    # it left; nobody's leaving changes the kernel
    assert kernel_of(session) == kernel
    assert session.execute("kept").text == "'after the console'"
    outcomes = [row.outcome for row in executions(session)]
    assert outcomes == ["ok", "error", "ok", "interrupted", "ok", "ok"]
    user = executions(session)[0].principal
    assert user.startswith("human:")
    assert {row.principal for row in executions(session)} == {user, "agent:host"}


def test_it_sees_what_others_run(session, console):
    session.execute("shared = 'from the SDK'")
    console.sendline("shared")
    console.expect_exact("'from the SDK'")


def test_exit_that_keeps_the_kernel_keeps_it(session, console):
    """A bare `exit` is a cell that ends the kernel, as Jupyter means it; this is how a console leaves."""
    kernel = kernel_of(session)
    console.sendline("exit(keep_kernel=True)")
    console.expect(pexpect.EOF)
    assert kernel_of(session) == kernel
    assert session.row()["state"] == "idle"
