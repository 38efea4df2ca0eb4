"""Whoever answers at a front door, kernel or supervisor, is one kernel to its clients."""

from __future__ import annotations

from jupyter_client.blocking.client import BlockingKernelClient

from tests.contract.stock import reply_to, running_session, stock_client, until_idle


def test_kernel_and_supervisor_speak_under_one_header_session() -> None:
    """JupyterLab's client library knows a restarted kernel by its header session.

    At a message of another one it drops what it has received and not yet looked at. The text of a stream is
    put together by the supervisor; under a session of its own, quick cells lost their outputs in every page
    that takes them from the websocket.
    """
    with running_session() as session, stock_client(session) as client:
        first = _voices(client)
        assert len(first) == 1
        session.restart()
        client.wait_for_ready(timeout=30)
        second = _voices(client)
        assert len(second) == 1
        assert first != second


def _voices(client: BlockingKernelClient) -> set[str]:
    """Under what sessions everything is said of a cell and of what the supervisor answers itself."""
    run = client.execute("print('said')")
    said = [*until_idle(client, run), reply_to(client, run)]
    asked = client.kernel_info()
    said += [*until_idle(client, asked), reply_to(client, asked)]
    assert {"stream", "execute_reply", "kernel_info_reply"} <= {message["msg_type"] for message in said}
    return {message["header"]["session"] for message in said}
