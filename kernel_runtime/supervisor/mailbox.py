"""Replies whose client is not connected at this moment.

A client that loses its connection, or whose supervisor was replaced, comes back by itself with the
same identity, some tenths of a second later. What was to be sent meanwhile waits here, in order.
Not promised: what zmq had already taken for a client that then vanished.
"""

from __future__ import annotations

import errno
import time
from collections import OrderedDict
from collections.abc import Sequence

import zmq

from kernel_runtime.supervisor.reactor import Reactor, Timer

KEPT = 60.0
"""seconds a reply waits for its client"""
MAX_BYTES = 64 << 20
_SOON = 0.05
_LATER = 1.0
_SOON_FOR = 3.0


class Mailbox:
    """Sends on ROUTER sockets that were made with `ROUTER_MANDATORY`; keeps what has no receiver."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._kept: OrderedDict[tuple[zmq.Socket[bytes], bytes], list[tuple[float, list[bytes]]]] = (
            OrderedDict()
        )
        self._bytes = 0
        self._timer: Timer | None = None

    def send(self, socket: zmq.Socket[bytes], parts: Sequence[bytes]) -> None:
        """Send `[identity, …]`, now or when its client is back."""
        box = (socket, parts[0] if parts else b"")
        if box not in self._kept and _send(socket, parts):
            return
        self._kept.setdefault(box, []).append((time.monotonic(), list(parts)))
        self._bytes += sum(map(len, parts))
        while self._bytes > MAX_BYTES and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= sum(len(part) for _, kept in oldest for part in kept)
        self._schedule()

    def heard(self, socket: zmq.Socket[bytes], identity: bytes) -> None:
        """That client is there: it has just sent something."""
        box = (socket, identity)
        if box in self._kept:
            self._deliver(box)

    def _deliver(self, box: tuple[zmq.Socket[bytes], bytes]) -> None:
        kept = self._kept[box]
        while kept:
            since, parts = kept[0]
            if not _send(box[0], parts) and time.monotonic() - since < KEPT:
                return
            kept.pop(0)
            self._bytes -= sum(map(len, parts))
        del self._kept[box]

    def _schedule(self) -> None:
        if self._timer is not None or not self._kept:
            return
        newest = max(kept[-1][0] for kept in self._kept.values())
        soon = time.monotonic() - newest < _SOON_FOR
        self._timer = self._reactor.after(_SOON if soon else _LATER, self._again)

    def _again(self) -> None:
        self._timer = None
        for box in list(self._kept):
            self._deliver(box)
        self._schedule()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._kept.clear()


def _send(socket: zmq.Socket[bytes], parts: Sequence[bytes]) -> bool:
    try:
        socket.send_multipart(list(parts))
    except zmq.ZMQError as error:
        if error.errno == errno.EHOSTUNREACH:
            return False
        raise
    return True
