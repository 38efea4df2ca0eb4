"""Kernels of other people, as their packages install them: cell-level truth through the same door."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime.errors import HeapLost
from tests.contract.stock import (
    executions,
    kernel_of,
    kill,
    kinds,
    replace_supervisor,
    reply_to,
    run,
    running_session,
    stock_client,
    text_of,
    until,
    until_idle,
)
from tests.support import eventually, krt, krt_json, waits

IPYKERNEL = [sys.executable, "-c", "from ipykernel.kernelapp import launch_new_instance as go; go()", "-f"]
"""stock ipykernel, started in a way that does not let ours take its place"""
SPECS: dict[str, dict[str, Any]] = {
    "bash": {"argv": [sys.executable, "-m", "bash_kernel", "-f"], "language": "bash"},
    "ipykernel": {"argv": IPYKERNEL, "language": "python", "metadata": {"supported_encryption": ["curve"]}},
    "ipymini": {"argv": [sys.executable, "-m", "ipymini", "-f"], "language": "python"},
    "xeus": {"argv": [sys.executable, "-m", "xpython_launcher", "-f"], "language": "python"},
}
PYTHON = ["ipykernel", "ipymini", "xeus"]
EVERY = ["bash", *PYTHON]


@pytest.fixture
def session(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[kr.Session]:
    name = request.param
    directory = tmp_path / "kernels" / name
    directory.mkdir(parents=True)
    spec = SPECS[name]
    document = {**spec, "argv": [*spec["argv"], "{connection_file}"], "display_name": name}
    (directory / "kernel.json").write_text(json.dumps(document))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with running_session(kernel=name) as opened:
        yield opened


def on(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("session", names, indirect=True)


def lines(execution: kr.Execution) -> list[str]:
    return str(execution.text).splitlines()


def in_language(session: kr.Session, python: str, bash: str) -> str:
    return bash if session.row()["kernel"] == "bash" else python


@on(*EVERY)
def test_output_of_the_first_cell_and_of_many_is_all_there(session):
    done = session.execute(in_language(session, "print('first')", "echo first"), timeout=30)
    assert (done.outcome, lines(done)) == ("ok", ["first"])
    # xeus says each line in two messages, and its socket drops what comes after a thousand
    many = in_language(
        session, "for i in range(300): print(i, flush=True)", "for i in $(seq 0 299); do echo $i; done"
    )
    done = session.execute(many, timeout=30)
    assert (done.outcome, lines(done)) == ("ok", [str(i) for i in range(300)])


@on(*PYTHON)
def test_results_and_errors(session):
    done = session.execute("6 * 7", timeout=30)
    assert done.outputs[0]["data"]["text/plain"] == "42"
    done = session.execute("print('half')\n1 / 0", timeout=30)
    assert done.outcome == "error"
    assert "ZeroDivisionError" in done.error.ename  # xeus says <class 'ZeroDivisionError'>
    assert lines(done)[0] == "half"
    assert session.execute("1", timeout=30).outcome == "ok"


@on("bash")
def test_a_command_that_fails_is_an_error(session):
    done = session.execute("echo half; false", timeout=30)
    assert (done.outcome, lines(done)[0]) == ("error", "half")
    assert session.execute("true", timeout=30).outcome == "ok"


@on(*EVERY)
def test_a_stock_client_sees_what_it_would_see_of_the_kernel(session):
    with stock_client(session, "ada") as client:
        assert client.kernel_info(reply=True, timeout=20)["content"]["language_info"]["name"]
        msg_id = client.execute(in_language(session, "print('hi')", "echo hi"))
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        messages = until_idle(client, msg_id)
        assert text_of(messages) == "hi\n"
        shown = kinds(messages)
        assert (shown[0], shown[-1]) == ("status:busy", "status:idle")
        history = client.history(hist_access_type="tail", n=5, reply=True, timeout=20)["content"]["history"]
        assert [row[2] for row in history] == [in_language(session, "print('hi')", "echo hi")]
        completed = client.complete(in_language(session, "pri", "ech"), reply=True, timeout=30)["content"]
        assert any(match.startswith(("print", "echo")) for match in completed["matches"])
    assert [row.principal for row in executions(session)] == ["human:ada"]


@on("bash", "ipykernel", "ipymini")
def test_interrupt(session):
    code = in_language(
        session,
        "import time\nprint('on', flush=True)\nfor _ in range(600): time.sleep(0.1)",
        "echo on; sleep 60",
    )
    running = session.submit(code)
    eventually(lambda: lines(running.refresh()) == ["on"], 30, "it runs")
    session.interrupt()
    # whether within the ladder's patience is the kernel's affair: its first traceback may take it longer
    assert running.wait(30).outcome == "interrupted"
    done = session.execute(in_language(session, "print('next')", "echo next"), timeout=30)
    assert (done.outcome, lines(done)) == ("ok", ["next"])


@on("xeus")
def test_a_kernel_that_an_interrupt_ends_has_died(session):
    """Its kernelspec asks for SIGINT and it does not survive one, under jupyter_client no more than here."""
    running = session.submit("import time\nprint('on', flush=True)\ntime.sleep(60)")
    eventually(lambda: lines(running.refresh()) == ["on"], 30, "it runs")
    session.interrupt()
    assert running.wait(10).outcome == "died"


@on("ipykernel")
def test_i18_interrupt_of_an_await(session):
    running = session.submit("import asyncio\nprint('on', flush=True)\nawait asyncio.sleep(30)")
    eventually(lambda: lines(running.refresh()) == ["on"], 30, "it runs")
    session.interrupt()
    assert running.wait(20).outcome == "interrupted"


@on(*EVERY)
def test_death_is_seen_at_once_and_the_next_incarnation_starts_when_accepted(session):
    code = in_language(session, "import time\nprint('on', flush=True)\ntime.sleep(60)", "echo on; sleep 60")
    running = session.submit(code)
    eventually(lambda: lines(running.refresh()) == ["on"], 30, "it runs")
    kill(kernel_of(session))
    running.wait(10)
    assert running.outcome == "died"
    assert running.json()["evidence"]["signal"] == signal.SIGKILL
    again = in_language(session, "print('again')", "echo again")
    with pytest.raises(HeapLost):
        session.execute(again)
    done = session.execute(again, accept=True, timeout=40)
    assert (done.outcome, lines(done)) == ("ok", ["again"])
    assert session.row()["incarnation"] == 2


@on(*EVERY)
def test_restart(session):
    session.execute(in_language(session, "x = 1", "x=1"), timeout=30)
    assert session.restart() == 2
    done = session.execute(in_language(session, "print('x' in globals())", "echo ${x:-False}"), timeout=30)
    assert lines(done) == ["False"]


@on(*EVERY)
def test_an_adopted_kernel_in_mid_cell_is_heard_to_the_end(session, tmp_path):
    go = tmp_path / "go"
    python = f"print('one', flush=True)\n{waits(go)}print('two')"
    bash = f"echo one; while [ ! -e {go} ]; do sleep 0.05; done; echo two"
    running = session.submit(in_language(session, python, bash))
    eventually(
        lambda: running.refresh().text == "one\n", 20, "its first line is complete"
    )  # its end may come apart
    kernel = kernel_of(session)
    replace_supervisor(session)
    assert kernel_of(session) == kernel
    go.touch()
    running.wait(20)
    # `unknown` where the kernel's sockets send the reply to the supervisor that is gone; never a guess
    assert running.outcome in ("ok", "unknown")
    assert lines(running) == ["one", "two"]
    assert [gap["reason"] for gap in running.gaps] == ["unsupervised"]
    assert session.row()["incarnation"] == 1
    done = session.execute(in_language(session, "print('next')", "echo next"), timeout=30)
    assert (done.outcome, lines(done), done.gaps) == ("ok", ["next"], [])


@on("ipykernel")
def test_the_reply_of_an_adopted_ipykernel_is_not_lost(session, tmp_path):
    go = tmp_path / "go"
    code = f"print('on', flush=True)\n{waits(go)}1 / 0"
    running = session.submit(code)
    eventually(lambda: lines(running.refresh())[:1] == ["on"], 30, "it runs")
    replace_supervisor(session)
    go.touch()
    running.wait(20)
    assert (running.outcome, running.error.ename) == ("error", "ZeroDivisionError")
    assert running.json()["evidence"]["reply"] == "error"


@on(*PYTHON)
def test_input(session):
    with stock_client(session) as client:
        msg_id = client.execute("print('got', input('who? '))", allow_stdin=True)
        asked = client.get_stdin_msg(timeout=20)
        assert asked["content"]["prompt"] == "who? "
        assert session.row()["state"] == "blocked"
        client.input("ada")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert text_of(until_idle(client, msg_id)) == "got ada\n"
    running = session.submit("print('got', input('again? '))")
    eventually(lambda: running.refresh().status == "blocked", 30, "it asks")
    session.answer("ben")
    assert lines(running.wait(10)) == ["got ben"]


@on(*PYTHON)
def test_a_child_that_reads_the_terminal(session):
    running = session.submit(
        "import subprocess\nsubprocess.run(['bash', '-c', 'read t </dev/tty; echo got $t'])"
    )
    eventually(lambda: running.refresh().status == "blocked", 30, "the child asks")
    assert running.blocked["on"] == "terminal"
    session.answer("ada")
    assert running.wait(10).outcome == "ok"


@on("bash")
def test_status_says_that_names_are_not_to_be_had(session):
    session.execute("x=1", timeout=30)
    report = krt_json("status", "s")
    assert [cell["truth"] for cell in report["cells"]] == ["live"]
    assert report["names"] == []
    assert "cell" in report["why"]["names"]
    assert "names" in krt("status", "s").stdout


@on("ipykernel")
def test_a_kernel_that_offers_encryption_is_met_encrypted(session):
    record = json.loads((Path(session.coroutines.file.directory) / "kernel.json").read_text())
    assert record["connection"]["curve_publickey"]
    assert run_ok(session)


def run_ok(session: kr.Session) -> bool:
    with stock_client(session) as client:
        return bool(run(client, "1", timeout=30)["content"]["status"] == "ok")


@on("ipykernel")
def test_two_clients_one_error_m42(session, tmp_path):
    gate = tmp_path / "gate"
    with stock_client(session, "ada") as ada, stock_client(session, "ben") as ben:
        failing = ada.execute(f"print('on', flush=True)\n{waits(gate)}1 / 0")
        until(ben, failing, lambda m: m["msg_type"] == "stream")
        of_ben = ben.execute("print('ben runs')")
        of_ada = ada.execute("1")
        eventually(lambda: len(executions(session)) == 3, what="all are queued")
        gate.touch()
        assert reply_to(ada, failing)["content"]["status"] == "error"
        assert reply_to(ben, of_ben)["content"]["status"] == "ok"
        assert reply_to(ada, of_ada)["content"]["status"] == "aborted"
