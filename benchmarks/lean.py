"""The leanest client there is: two sockets, signed frames, nothing decoded that is not asked for.

The same client measures a stock kernel directly and a session through its front door, so the
difference is what lies behind the connection file.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq

from kernel_runtime.wire import DELIMITER, Connection, Message, Signer

TIMEOUT = 300.0


class LeanClient:
    """Talks to whatever is behind a connection file. `on_message` sees each iopub message of the cell."""

    def __init__(self, connection: Connection) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._signer = Signer(connection.key.encode())
        self._session = uuid.uuid4().hex
        self._shell = self._connect(zmq.DEALER, connection.endpoint("shell"))
        self._iopub = self._connect(zmq.SUB, connection.endpoint("iopub"))
        self._iopub.subscribe(b"")
        self._poller = zmq.Poller()
        self._poller.register(self._shell, zmq.POLLIN)
        self._poller.register(self._iopub, zmq.POLLIN)
        self._settle()

    def _connect(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.rcvhwm = 0
        socket.sndhwm = 0
        if kind == zmq.DEALER:
            socket.identity = self._session.encode()
        socket.connect(endpoint)
        return socket

    def _settle(self) -> None:
        """Until the subscription stands and the kernel answers."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            try:
                self.request("kernel_info_request", {}, within=2.0)
            except TimeoutError:
                continue
            return
        raise TimeoutError("nobody answers behind this connection file")

    def execute(
        self, source: str, on_message: Callable[[Message], None] | None = None, within: float = TIMEOUT
    ) -> dict[str, Any]:
        """Content of the reply, once reply and idle are here."""
        content = {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return self.request("execute_request", content, on_message, within)

    def request(
        self,
        msg_type: str,
        content: dict[str, Any],
        on_message: Callable[[Message], None] | None = None,
        within: float = TIMEOUT,
    ) -> dict[str, Any]:
        """Send and wait for reply and idle.

        Raises:
            TimeoutError: one of them did not come.
        """
        msg_id = uuid.uuid4().hex
        frames = self._signer.build(msg_type, content, session=self._session, msg_id=msg_id)
        self._shell.send_multipart([DELIMITER, *frames])
        marked = f'"{msg_id}"'.encode()
        reply: dict[str, Any] | None = None
        idle = False
        deadline = time.monotonic() + within
        while reply is None or not idle:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{msg_type}: reply {reply is not None}, idle {idle}")
            ready = dict(self._poller.poll(int(left * 1000) + 1))
            if self._iopub in ready:
                for message in self._received(self._iopub):
                    if marked not in message.frames[2]:
                        continue
                    if message.header.msg_type == "status" and b'"idle"' in message.frames[4]:
                        idle = True
                    elif on_message is not None:
                        on_message(message)
            if self._shell in ready:
                for message in self._received(self._shell):
                    if marked in message.frames[2]:
                        reply = msgspec.json.decode(message.frames[4])
        return reply

    def _received(self, socket: zmq.Socket[bytes]) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < 1000:
            try:
                messages.append(self._signer.split(socket.recv_multipart(zmq.NOBLOCK)))
            except zmq.Again:
                break
        return messages

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shell.close()
        self._iopub.close()
        self._context.term()
