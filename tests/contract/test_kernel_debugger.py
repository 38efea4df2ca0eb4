"""The debugger starts in a session's kernel, and never holds up its control channel."""

from __future__ import annotations

import asyncio
import threading
from itertools import count
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from kernel_runtime.kernel import debug_line
from kernel_runtime.kernel.debug_line import DebugLine, one_at_a_time
from tests.contract.stock import reply_to, running_session, stock_client
from tests.support import eventually

_numbers = count(1)
_START = {"clientID": "test", "adapterID": "python", "pathFormat": "path", "linesStartAt1": True}


def ask(client: BlockingKernelClient, command: str, **arguments: Any) -> dict[str, Any]:
    """The debugger's answer to one request on the control channel."""
    content = {"type": "request", "command": command, "seq": next(_numbers), "arguments": arguments}
    message = client.session.msg("debug_request", content)
    client.control_channel.send(message)

    def answer() -> dict[str, Any] | None:
        reply: dict[str, Any] = client.get_control_msg(timeout=20)
        return reply["content"] if reply["parent_header"]["msg_id"] == message["header"]["msg_id"] else None

    found = eventually(answer, 30, f"an answer to {command}")
    assert found is not None
    return found


def test_the_debugger_starts_and_attaches() -> None:
    with running_session() as session:
        session.execute("x = 1")
        with stock_client(session) as client:
            assert ask(client, "debugInfo")["body"]["isStarted"] is False
            assert ask(client, "initialize", **_START)["success"] is True
            assert ask(client, "attach")["success"] is True
            assert ask(client, "debugInfo")["body"]["isStarted"] is True
        assert session.execute("x + 1").text == "2"


def test_two_requests_at_a_time_each_get_their_own_answer() -> None:
    """Mechanism: both wait on debugpy's one queue of answers, and without turns the first takes either."""

    class Debugger:
        async def _forward_message(self, message: str) -> str:
            self.asked = message
            await asyncio.sleep(0)
            return f"to {self.asked}"

    async def ask_two() -> list[str]:
        debugger = Debugger()
        one_at_a_time(debugger)
        return list(await asyncio.gather(*map(debugger._forward_message, ["threads", "source"])))

    assert asyncio.run(ask_two()) == ["to threads", "to source"]


@pytest.mark.parametrize("code, status", [("pass", "ok"), ("1 / 0", "error")])
def test_the_line_says_how_its_code_ended(code: str, status: str) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        line = DebugLine(loop)
        line.send(None, "execute_request", {"code": code, "silent": True}, None, b"")
        assert line.recv(None)[1]["content"]["status"] == status
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_the_line_waits_for_a_busy_thread_no_longer_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug_line, "PATIENCE", 0.05)
    loop = asyncio.new_event_loop()  # which nobody runs
    ran: list[int] = []
    line = DebugLine(loop)
    line.send(None, "execute_request", {"code": "ran.append(1)", "silent": True})
    assert line.recv(None)[1]["content"]["status"] == "aborted"
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert ran == []


def test_a_stop_is_told_whatever_the_supervisor_asks_meanwhile() -> None:
    """An event is published under the last request on the control channel. Where that was a question of the
    supervisor's, whose answers nobody else is told, no page heard that a cell had stopped. It is published
    under the last request to the debugger.
    """
    code = "stopped = 'here'\nstopped += ', and went on'\nprint(stopped)"
    with running_session() as session, stock_client(session) as client:
        assert ask(client, "initialize", **_START)["success"] is True
        assert ask(client, "attach")["success"] is True
        path = ask(client, "dumpCell", code=code)["body"]["sourcePath"]
        points = {"source": {"path": path}, "breakpoints": [{"line": 2}], "sourceModified": False}
        assert ask(client, "setBreakpoints", **points)["body"]["breakpoints"][0]["verified"]
        names = [row["name"] for row in session.status().resources if row["kind"] == "env"]
        assert "environment" in names, "the kernel was asked"
        ran = client.execute(code)

        def stops() -> dict[str, Any] | None:
            message: dict[str, Any] = client.get_iopub_msg(timeout=60)
            event = message["content"] if message["msg_type"] == "debug_event" else {}
            return message if event.get("event") == "stopped" else None

        stop = eventually(stops, 60, "word of the stop")
        assert stop is not None
        assert stop["parent_header"]["session"] == client.session.session
        ask(client, "continue", threadId=stop["content"]["body"]["threadId"])
        assert reply_to(client, ran)["content"]["status"] == "ok"
