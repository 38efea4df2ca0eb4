"""Stock Jupyter clients on a session, and what they say about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.execution import Execution
from tests.support import eventually

Message = dict[str, Any]


@contextmanager
def running_session(name: str = "s", **creation: Any) -> Iterator[kr.Session]:
    """A session with its kernel started; stopped at the end, whatever became of it."""
    session = kr.attach(name, create=True, principal="agent:host", **creation)
    try:
        session.start()
        yield session
    finally:
        session.detach()
        with kr.attach(name, principal="agent:host", accept=True) as last:
            last.stop()


@contextmanager
def stock_client(
    session: kr.Session, username: str = "ada", *, ready: bool = True
) -> Iterator[BlockingKernelClient]:
    """jupyter_client's own client on the front door's connection file, as `--existing` makes one."""
    client = BlockingKernelClient(connection_file=session.connection_file())
    client.load_connection_file()
    client.session.username = username
    client.start_channels()
    try:
        if ready:
            client.wait_for_ready(timeout=30)
        yield client
    finally:
        client.stop_channels()


def run(client: BlockingKernelClient, code: str, timeout: float = 20.0, **how: Any) -> Message:
    """The execute_reply of one cell."""
    reply: Message = client.execute(code, reply=True, timeout=timeout, **how)
    return reply


def reply_to(client: BlockingKernelClient, msg_id: str, timeout: float = 20.0) -> Message:
    """The reply on shell to one request; others are dropped, as any client does."""
    deadline = time.monotonic() + timeout
    while True:
        message: Message = client.get_shell_msg(timeout=max(0.01, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") == msg_id:
            return message


def until_idle(client: BlockingKernelClient, msg_id: str, timeout: float = 20.0) -> list[Message]:
    """What iopub says of one request, its idle included."""
    return until(client, msg_id, is_idle, timeout)


def until(client: BlockingKernelClient, msg_id: str, last: Any, timeout: float = 20.0) -> list[Message]:
    """What iopub says of one request, up to the first message that `last` is true of."""
    deadline = time.monotonic() + timeout
    found: list[Message] = []
    while True:
        message: Message = client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        found.append(message)
        if last(message):
            return found


def is_idle(message: Message) -> bool:
    return bool(message["msg_type"] == "status" and message["content"]["execution_state"] == "idle")


def text_of(messages: list[Message], name: str = "stdout") -> str:
    """Stream text, put together."""
    return "".join(
        m["content"]["text"] for m in messages if m["msg_type"] == "stream" and m["content"]["name"] == name
    )


def kinds(messages: list[Message]) -> list[str]:
    """`status:busy`, `stream`, …; streams that follow each other are one."""
    found: list[str] = []
    for message in messages:
        kind = message["msg_type"]
        if kind == "status":
            kind += ":" + message["content"]["execution_state"]
        if kind != "stream" or found[-1:] != ["stream"]:
            found.append(kind)
    return found


def journal(session: kr.Session) -> JournalReader:
    """The session's record, read as any process reads it."""
    return JournalReader.open(directory(session) / "journal.db")


def directory(session: kr.Session) -> Path:
    from kernel_runtime import places

    return places.session_dir(session.name)


def executions(session: kr.Session) -> list[Execution]:
    reader = journal(session)
    try:
        return reader.executions()
    finally:
        reader.close()


def kinds_of_entries(session: kr.Session) -> list[str]:
    reader = journal(session)
    try:
        return [entry.kind for entry in reader.entries()]
    finally:
        reader.close()


def _row(session: kr.Session) -> dict[str, Any]:
    """Its row, however busy the machine is."""
    return session.run(session.coroutines.row(within=60))


def supervisor_of(session: kr.Session) -> process.ProcessId:
    """Who supervises now."""
    who = process.identify(int(_row(session)["supervisor_pid"]))
    assert who is not None
    return who


def kernel_of(session: kr.Session) -> process.ProcessId:
    who = process.identify(int(_row(session)["kernel_pid"]))
    assert who is not None
    return who


def kill(who: process.ProcessId, signum: int = 9) -> None:
    """Signal exactly this process; when it is SIGKILL, return once it is gone."""
    process.signal_process(who, signum)
    if signum == 9:
        eventually(lambda: not process.is_alive(who), what=f"{who.pid} is gone")


def replace_supervisor(session: kr.Session, signum: int = 9) -> None:
    """The supervisor is killed, and the next command brings another."""
    old = supervisor_of(session)
    kill(old, signum)

    def is_replaced() -> bool:
        # one that was asked while it ended may be gone by the time it is looked for
        now = process.identify(int(_row(session)["supervisor_pid"] or 0))
        return now is not None and now != old

    eventually(is_replaced, 30, "another supervisor")
