"""One stock client, unmodified, on a session's front door: every request of the protocol."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

import kernel_runtime as kr
from tests.contract.stock import (
    executions,
    is_idle,
    kinds,
    reply_to,
    run,
    running_session,
    stock_client,
    text_of,
    until,
    until_idle,
)
from tests.support import eventually, waits


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with running_session() as opened:
        yield opened


def test_a_cell_gets_its_reply_and_all_of_its_iopub_in_order(session):
    with stock_client(session) as client:
        msg_id = client.execute("print('one'); 40 + 2")
        reply = reply_to(client, msg_id)
        messages = until_idle(client, msg_id)
    assert reply["content"]["status"] == "ok"
    assert reply["content"]["execution_count"] == 1
    assert reply["parent_header"]["session"] == client.session.session
    assert kinds(messages) == ["status:busy", "execute_input", "stream", "execute_result", "status:idle"]
    assert text_of(messages) == "one\n"
    assert messages[3]["content"]["data"]["text/plain"] == "42"


def test_an_error_has_its_traceback_in_the_reply_and_on_iopub(session):
    with stock_client(session) as client:
        msg_id = client.execute("1 / 0")
        reply = reply_to(client, msg_id)
        messages = until_idle(client, msg_id)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "ZeroDivisionError")
    assert kinds(messages) == ["status:busy", "execute_input", "error", "status:idle"]
    assert messages[2]["content"]["traceback"]


def test_user_expressions_and_silent_executions(session):
    with stock_client(session) as client:
        run(client, "x = 7", silent=True)
        reply = run(client, "", user_expressions={"seven": "x", "none": "y"})
    expressions = reply["content"]["user_expressions"]
    assert expressions["seven"]["data"]["text/plain"] == "7"
    assert expressions["none"]["status"] == "error"


def test_cells_of_a_stock_client_are_journaled_with_its_user_and_shared_with_the_sdk(session):
    with stock_client(session, username="ada") as client:
        run(client, "x = 6")
        assert session.execute("x * 7").text == "42"
        session.execute("y = 'from the SDK'")
        msg_id = client.execute("y")
        messages = until_idle(client, msg_id)
    assert messages[2]["content"]["data"]["text/plain"] == "'from the SDK'"
    rows = [(row.principal, row.outcome) for row in executions(session)]
    assert rows == [("human:ada", "ok"), ("agent:host", "ok"), ("agent:host", "ok"), ("human:ada", "ok")]
    shown = session.execution(executions(session)[3].execution_id)
    assert shown.text == "'from the SDK'"


def test_what_the_sdk_runs_is_seen_by_a_stock_client(session):
    with stock_client(session) as client:
        done = session.execute("print('seen')")
        msg_id = f"krt-exec-{done.execution_id}"
        messages = until_idle(client, msg_id)
    assert kinds(messages) == ["status:busy", "execute_input", "stream", "status:idle"]
    assert messages[1]["content"]["code"] == "print('seen')"


@pytest.mark.parametrize("ask, password", [("input", False), ("getpass.getpass", True)])
def test_input_is_asked_of_the_client_that_runs_the_cell(session, ask, password, krt_home):
    with stock_client(session) as client:
        msg_id = client.execute(f"import getpass\nprint(len({ask}('who? ')))", allow_stdin=True)
        asked = client.get_stdin_msg(timeout=20)
        assert asked["msg_type"] == "input_request"
        assert asked["content"] == {"prompt": "who? ", "password": password}
        assert asked["parent_header"]["msg_id"] == msg_id
        assert session.row()["state"] == "blocked"
        client.input("s3cr3t-Grete")
        assert reply_to(client, msg_id)["content"]["status"] == "ok"
        assert text_of(until_idle(client, msg_id)) == "12\n"
    session.stop()
    holds = [p for p in krt_home.rglob("*") if p.is_file() and b"s3cr3t-Grete" in p.read_bytes()]
    assert bool(holds) != password


def test_input_without_allow_stdin_is_an_error(session):
    with stock_client(session) as client:
        reply = run(client, "input()", allow_stdin=False)
    assert reply["content"]["ename"] == "StdinNotImplementedError"


def test_history_comes_from_the_journal_across_incarnations(session):
    with stock_client(session) as client:
        run(client, "a = 1")
        run(client, "bb = 2")
        run(client, "hidden = 0", store_history=False)
        client.shutdown(restart=True)
        eventually(lambda: session.row()["incarnation"] == 2, 30, "the second incarnation")
        run(client, "c = 3")

        def history(**how: Any) -> Any:
            return client.history(raw=True, output=False, reply=True, timeout=30, **how)["content"]["history"]

        assert history(hist_access_type="tail", n=10) == [[1, 1, "a = 1"], [1, 2, "bb = 2"], [2, 1, "c = 3"]]
        assert history(hist_access_type="tail", n=1) == [[2, 1, "c = 3"]]
        assert history(hist_access_type="search", pattern="b*", n=5) == [[1, 2, "bb = 2"]]
        assert history(hist_access_type="range", session=0, start=1, stop=9) == [[2, 1, "c = 3"]]
        assert history(hist_access_type="range", session=-1, start=2, stop=3) == [[1, 2, "bb = 2"]]
        assert history(hist_access_type="range", session=1, start=1, stop=2) == [[1, 1, "a = 1"]]
        pairs = client.history(hist_access_type="tail", n=1, output=True, reply=True, timeout=30)
        assert pairs["content"]["history"] == [[2, 1, ["c = 3", None]]]


def test_what_only_the_kernel_knows_is_asked_of_it(session):
    with stock_client(session) as client:
        run(client, "some_long_name = 1")
        done = client.complete("some_lo", reply=True, timeout=20)["content"]
        assert "some_long_name" in done["matches"]
        looked = client.inspect("some_long_name", reply=True, timeout=20)["content"]
        assert looked["found"]
        unfinished = reply_to(client, client.is_complete("for i in x:"))["content"]
        assert unfinished["status"] == "incomplete"
        assert client.comm_info(reply=True, timeout=20)["content"]["comms"] == {}


def test_comms_open_and_talk_both_ways(session):
    with stock_client(session) as client:
        run(
            client,
            "def opened(comm, message):\n"
            "    comm.on_msg(lambda m: comm.send({'echo': m['content']['data']}))\n"
            "    comm.on_close(lambda m: print('closed'))\n"
            "get_ipython().kernel.comm_manager.register_target('ours', opened)",
        )
        send = client.session.send
        shell = client.shell_channel.socket
        send(shell, "comm_open", {"comm_id": "c1", "target_name": "ours", "data": {}})
        said = client.session.msg("comm_msg", {"comm_id": "c1", "data": {"n": 3}})
        client.shell_channel.send(said)
        echoed = until_idle(client, said["header"]["msg_id"])
        assert [m["content"]["data"] for m in echoed if m["msg_type"] == "comm_msg"] == [{"echo": {"n": 3}}]
        closing = client.session.msg("comm_close", {"comm_id": "c1", "data": {}})
        client.shell_channel.send(closing)
        assert text_of(until_idle(client, closing["header"]["msg_id"])) == "closed\n"

        msg_id = client.execute(
            "from comm import create_comm\nc = create_comm('theirs', {'a': 1}); c.send({'b': 2})"
        )
        messages = until_idle(client, msg_id)
        talk = [(m["msg_type"], m["content"]["data"]) for m in messages if m["msg_type"].startswith("comm")]
        assert talk == [("comm_open", {"a": 1}), ("comm_msg", {"b": 2})]


def test_interrupt_request_on_control(session):
    with stock_client(session) as client:
        msg_id = client.execute("import time\nprint('on', flush=True)\ntime.sleep(60)")
        until(client, msg_id, lambda m: m["msg_type"] == "stream")
        request = client.session.msg("interrupt_request", {})
        client.control_channel.send(request)
        answer = client.get_control_msg(timeout=30)
        assert (answer["msg_type"], answer["content"]["status"]) == ("interrupt_reply", "ok")
        assert reply_to(client, msg_id)["content"]["ename"] == "KeyboardInterrupt"
        assert run(client, "1")["content"]["status"] == "ok"
    assert [row.outcome for row in executions(session)] == ["interrupted", "ok"]


@pytest.mark.parametrize("channel", ["control", "shell"])
def test_shutdown_ends_the_kernel_and_keeps_the_session(session, channel):
    with stock_client(session) as client:
        run(client, "x = 1")
        request = client.session.msg("shutdown_request", {"restart": False})
        getattr(client, f"{channel}_channel").send(request)
        answer = getattr(client, f"get_{channel}_msg")(timeout=20)
        assert (answer["msg_type"], answer["content"]["status"]) == ("shutdown_reply", "ok")
        assert session.row()["state"] == "stopped"
        # whoever stopped it knows; its next cell starts the next incarnation
        assert run(client, "'x' in globals()", timeout=30)["content"]["status"] == "ok"
    assert session.row()["incarnation"] == 2


def test_shutdown_with_restart_is_the_next_incarnation_for_the_same_client(session):
    with stock_client(session) as client:
        run(client, "x = 1")
        reply = client.shutdown(restart=True, reply=True, timeout=30)
        assert reply["content"] == {"status": "ok", "restart": True}
        assert session.row()["incarnation"] == 2
        msg_id = client.execute("print('x' in globals())")
        assert text_of(until_idle(client, msg_id)) == "False\n"


def test_kernel_info_is_answered_while_the_kernel_is_busy(session, tmp_path):
    gate = tmp_path / "gate"
    with stock_client(session) as client:
        msg_id = client.execute(f"print('on', flush=True)\n{waits(gate)}")
        until(client, msg_id, lambda m: m["msg_type"] == "stream")
        info = client.kernel_info(reply=True, timeout=20)["content"]
        assert info["language_info"]["name"] == "python"
        # executions are one queue here: what is not given is not offered
        assert "kernel subshells" not in info.get("supported_features", [])
        with stock_client(session) as second:  # wait_for_ready on a busy kernel
            assert second.is_alive()
        gate.touch()
        reply_to(client, msg_id)


def test_subshells_are_declined_not_ignored(session):
    with stock_client(session) as client:
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        answer = client.get_control_msg(timeout=30)
        assert answer["msg_type"] == "create_subshell_reply"
        assert (answer["content"]["status"], answer["content"]["ename"]) == ("error", "NotOffered")
        request = client.session.msg("execute_request", {"code": "1"})
        request["header"]["subshell_id"] = "there-is-none"
        client.shell_channel.send(request)
        assert reply_to(client, request["header"]["msg_id"])["content"]["ename"] == "NotOffered"
        assert run(client, "1")["content"]["status"] == "ok"


def test_code_runs_by_execute_request_on_shell_only(session):
    with stock_client(session) as client:
        request = client.session.msg("execute_request", {"code": "leaked = 1"})
        client.control_channel.send(request)
        answer = client.get_control_msg(timeout=30)
        assert (answer["msg_type"], answer["content"]["ename"]) == ("execute_reply", "WrongChannel")
        client.shell_channel.send(client.session.msg("apply_request", {}))
        assert client.get_shell_msg(timeout=30)["content"]["ename"] == "NotOffered"
        assert run(client, "leaked")["content"]["ename"] == "NameError"


def test_connect_request_tells_the_front_door_not_the_kernel(session):
    with stock_client(session) as client:
        client.shell_channel.send(client.session.msg("connect_request", {}))
        answer = client.get_shell_msg(timeout=30)["content"]
    assert answer["shell_port"] == client.shell_port
    assert answer["iopub_port"] == client.iopub_port


def test_the_same_request_twice_runs_once_and_is_answered_twice(session):
    with stock_client(session) as client:
        request = client.session.msg("execute_request", {"code": "n = globals().get('n', 0) + 1; n"})
        client.shell_channel.send(request)
        first = reply_to(client, request["header"]["msg_id"])
        client.shell_channel.send(request)
        second = reply_to(client, request["header"]["msg_id"])
        assert first["content"]["status"] == second["content"]["status"] == "ok"
        assert first["content"]["execution_count"] == second["content"]["execution_count"] == 1
        msg_id = client.execute("print(n)")
        assert text_of(until_idle(client, msg_id)) == "1\n"


def test_requests_during_the_start_of_a_kernel_wait_for_it(session):
    with stock_client(session) as client:
        client.shutdown(reply=True, timeout=20)
        # the cell starts the next kernel; what follows comes while that is starting
        cell = client.execute("early_name = 1")
        asked = client.complete("early_na")
        told = client.kernel_info()
        replies = {
            m["parent_header"]["msg_id"]: m for m in (client.get_shell_msg(timeout=30) for _ in range(3))
        }
    assert replies[cell]["content"]["status"] == "ok"
    assert "early_name" in replies[asked]["content"]["matches"]
    assert replies[told]["content"]["implementation"] == "ipython"


def test_what_a_client_asks_after_its_queued_cell_waits_its_turn(session):
    with stock_client(session) as client, stock_client(session) as other:
        blocker = other.execute("import time\nprint('on', flush=True)\ntime.sleep(1)")
        until(client, blocker, lambda m: m["msg_type"] == "stream")
        cell = client.execute("later_name = 1")
        asked = client.complete("later_na")
        replies = [client.get_shell_msg(timeout=20) for _ in range(2)]
    assert [m["parent_header"]["msg_id"] for m in replies] == [cell, asked]
    assert "later_name" in replies[1]["content"]["matches"]


def test_a_kernel_that_dies_answers_every_question_it_was_asked(session):
    with stock_client(session) as client:
        msg_id = client.execute(
            "import os, time\nprint('on', flush=True)\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)"
        )
        until(client, msg_id, lambda m: m["msg_type"] == "stream")
        asked = client.inspect("os")
        reply = reply_to(client, msg_id)
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KernelDied")
        messages = until(client, msg_id, is_idle)
        assert "error" in kinds(messages)
        assert reply_to(client, asked)["content"]["ename"] == "KernelDead"
        with pytest.raises(queue.Empty):
            client.get_shell_msg(timeout=0.2)
    assert executions(session)[0].outcome == "died"


def test_after_a_loss_a_stock_client_is_told_once_and_runs_on(session):
    with stock_client(session) as client:
        run(client, "precious = 1")
        run(client, "import os; os.kill(os.getpid(), 9)")
        msg_id = client.execute("precious")
        reply = reply_to(client, msg_id)
        messages = until_idle(client, msg_id)
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "HeapLost")
        assert kinds(messages) == ["status:busy", "stream", "error", "status:idle"]
        table = text_of(messages, "stderr")
        assert "precious = 1" in table
        assert "lost" in table
        # it has been told: the next cell runs, in the next incarnation
        assert run(client, "precious", timeout=30)["content"]["ename"] == "NameError"
        assert run(client, "precious = 2; precious")["content"]["status"] == "ok"
    assert [row.outcome for row in executions(session)] == ["ok", "died", "error", "ok"]
