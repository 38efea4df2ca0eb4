"""A real kernel of ours: interrupts end cells, at once, and never cost a reply."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tests.contract.kernel_harness import LiveKernel, one, reply, text, within
from tests.support import eventually


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    kernel = LiveKernel(tmp_path_factory.mktemp("k"))
    kernel.run("1 / 0")  # loads what formats tracebacks, so that no interrupt has to wait for it
    yield kernel
    kernel.close()


def _started(kernel: LiveKernel, msg_id: str) -> bool:
    kernel.collect()
    return text(kernel.of(msg_id)) != ""


def _interrupted(kernel: LiveKernel, code: str, seconds: float = 10.0):
    """The reply of a cell that would take half a minute or for ever, and does not."""
    msg_id = kernel.submit("print('on', flush=True)\n" + code)
    eventually(lambda: _started(kernel, msg_id), 10, "the cell to start")
    threading.Event().wait(0.1)  # past the print, into what it waits for
    started = time.monotonic()
    kernel.signal(signal.SIGINT)
    seen = kernel.wait(msg_id)
    within(started, seconds)
    assert one(seen, "execute_reply").metadata["krt"]["sigint_ns"] is not None
    assert text(kernel.run("print('next')")) == "next\n"
    return reply(seen)


def test_i18_await_ends_long_before_it_is_done(kernel):
    assert _interrupted(kernel, "import asyncio; await asyncio.sleep(30)")["status"] == "error"


def test_sleep_and_busy_loop(kernel):
    assert _interrupted(kernel, "import time; time.sleep(30)")["ename"] == "KeyboardInterrupt"
    assert _interrupted(kernel, "while True: pass")["ename"] == "KeyboardInterrupt"


def test_a_busy_loop_after_an_await(kernel):
    answer = _interrupted(kernel, "import asyncio; await asyncio.sleep(0)\nwhile True: pass")
    assert answer["ename"] == "KeyboardInterrupt"


def test_i20_os_system_leaves_evidence(kernel):
    _interrupted(kernel, "import os; os.system('sleep 60')")


def test_i24_input(kernel):
    assert _interrupted(kernel, "input('?')")["ename"] == "KeyboardInterrupt"


@pytest.mark.timeout(120)
def test_i22_near_the_end_there_is_always_a_reply(kernel):
    kernel.run("import time")
    pause = threading.Event()
    for n in range(80):
        msg_id = kernel.submit("time.sleep(.05)")
        pause.wait(0.040 + 0.050 * n / 80)
        kernel.signal(signal.SIGINT)
        answer = reply(kernel.wait(msg_id))
        assert answer["status"] == "ok" or answer["ename"] == "KeyboardInterrupt"


def test_a_signal_while_nothing_runs_changes_nothing(kernel):
    kernel.signal(signal.SIGINT)
    seen = kernel.run("1")
    assert reply(seen)["status"] == "ok"
