"""A TCP proxy that can stop forwarding without a word, or cut what goes through it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from kernel_runtime.wire import Connection

_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_CHUNK = 1 << 16


class Proxy:
    """Forwards five ports of a front door. `black_holed`: bytes go nowhere and no FIN tells of it."""

    def __init__(self, front: Connection) -> None:
        self.black_holed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()
        self._closed = False
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        ports: dict[str, Any] = {}
        self._listeners = []
        for channel in _CHANNELS:
            listener = socket.create_server(("127.0.0.1", 0))
            target = int(getattr(front, f"{channel}_port"))
            self._selector.register(listener, selectors.EVENT_READ, target)
            self._listeners.append(listener)
            ports[f"{channel}_port"] = listener.getsockname()[1]
        self.connection = replace(front, **ports)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def black_hole(self) -> None:
        self.black_holed.set()
        self._wake.send(b"x")

    def go_on(self) -> None:
        self.black_holed.clear()
        self._wake.send(b"x")

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        with self._lock:
            cut = list(self._pairs)
            for end in cut:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(cut) // 2

    def close(self) -> None:
        self._closed = True
        self._wake.send(b"x")
        self._thread.join()
        for each in (*self._pairs, *self._listeners, self._wake, self._woken):
            each.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._woken:
                    end.recv(_CHUNK)
                elif end in self._listeners:
                    self._accept(end, key.data)
                else:
                    self._forward(end)
            if self.black_holed.is_set():
                # what arrives meanwhile stays where it is, as in a network that drops it
                while self.black_holed.is_set() and not self._closed:
                    self._woken.recv(_CHUNK)

    def _accept(self, listener: socket.socket, target: int) -> None:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", target))
        with self._lock:
            self._pairs[near], self._pairs[far] = far, near
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ, None)

    def _forward(self, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return
        try:
            data = end.recv(_CHUNK)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            with self._lock:
                del self._pairs[end], self._pairs[other]
            for each in (end, other):
                self._selector.unregister(each)
                each.close()


@contextlib.contextmanager
def proxied(front: Connection) -> Iterator[Proxy]:
    """A proxy before that front door; `.connection` is how to reach it."""
    proxy = Proxy(front)
    try:
        yield proxy
    finally:
        proxy.close()
