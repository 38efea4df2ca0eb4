"""A second door to a named session: the ports of a connection file that a Jupyter tool wrote.

The session's own front door stays where it is. What comes in here is verified with the file's key,
signed anew with the session's, and passed on under an identity of its own, the same one on shell,
control and stdin, so that an `input()` finds its client. A `shutdown_request` ends the relay, never
the kernel: leaving is all that a tool may do to a session that is not its own; with `restart` it
starts the next incarnation, as Jupyter's Restart button means it.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import zmq

from kernel_runtime.cli.kernel_shim import Ending, Shim
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import UsageError
from kernel_runtime.supervisor.door import FrontDoor
from kernel_runtime.wire import DELIMITER, BadMessage, Connection, Message, Signer, read_connection

_CHANNELS = ("shell", "control", "stdin")


class Relay(Shim):
    """A shim that passes messages. Ends when its manager shuts it down or the kernel ends."""

    def __init__(self, session: SessionFile, connection_file: Path) -> None:
        super().__init__(session, ephemeral=False)
        try:
            wanted = read_connection(connection_file)
        except (OSError, BadMessage) as error:
            raise UsageError(
                f"connection file {connection_file} cannot be used: {error}",
                hint="a Jupyter tool writes it and passes it with -f",
            ) from error
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._door = FrontDoor(self._context, self.reactor, wanted)
        self._salt = secrets.token_bytes(8)
        self._behind: Connection | None = None
        self._signer = Signer(b"")
        self._links: dict[tuple[str, bytes], zmq.Socket[bytes]] = {}
        self._iopub: zmq.Socket[bytes] | None = None

    def run(self) -> Ending:
        try:
            return super().run()
        finally:
            for socket in [*self._links.values(), *filter(None, [self._iopub])]:
                self.reactor.forget(socket)
                socket.close(linger=500)
            self._door.close()
            self._context.term()

    def _watch_kernel(self) -> None:
        super()._watch_kernel()
        if self._behind is None:
            self._open()

    def _open(self) -> None:
        self._behind = read_connection(self.session.front)
        self._signer = Signer(self._behind.key.encode())
        self._iopub = self._socket(zmq.SUB, "iopub")
        self._iopub.subscribe(b"")
        self.reactor.watch(self._iopub, self._publish)
        self._door.serve(self._forward)

    def _socket(self, kind: int, channel: str, identity: bytes | None = None) -> zmq.Socket[bytes]:
        assert self._behind is not None
        socket = self._context.socket(kind)
        socket.sndhwm = 0
        socket.rcvhwm = 0
        if identity is not None:
            socket.identity = identity
        if self._behind.curve_publickey is not None:
            public, secret = zmq.curve_keypair()
            socket.curve_publickey, socket.curve_secretkey = public, secret
            socket.curve_serverkey = self._behind.curve_publickey.encode()
        socket.connect(self._behind.endpoint(channel))
        return socket

    def _forward(self, channel: str, message: Message) -> None:
        if message.header.msg_type == "shutdown_request" and channel in ("shell", "control"):
            self._leave_on_request(channel, message)
            return
        client = message.identities[0] if message.identities else b""
        body = message.frames[1:]
        self._link(channel, client).send_multipart([DELIMITER, self._signer.sign(body[:4]), *body])

    def _link(self, channel: str, client: bytes) -> zmq.Socket[bytes]:
        if (channel, client) not in self._links:
            identity = hashlib.sha256(self._salt + client).hexdigest().encode()
            # all three at once: the kernel may ask on stdin before its client ever wrote there
            for name in _CHANNELS:
                socket = self._socket(zmq.DEALER, name, identity)
                self._links[name, client] = socket
                self.reactor.watch(socket, lambda n=name, c=client, s=socket: self._back(n, c, s))  # type: ignore[misc]
        return self._links[channel, client]

    def _back(self, channel: str, client: bytes, socket: zmq.Socket[bytes]) -> None:
        while (message := self._received(socket)) is not None:
            body = message.frames[1:]
            self._door.send(channel, [client], [self._door.signer.sign(body[:4]), *body])

    def _publish(self) -> None:
        assert self._iopub is not None
        while (message := self._received(self._iopub)) is not None:
            if message.header.msg_type != "iopub_welcome":  # that one was for us
                body = message.frames[1:]
                topic = message.identities[0] if message.identities else b""
                self._door.publish(topic, [self._door.signer.sign(body[:4]), *body])

    def _received(self, socket: zmq.Socket[bytes]) -> Message | None:
        while True:
            try:
                return self._signer.split(socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return None
            except BadMessage:
                continue  # not from this session

    def _leave_on_request(self, channel: str, message: Message) -> None:
        restart = bool(message.content_dict().get("restart"))
        self._asked = "shutdown_request"
        self._forget_kernel()
        content = {"status": "ok", "restart": restart}

        def answered(error: BaseException | None, _: object = None) -> None:
            if error is not None:
                self._fail(error)
                return
            self._door.reply(channel, message, "shutdown_reply", content)
            self._door.announce("shutdown_reply", content, message.frames[1])
            self.leave(Ending(0))

        if restart:
            self._work.do(self._restart, answered)
        else:
            answered(None)

    def _restart(self) -> None:
        with self._client() as client:
            client.restart(reason="jupyter")
