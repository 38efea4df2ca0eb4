"""What the supervisor asks the kernel on the control channel, answered while a cell runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.kernel_harness import LiveKernel
from tests.support import eventually


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    live = LiveKernel(tmp_path_factory.mktemp("k"))
    yield live
    live.close()


def ask(kernel: LiveKernel, op: str, **args: Any) -> dict[str, Any]:
    """The content of the answer."""
    asked = kernel.request("krt_probe_request", {**args, "op": op}, channel="control")
    while kernel.sockets["control"].poll(30_000):
        message = kernel.signer.split(kernel.sockets["control"].recv_multipart())
        if message.parent().msg_id == asked:
            assert message.header.msg_type == "krt_probe_reply"
            return message.content_dict()
    raise AssertionError(f"no answer to {op}: {kernel.said()[-1000:]}")


def test_the_stack_of_a_cell_that_runs(kernel: LiveKernel) -> None:
    """Right: the cell's own line is among the frames, innermost first, without waiting for the cell."""
    cell = kernel.submit("import time\ndef wait_here():\n    time.sleep(60)\nwait_here()")
    eventually(
        lambda: any(
            frame["function"] == "wait_here" for frame in ask(kernel, "stack")["result"]["frames"][:1]
        ),
        what="the cell sleeps",
    )
    kernel.signal(signal.SIGINT)
    kernel.wait(cell)


def test_an_expression_is_evaluated_while_a_cell_runs(kernel: LiveKernel) -> None:
    kernel.run("answer = 41")
    cell = kernel.submit("import time; began = True; time.sleep(60)")
    eventually(
        lambda: ask(kernel, "evaluate", expression="began and answer + 1")["result"].get("value") == 42,
        what="the cell has begun, and the expression is answered",
    )
    kernel.signal(signal.SIGINT)
    kernel.wait(cell)


@pytest.mark.parametrize(
    "expression, ename",
    [("1/0", "ZeroDivisionError"), ("nothing_of_this_name", "NameError")],
)
def test_what_an_expression_raises_is_its_answer(kernel: LiveKernel, expression: str, ename: str) -> None:
    assert ask(kernel, "evaluate", expression=expression)["result"]["error"]["ename"] == ename


@pytest.mark.parametrize("expression", ["x = 1", "1 +", "import os"])
def test_what_is_no_expression_is_refused(kernel: LiveKernel, expression: str) -> None:
    answer = ask(kernel, "evaluate", expression=expression)
    assert (answer["ok"], answer["error"]["ename"]) == (False, "SyntaxError")


def test_an_expression_that_takes_too_long(kernel: LiveKernel) -> None:
    """Right: an answer when its time is up, the thread ends, and the next question has its answer."""
    kernel.run("import threading")
    answer = ask(kernel, "evaluate", expression="[0 for i in iter(int, 1)]", timeout=0.2)
    assert answer["result"]["error"]["ename"] == "TimeoutError"
    count = "sum(t.name == 'krt-evaluate' for t in threading.enumerate())"
    eventually(
        lambda: ask(kernel, "evaluate", expression=count)["result"]["value"] == 1,
        what="the late thread ended, and only the one that counts is there",
    )


def test_an_expression_binds_nothing(kernel: LiveKernel) -> None:
    """Right: a walrus in it leaves no name behind."""
    assert ask(kernel, "evaluate", expression="(walrus := 3)")["result"]["value"] == 3
    assert ask(kernel, "evaluate", expression="'walrus' in globals()")["result"]["value"] is False


@pytest.mark.parametrize("expression", ["float('nan')", "10**30", "object()", "{1: 2}", "{1, 2}"])
def test_what_json_cannot_hold_is_shown(kernel: LiveKernel, expression: str) -> None:
    result = ask(kernel, "evaluate", expression=expression)["result"]
    assert "value" not in result
    assert result["repr"]


def test_an_unknown_question(kernel: LiveKernel) -> None:
    answer = ask(kernel, "teleport")
    assert (answer["ok"], answer["error"]["ename"]) == (False, "KeyError")


def test_a_request_that_comes_while_the_heap_is_looked_at(kernel: LiveKernel) -> None:
    """Mechanism: a ZeroMQ descriptor tells of a message once. Whoever asks the socket in between takes that
    signal from the stream that waits for it, and the request lies there until another one comes.

    Right: an idle look that ends because somebody wants the kernel leaves it to hear what that is.
    """
    kernel.run(
        "import time\n"
        "inside = get_ipython().kernel\n"
        "def look():\n"
        "    global looking\n"
        "    looking, until = True, time.monotonic() + 30\n"
        "    while not inside.observer._is_wanted() and time.monotonic() < until:\n"
        "        time.sleep(0.001)\n"
        "inside.io_loop.call_later(0, look)"
    )
    eventually(
        lambda: ask(kernel, "evaluate", expression="'looking' in globals()")["result"].get("value"),
        what="it looks",
    )
    kernel.run("'heard'", timeout=20)
