"""The supervisor's end of a line to a holder: starts it, asks it, hears of its end. Never blocks.

Requests are numbered, and each `on_reply` is called once: with the reply, or with None when the line
breaks first. A line that breaks says nothing of the process behind it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.frames import JSON, BadFrame, Unpacker, pack
from kernel_runtime.supervisor.reactor import Reactor

_AGAIN = 0.02
"""seconds until a full socket is tried again"""

OnReply = Callable[[dict[str, Any] | None], None]


class HolderLine:
    """A connection to one holder."""

    def __init__(self, reactor: Reactor, sock: socket.socket) -> None:
        self._reactor = reactor
        self._socket = sock
        self.on_event: Callable[[dict[str, Any]], object] = lambda _: None
        self.on_broken: Callable[[], object] = lambda: None
        self._unpack = Unpacker()
        self._out = bytearray()
        self._next = 0
        self._waiting: dict[int, OnReply] = {}
        self._retrying = False
        sock.setblocking(False)
        reactor.watch(sock.fileno(), self._readable)

    @property
    def open(self) -> bool:
        return self._socket.fileno() >= 0

    def ask(self, op: str, on_reply: OnReply, **arguments: Any) -> None:
        """Send a request."""
        if not self.open:
            on_reply(None)
            return
        self._next += 1
        self._waiting[self._next] = on_reply
        self.send({"id": self._next, "op": op, **arguments})

    def send(self, document: Mapping[str, Any]) -> None:
        self._out += pack(JSON, msgspec.json.encode(document))
        self._flush()

    def close(self) -> None:
        """Hang up, without a word to `on_broken`."""
        if self.open:
            self._reactor.forget(self._socket.fileno())
            self._socket.close()
        waiting, self._waiting = self._waiting, {}
        for on_reply in waiting.values():
            on_reply(None)

    def _flush(self) -> None:
        if not self.open:
            return
        try:
            while self._out:
                sent = self._socket.send(self._out)
                del self._out[:sent]
        except BlockingIOError:
            if not self._retrying:
                self._retrying = True
                self._reactor.after(_AGAIN, self._again)
        except OSError:
            self._out.clear()  # it reads as closed in a moment

    def _again(self) -> None:
        self._retrying = False
        self._flush()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            frames = self._unpack.feed(data)
            documents = [msgspec.json.decode(content) for kind, content in frames if kind == JSON]
        except (BadFrame, msgspec.DecodeError):
            data, documents = b"", []
        for document in documents:
            on_reply = self._waiting.pop(document.get("id") or 0, None)
            if on_reply is not None:
                on_reply(document)
            else:
                self.on_event(document)
        if not data:
            self.close()
            self.on_broken()


def start(config: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[socket.socket, int]:
    """Start a holder; the line to it, and its pid. The command runs once it says so.

    Raises:
        OSError: no process is to be had.
    """
    ours, theirs = socket.socketpair()
    try:
        paths = [path for path in sys.path if path and Path(path).is_dir()]
        child = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                str(Path(__file__).with_name("holder_start.py")),
                str(theirs.fileno()),
                config["process_id"],
                *paths,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            close_fds=True,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=dict(environment),
            cwd="/",
        )
        child.returncode = 0  # it is collected by the supervisor's own loop, not by this object
        ours.sendall(pack(JSON, msgspec.json.encode(config)))
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours, child.pid


def connect(directory: Path, process_id: str) -> socket.socket:
    """Meet a living holder again.

    Raises:
        OSError: nobody is there.
    """
    # a path may be longer than an address holds: through a descriptor it is not
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{at}/{process_id}.sock")
    except BaseException:
        sock.close()
        raise
    finally:
        with contextlib.suppress(OSError):
            os.close(at)
    return sock
