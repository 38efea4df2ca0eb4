"""The front door: the session's own five channels, for every client there is.

It knows frames and addresses, not meaning: what comes in is verified and handed on, what goes out
is addressed. The endpoint stays the same across incarnations and supervisors, so a client that was
connected stays connected. A reply to a client that is not there at the moment waits for it; what goes
to everybody goes to whoever has subscribed by then.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq
from msgspec.structs import replace

from kernel_runtime import places
from kernel_runtime.errors import SupervisorFault
from kernel_runtime.supervisor.mailbox import Mailbox
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.wire import DELIMITER, BadMessage, Connection, Message, Signer, ipc_connection

OnMessage = Callable[[str, Message], None]

_BATCH = 200
"""messages taken from one socket before the others have their turn"""
_TAKEN_FOR = 1.0
"""seconds in which an address that is in use may become free"""
_HELD_BYTES = 64 << 20
"""what is held at most for subscribers that are not back yet"""


def new_connection(directory: Path, transport: str, kernel_name: str) -> Connection:
    """A front door of our own making: ipc under `directory`, or tcp on loopback with CurveZMQ keys."""
    key = secrets.token_hex(32)
    if transport == "ipc":
        return ipc_connection(directory / "front", key, kernel_name)
    public, secret = zmq.curve_keypair()
    return Connection(
        transport="tcp",
        ip="127.0.0.1",
        shell_port=0,
        iopub_port=0,
        stdin_port=0,
        control_port=0,
        hb_port=0,
        key=key,
        kernel_name=kernel_name,
        curve_publickey=public.decode(),
        curve_secretkey=secret.decode(),
    )


class FrontDoor:
    """Five bound sockets. `connection` is what clients read from the connection file."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        reactor: Reactor,
        connection: Connection,
        census: Path | None = None,
    ) -> None:
        """Open it; `census` is a file that tells the next supervisor how many subscribers there are.

        Raises:
            SupervisorFault: an endpoint is taken.
        """
        self.signer = Signer(connection.key.encode())
        self.session = secrets.token_hex(16)
        """under whose name the supervisor speaks: the living kernel's, once that has said something"""
        self.rejected = 0
        self._reactor = reactor
        self._mailbox = Mailbox(reactor)
        self._held: list[list[bytes]] | None = None
        self._held_bytes = 0
        self._release: Timer | None = None
        self._census = census
        self._subscribers = 0
        self._awaited = 0
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        ports: dict[str, int] = {}
        for channel, kind in _KINDS.items():
            socket = context.socket(kind)
            socket.linger = 500
            # nothing is dropped for a slow client; what is bounded is what an execution may say
            socket.sndhwm = 0
            socket.rcvhwm = 0
            if kind == zmq.XPUB:
                # each coming and going is told, not only the first and the last
                socket.xpub_verboser = 1
            if kind == zmq.ROUTER:
                # a client that lost its connection comes back with the same identity
                socket.router_handover = 1
                # and is told from one that is not there; a heartbeat's echo needs no such care
                socket.router_mandatory = int(channel != "hb")
            if connection.curve_secretkey is not None and connection.curve_publickey is not None:
                socket.curve_secretkey = connection.curve_secretkey.encode()
                socket.curve_publickey = connection.curve_publickey.encode()
                socket.curve_server = True
            self._sockets[channel] = socket
            ports[f"{channel}_port"] = self._bind(socket, connection, channel)
        self.connection = replace(connection, **ports)
        reactor.watch(self._sockets["hb"], self._echo)
        reactor.watch(self._sockets["iopub"], self._welcome)

    def _bind(self, socket: zmq.Socket[bytes], connection: Connection, channel: str) -> int:
        port = int(getattr(connection, f"{channel}_port"))
        if connection.transport == "tcp" and port == 0:
            return socket.bind_to_random_port(f"tcp://{connection.ip}")
        deadline = time.monotonic() + _TAKEN_FOR
        try:
            while True:
                try:
                    socket.bind(connection.endpoint(channel))
                    break
                except zmq.ZMQError as error:
                    # what a killed predecessor had open on this port is gone a moment later
                    if error.errno != zmq.EADDRINUSE or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
        except zmq.ZMQError as error:
            for opened in self._sockets.values():
                opened.close(linger=0)
            raise SupervisorFault(
                f"the front door cannot open {connection.endpoint(channel)}: {error.strerror}",
                hint="clients know this address, so no other is taken: end what uses it, or stop the session "
                "and remove its front.json",
                endpoint=connection.endpoint(channel),
            ) from error
        return port

    def serve(self, on_message: OnMessage) -> None:
        """Begin to hand over messages of shell, control and stdin."""
        for channel in ("shell", "control", "stdin"):
            socket = self._sockets[channel]
            self._reactor.watch(socket, lambda c=channel, s=socket: self._receive(c, s, on_message))  # type: ignore[misc]

    def _receive(self, channel: str, socket: zmq.Socket[bytes], on_message: OnMessage) -> None:
        for _ in range(_BATCH):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = self.signer.split(parts)
            except BadMessage:
                # an unsigned stranger learns nothing, not even that it was heard
                self.rejected += 1
                continue
            if message.identities:
                self._mailbox.heard(socket, message.identities[0])
            on_message(channel, message)

    def go_deaf(self) -> None:
        """Hear nothing more: whoever asks from now on is for the next supervisor to answer."""
        for socket in self._sockets.values():
            self._reactor.forget(socket)

    def drain(self, channel: str, on_message: OnMessage) -> None:
        """Handle what has already arrived on one channel, now."""
        self._receive(channel, self._sockets[channel], on_message)

    def _echo(self) -> None:
        socket = self._sockets["hb"]
        for _ in range(_BATCH):
            try:
                socket.send_multipart(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return

    def _welcome(self) -> None:
        """Answer each subscription with `iopub_welcome` (JEP 65), as a kernel does."""
        socket = self._sockets["iopub"]
        for _ in range(_BATCH):
            try:
                event = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if event[:1] == b"\x00":
                self._counted(-1)
            elif event[:1] == b"\x01":
                topic = event[1:]
                frames = self.signer.build(
                    "iopub_welcome",
                    {"subscription": topic.decode("utf-8", "replace")},
                    session=self.session,
                )
                socket.send_multipart([topic, DELIMITER, *frames] if topic else [DELIMITER, *frames])
                self._counted(1)

    def _counted(self, change: int) -> None:
        self._subscribers = max(0, self._subscribers + change)
        if self._held is not None and self._subscribers >= self._awaited:
            self._let_go()
        self._note_subscribers()

    def _note_subscribers(self) -> None:
        if self._census is not None:
            # not synced and not renamed: what has to survive is our death, not the machine's
            with open(self._census, "w", opener=places.private) as census:
                census.write(str(max(self._subscribers, self._awaited)))

    def send(self, channel: str, identities: Sequence[bytes], frames: Sequence[bytes]) -> None:
        """Send signed frames to one client; one that left may come back for them."""
        self._mailbox.send(self._sockets[channel], [*identities, DELIMITER, *frames])

    def reply(self, channel: str, request: Message, msg_type: str, content: object) -> None:
        """A reply of the supervisor's own to a request."""
        frames = self.signer.build(msg_type, content, session=self.session, parent=request.frames[1])
        self.send(channel, request.identities, frames)

    def publish(self, topic: bytes, frames: Sequence[bytes]) -> None:
        """Signed frames to everybody on iopub."""
        parts = [topic, DELIMITER, *frames]
        if self._held is None:
            self._sockets["iopub"].send_multipart(parts)
            return
        self._held.append(parts)
        self._held_bytes += sum(map(len, parts))
        if self._held_bytes > _HELD_BYTES:
            self._let_go()

    def await_subscribers(self, most: float) -> None:
        """Publish nothing until as many have subscribed as a predecessor had, or `most` seconds; then all.

        A client subscribes anew when it next looks at its iopub socket, so this may take a while.
        """
        try:
            self._awaited = int(self._census.read_text()) if self._census is not None else 0
        except (FileNotFoundError, ValueError):
            return
        if self._awaited > self._subscribers:
            self._held = []
            self._release = self._reactor.after(most, self._go_on_without)

    def _go_on_without(self) -> None:
        self._let_go()
        self._note_subscribers()

    def _let_go(self) -> None:
        held, self._held = self._held or [], None
        self._held_bytes = self._awaited = 0
        if self._release is not None:
            self._release.cancel()
        for parts in held:
            self._sockets["iopub"].send_multipart(parts)

    def announce(self, msg_type: str, content: object, parent: bytes) -> None:
        """An iopub message of the supervisor's own; `parent` is a raw header."""
        frames = self.signer.build(msg_type, content, session=self.session, parent=parent)
        self.publish(msg_type.encode(), frames)

    def close(self) -> None:
        self._let_go()
        self._mailbox.close()
        for channel, socket in self._sockets.items():
            self._reactor.forget(socket)
            socket.close()
            if self.connection.transport == "ipc":
                Path(self.connection.endpoint(channel).removeprefix("ipc://")).unlink(missing_ok=True)


_KINDS = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "hb": zmq.ROUTER,
    "iopub": zmq.XPUB,
}


def write_private(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=places.private) as file:
            file.write(data)
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
