"""A supervisor that says what a test tells it to: the same locks, files and wire as the real one."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from typing import Any

import zmq

from kernel_runtime import places, wire
from kernel_runtime.client.session_files import SessionFile

Handler = Callable[[dict[str, Any]], dict[str, Any] | None]
"""content of a request to content of its reply; None: no reply"""


def ok(**result: Any) -> dict[str, Any]:
    return {"ok": True, "result": result}


class FakeSupervisor:
    """Holds the lock and the front door until `die`. Runs in a thread, one request at a time."""

    def __init__(self, session: SessionFile, handler: Handler) -> None:
        self.session = session
        self.requests: list[dict[str, Any]] = []
        self._handler = handler
        self._lock = os.open(session.directory / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.truncate(self._lock, 0)
        os.write(self._lock, os.urandom(8).hex().encode())
        sockets = places.private_dir(places.socket_dir(session.session_id))
        connection = wire.ipc_connection(sockets / "front", key="a key")
        self._signer = wire.Signer(b"a key")
        self._context = zmq.Context()
        self._door = self._context.socket(zmq.ROUTER)
        self._door.linger = 0
        self._door.bind(connection.endpoint("control"))
        self._end = self._context.socket(zmq.PAIR)
        self._end.bind("inproc://end")
        session.front.write_bytes(connection.dump())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._door, zmq.POLLIN)
        poller.register(self._end, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._end in ready:
                return
            message = self._signer.split(self._door.recv_multipart())
            content = message.content_dict()
            self.requests.append(content)
            reply = self._handler(content)
            if reply is not None:
                frames = self._signer.build("krt_reply", reply, session="fake", parent=message.frames[1])
                self._door.send_multipart([*message.identities, wire.DELIMITER, *frames])

    def die(self) -> None:
        """End as a killed process ends: sockets closed, lock free."""
        if self._lock == -1:
            return
        stop = self._context.socket(zmq.PAIR)
        stop.connect("inproc://end")
        stop.send(b"")
        self._thread.join()
        for socket in (stop, self._door, self._end):
            socket.close(linger=0)
        self._context.term()
        os.close(self._lock)
        self._lock = -1

    @property
    def ops(self) -> list[str]:
        return [request["op"] for request in self.requests]
