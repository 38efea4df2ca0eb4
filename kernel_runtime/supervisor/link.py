"""The supervisor's side of one kernel: requests out, replies and messages in.

With our kernel the identity of the DEALER sockets is the session's, not the supervisor's, so its ROUTER
routes an `input_request` to whoever supervises now. Other kernels' sockets may refuse a name that came
back too soon: there each supervisor has a name of its own, and listens under earlier ones for what
is still due to them.
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
        names = record.identities or [f"krt-{session_id}"]
        for channel in ("shell", "control", "stdin"):
            self._sockets[channel] = self._dealer(context, channel, names[-1])
        self._former = [
            (channel, self._dealer(context, channel, name))
            for name in names[:-1]
            for channel in ("shell", "stdin")
        ]
        self._stdin_monitor: zmq.Socket[bytes] | None = None
        if record.outbox is None:
            self._stdin_monitor = self._sockets["stdin"].get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
            iopub = context.socket(zmq.SUB)
            iopub.subscribe(b"")
            self._sockets["iopub"] = iopub
            self._connect("iopub", iopub)

    def _dealer(self, context: zmq.Context[zmq.Socket[bytes]], channel: str, name: str) -> zmq.Socket[bytes]:
        socket = context.socket(zmq.DEALER)
        socket.identity = name.encode()
        self._connect(channel, socket)
        return socket

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
        self._reactor.watch(socket, lambda: self._receive(channel, socket))

    def hears_stdin(self) -> bool:
        """Whether a foreign kernel knows us on stdin: a prompt that it sends before is dropped."""
        if self._stdin_monitor is not None and self._stdin_monitor.poll(0):
            self._end_monitor()
        return self._stdin_monitor is None

    def _end_monitor(self) -> None:
        monitor, self._stdin_monitor = self._stdin_monitor, None
        if monitor is not None:
            self._sockets["stdin"].disable_monitor()
            monitor.close()

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

    def _receive(self, channel: str, socket: zmq.Socket[bytes]) -> None:
        for _ in range(_BATCH):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            with contextlib.suppress(BadMessage):  # not signed with this kernel's key: not this kernel's
                self._on_message(channel, self.signer.split(parts))

    def wait(self, channel: str, seconds: float) -> None:
        """Handle what arrives on one channel within that time; returns at the first."""
        socket = self._sockets[channel]
        if socket.poll(int(seconds * 1000)):
            self._receive(channel, socket)

    def drain(self) -> None:
        """Handle what has already arrived."""
        for channel, socket in [*self._former, *self._sockets.items()]:
            self._receive(channel, socket)

    def send(self, channel: str, frames: Sequence[bytes]) -> None:
        """Send signed frames (without identities) to the kernel."""
        with contextlib.suppress(zmq.Again):
            self._sockets[channel].send_multipart([DELIMITER, *frames], zmq.NOBLOCK)

    def run_nothing(self, session: str, msg_id: str) -> None:
        """An execution of nothing: its reply tells that what was sent before has ended.

        Some kernels answer kernel_info while a cell runs; none runs two cells.
        """
        nothing = {
            "code": "",
            "silent": True,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        self.send("shell", self.signer.build("execute_request", nothing, session=session, msg_id=msg_id))

    def close(self) -> None:
        self._end_monitor()
        for _, socket in [*self._former, *self._sockets.items()]:
            self._reactor.forget(socket)
            socket.close()
        self._former.clear()
        self._sockets.clear()
        if self.outbox is not None:
            self._reactor.forget(self.outbox.fileno())
            self.outbox.close()
            self.outbox = None
