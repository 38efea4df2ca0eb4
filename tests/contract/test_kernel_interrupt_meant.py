"""A real kernel of ours: an interrupt that names an execution hits that one, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.kernel_harness import LiveKernel, reply, text
from tests.support import eventually

WAITS = "import os, time\nprint('on', flush=True)\nwhile not os.path.exists({path!r}): time.sleep(0.01)"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    kernel = LiveKernel(tmp_path_factory.mktemp("k"))
    yield kernel
    kernel.close()


def begun(kernel: LiveKernel, path: Path) -> str:
    """A cell that runs until that file is there."""
    msg_id = kernel.submit(WAITS.format(path=str(path)))

    def printed() -> bool:
        kernel.collect()
        return text(kernel.of(msg_id)) == "on\n"

    eventually(printed, what="its own code runs")
    return msg_id


def interrupt(kernel: LiveKernel, **content: Any) -> dict[str, Any]:
    """What the control thread answers, when it has done what it does."""
    kernel.request("interrupt_request", content, channel="control")
    control = kernel.sockets["control"]
    while True:
        assert control.poll(30_000), kernel.said()
        message = kernel.signer.split(control.recv_multipart())
        if message.header.msg_type == "interrupt_reply":
            return message.content_dict()


def test_the_cell_after_the_one_that_is_meant_goes_on(kernel: LiveKernel, tmp_path: Path) -> None:
    """The control thread may hear an interrupt only when the cell it was sent for has ended and the next one
    runs. Without a name it signals whatever runs. By its name it hits nobody then, and the reply says so.
    """
    meant = kernel.submit("1")
    kernel.wait(meant)
    other = begun(kernel, tmp_path / "go")
    assert interrupt(kernel, execution=meant) == {"status": "ok", "interrupted": False}
    (tmp_path / "go").touch()
    assert reply(kernel.wait(other))["status"] == "ok"


def test_the_one_that_is_meant_is_interrupted(kernel: LiveKernel, tmp_path: Path) -> None:
    """Its name, or none (a stock client's kernel hears none), ends the cell that runs."""
    for name_it in (True, False):
        meant = begun(kernel, tmp_path / "never")
        told = interrupt(kernel, **({"execution": meant} if name_it else {}))
        assert told == {"status": "ok"}
        assert reply(kernel.wait(meant))["ename"] == "KeyboardInterrupt"


def test_what_is_in_the_way_of_the_one_that_is_meant_is_interrupted(
    kernel: LiveKernel, tmp_path: Path
) -> None:
    """One that has not begun is held up by what runs: a widget's handler, say. That is what is meant then."""
    registered = (
        "def opened(comm, message):\n"
        "    print('handler', flush=True)\n"
        "    while True: time.sleep(0.01)\n"
        "import time\n"
        "get_ipython().kernel.comm_manager.register_target('t', opened)"
    )
    kernel.run(registered)
    comm = kernel.request("comm_open", {"comm_id": "c", "target_name": "t", "data": {}})

    def handled() -> bool:
        kernel.collect()
        return text(kernel.of(comm)) == "handler\n"

    eventually(handled, what="the handler runs")
    meant = kernel.submit("'mine'")
    assert interrupt(kernel, execution=meant) == {"status": "ok"}
    kernel.wait(comm)
    assert reply(kernel.wait(meant))["status"] == "ok"
