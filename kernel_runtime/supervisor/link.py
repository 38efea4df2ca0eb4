"""The supervisor's side of one kernel: requests out, replies and messages in.

The identity of the DEALER sockets is the session's, not the supervisor's, so a kernel's ROUTER
routes an `input_request` to whoever supervises now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq

from kernel_runtime.kernel.outbox_reader import OutboxReader, Record
from kernel_runtime.supervisor.launch import KernelRecord
from kernel_runtime.supervisor.reactor import Reactor
from kernel_runtime.wire import DELIMITER, BadMessage, Message, Signer

OnMessage = Callable[[str, Message], None]
_BATCH = 500


class KernelLink:
    """Sockets (and, for our kernel, the outbox) of one incarnation."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        reactor: Reactor,
        record: KernelRecord,
        *,
        session_id: str,
        on_message: OnMessage,
        on_outbox: Callable[[], None],
        position: int,
    ) -> None:
        self.record = record
        self.signer = Signer(record.connection.key.encode())
        self._reactor = reactor
        self._on_message = on_message
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self.outbox: OutboxReader | None = None
        self._position = position
        self._on_outbox = on_outbox
        for channel in ("shell", "control", "stdin"):
            socket = context.socket(zmq.DEALER)
            socket.identity = b"krt-" + session_id.encode()
            self._connect(channel, socket)
        if record.outbox is None:
            iopub = context.socket(zmq.SUB)
            iopub.subscribe(b"")
            self._connect("iopub", iopub)

    def _connect(self, channel: str, socket: zmq.Socket[bytes]) -> None:
        socket.linger = 0
        # the kernel's sockets appear some time after its process
        socket.reconnect_ivl = 20
        socket.sndhwm = 0
        socket.rcvhwm = 0
        connection = self.record.connection
        if connection.curve_publickey is not None and connection.curve_secretkey is not None:
            # the file's pair names the kernel; as every Jupyter client does, we use it for ourselves too
            socket.curve_publickey = socket.curve_serverkey = connection.curve_publickey.encode()
            socket.curve_secretkey = connection.curve_secretkey.encode()
        socket.connect(connection.endpoint(channel))
        self._sockets[channel] = socket
        self._reactor.watch(socket, lambda: self._receive(channel))

    def open_outbox(self) -> bool:
        """Open our kernel's outbox once it is there; True when it is open."""
        if self.outbox is None and self.record.outbox is not None:
            directory = Path(self.record.outbox)
            if not (directory / "control").exists():
                return False
            self.outbox = OutboxReader(directory, self._position)
            self._reactor.watch(self.outbox.fileno(), self._on_outbox)
        return self.outbox is not None

    def read_outbox(self, max_bytes: int) -> list[Record]:
        if self.outbox is None and not self.open_outbox():
            return []
        assert self.outbox is not None
        return self.outbox.read(max_bytes)

    def rewind(self, position: int) -> None:
        """Read the outbox again from `position`: what was read could not be journaled."""
        if self.outbox is not None:
            self._reactor.forget(self.outbox.fileno())
            self.outbox.close()
            self.outbox = None
        self._position = position

    def _receive(self, channel: str) -> None:
        socket = self._sockets[channel]
        for _ in range(_BATCH):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            with contextlib.suppress(BadMessage):  # not signed with this kernel's key: not this kernel's
                self._on_message(channel, self.signer.split(parts))

    def wait(self, channel: str, seconds: float) -> None:
        """Handle what arrives on one channel within that time; returns at the first."""
        if self._sockets[channel].poll(int(seconds * 1000)):
            self._receive(channel)

    def drain(self) -> None:
        """Handle what has already arrived."""
        for channel in list(self._sockets):
            self._receive(channel)

    def send(self, channel: str, frames: Sequence[bytes]) -> None:
        """Send signed frames (without identities) to the kernel."""
        with contextlib.suppress(zmq.Again):
            self._sockets[channel].send_multipart([DELIMITER, *frames], zmq.NOBLOCK)

    def close(self) -> None:
        for socket in self._sockets.values():
            self._reactor.forget(socket)
            socket.close()
        self._sockets.clear()
        if self.outbox is not None:
            self._reactor.forget(self.outbox.fileno())
            self.outbox.close()
            self.outbox = None
