"""A connected stock client while kernels and supervisors come and go."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import kernel_runtime as kr
from tests.contract.stock import (
    executions,
    kernel_of,
    kill,
    replace_supervisor,
    reply_to,
    run,
    running_session,
    stock_client,
    supervisor_of,
    text_of,
    until,
    until_idle,
)
from tests.support import eventually


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with running_session() as opened:
        yield opened


def test_the_next_incarnation_has_the_same_door(session):
    with stock_client(session) as client:
        run(client, "x = 1")
        session.restart()
        msg_id = client.execute("print('x' in globals())")
        assert reply_to(client, msg_id, 30)["content"]["ename"] == "HeapLost"
        msg_id = client.execute("print('x' in globals())")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert text_of(until_idle(client, msg_id)) == "False\n"


def test_a_cell_outlives_its_supervisor_and_its_client_gets_output_and_reply(session):
    code = "import time\nfor i in range(40): print('line', i, flush=True); time.sleep(0.1)\n'done'"
    with stock_client(session) as client:
        msg_id = client.execute(code)
        seen = until(client, msg_id, lambda m: m["msg_type"] == "stream")
        replace_supervisor(session)
        reply = reply_to(client, msg_id, 30)
        seen += until_idle(client, msg_id)
        assert reply["content"]["status"] == "ok"
        assert reply["content"]["execution_count"] == 1
        shown = [int(line.split()[1]) for line in text_of(seen).splitlines()]
        # in order and none twice; what was in the killed supervisor's hands is in the record
        assert shown == sorted(set(shown))
        assert shown[-1] == 39
        assert len(shown) >= 38
        assert [m["msg_type"] for m in seen].count("execute_result") == 1
        # and goes on with the new one
        assert run(client, "i")["content"]["status"] == "ok"
    recorded = session.execution(executions(session)[0].execution_id)
    assert recorded.outputs[0]["text"] == "".join(f"line {i}\n" for i in range(40))


def test_a_cell_that_ended_while_no_supervisor_was_there(session, tmp_path):
    flag = tmp_path / "ended"
    code = (
        "import time\nprint('on', flush=True)\ntime.sleep(1)\nprint('unheard')\n"
        f"open({str(flag)!r}, 'w').close()"
    )
    with stock_client(session) as client:
        msg_id = client.execute(code)
        until(client, msg_id, lambda m: m["msg_type"] == "stream")
        kill(supervisor_of(session))
        eventually(flag.exists, 30, "the cell ended alone")
        with kr.attach(session.name, principal="agent:next"):
            assert reply_to(client, msg_id, 20)["content"]["status"] == "ok"
            assert "unheard" in text_of(until_idle(client, msg_id))


def test_a_question_outlives_its_supervisor(session):
    with stock_client(session) as client:
        msg_id = client.execute("print('got', input('? '))", allow_stdin=True)
        assert client.get_stdin_msg(timeout=20)["content"]["prompt"] == "? "
        replace_supervisor(session)
        assert session.row()["state"] == "blocked"
        client.input("after all")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert text_of(until_idle(client, msg_id)) == "got after all\n"


def test_queued_cells_outlive_their_supervisor_and_are_answered(session):
    with stock_client(session) as client:
        first = client.execute("import time\nprint('on', flush=True)\ntime.sleep(2)")
        second = client.execute("print('second')")
        until(client, first, lambda m: m["msg_type"] == "stream")
        eventually(lambda: len(executions(session)) == 2, what="both are on record")
        replace_supervisor(session)
        assert reply_to(client, first)["content"]["status"] == "ok"
        assert reply_to(client, second)["content"]["status"] == "ok"
        assert text_of(until_idle(client, second)) == "second\n"
    assert [row.outcome for row in executions(session)] == ["ok", "ok"]


def test_supervisor_and_kernel_killed_at_once(session):
    with stock_client(session) as client:
        msg_id = client.execute("import time\nprint('on', flush=True)\ntime.sleep(60)")
        until(client, msg_id, lambda m: m["msg_type"] == "stream")
        kernel, supervisor = kernel_of(session), supervisor_of(session)
        kill(supervisor)
        kill(kernel)
        assert session.row()["state"] == "dead"
        reply = reply_to(client, msg_id, 20)
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KernelDied")
    assert [row.outcome for row in executions(session)] == ["died"]


def test_a_supervisor_told_to_leave_leaves_the_client_connected(session):
    with stock_client(session) as client:
        run(client, "x = 1")
        replace_supervisor(session, signal.SIGTERM)
        msg_id = client.execute("print(x)")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert text_of(until_idle(client, msg_id)) == "1\n"
