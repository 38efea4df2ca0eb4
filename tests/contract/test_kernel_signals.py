"""A real kernel of ours: interrupts end cells, at once, and never cost a reply."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernel_runtime.supervisor.world import looks, procfs, syscalls
from tests.contract.kernel_harness import LiveKernel, one, reply, text
from tests.support import eventually

COMPUTES: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    kernel = LiveKernel(tmp_path_factory.mktemp("k"))
    kernel.run("1 / 0")  # loads what formats tracebacks, so that no interrupt has to wait for it
    yield kernel
    kernel.close()


def _started(kernel: LiveKernel, msg_id: str) -> bool:
    kernel.collect()
    return text(kernel.of(msg_id)) != ""


def _interrupted(
    kernel: LiveKernel, code: str, waits_in: frozenset[str], child: list[str] | None = None
) -> dict[str, Any]:
    """The reply of a cell that would take ten minutes or for ever, interrupted in that system call, once
    that child runs.
    """
    msg_id = kernel.submit("print('on', flush=True)\n" + code)
    eventually(lambda: _started(kernel, msg_id), what="the cell to start")
    eventually(lambda: _is_in(kernel.process.pid, waits_in), what=f"the kernel in one of {sorted(waits_in)}")
    if child is not None:
        pid = kernel.process.pid
        eventually(lambda: child in map(procfs.command, looks.descendants(pid)), what=f"{child} runs")
    kernel.signal(signal.SIGINT)
    seen = kernel.wait(msg_id)
    assert one(seen, "execute_reply").metadata["krt"]["sigint_ns"] is not None
    assert text(kernel.run("print('next')")) == "next\n"
    return reply(seen)


def _is_in(pid: int, calls: frozenset[str]) -> bool:
    """Whether its main thread is; in none of them if there are none: it computes."""
    found = looks.thread(pid, pid)
    assert found is not None
    if not calls:
        return found.state == "R"
    return found.call is not None and found.call.name in calls


def test_i18_await_ends_long_before_it_is_done(kernel):
    code = "import asyncio; await asyncio.sleep(600)"
    assert _interrupted(kernel, code, syscalls.EPOLLS)["status"] == "error"


def test_sleep_and_busy_loop(kernel):
    asleep = _interrupted(kernel, "import time; time.sleep(600)", syscalls.SLEEPS)
    assert asleep["ename"] == "KeyboardInterrupt"
    assert _interrupted(kernel, "while True: pass", COMPUTES)["ename"] == "KeyboardInterrupt"


def test_a_busy_loop_after_an_await(kernel):
    answer = _interrupted(kernel, "import asyncio; await asyncio.sleep(0)\nwhile True: pass", COMPUTES)
    assert answer["ename"] == "KeyboardInterrupt"


def test_i20_os_system_leaves_evidence(kernel):
    # a shell that has not started the command yet notes an interrupt and goes on (dash 0.5)
    _interrupted(kernel, "import os; os.system('sleep 600')", frozenset(("wait4",)), ["sleep", "600"])


def test_i24_input(kernel):
    assert _interrupted(kernel, "input('?')", syscalls.POLLS)["ename"] == "KeyboardInterrupt"


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
