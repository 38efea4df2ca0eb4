"""One thread, one poll, timers. Sleeps until something happens: an idle session costs no wake-ups."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any

import zmq

Handler = Callable[[], object]


class Timer:
    """A callback that is due once. `cancel` makes it not happen."""

    __slots__ = ("call", "due")

    def __init__(self, due: int, call: Handler) -> None:
        self.due = due
        self.call: Handler | None = call

    def cancel(self) -> None:
        self.call = None


class Reactor:
    """Calls handlers of readable sockets and file descriptors, then timers, until stopped.

    What has come is taken before what is due: a process that was stopped for a while finds both at once,
    and a timer says that something has not come.
    """

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Handler] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._stopped = False
        self._gathered: list[Handler] = []

    def watch(self, source: zmq.Socket[bytes] | int, handler: Handler) -> None:
        """Call `handler` whenever `source` is readable."""
        self._poller.register(source, zmq.POLLIN)
        self._handlers[source] = handler

    def forget(self, source: zmq.Socket[bytes] | int) -> None:
        if source in self._handlers:
            self._poller.unregister(source)
            del self._handlers[source]

    def after(self, seconds: float, call: Handler) -> Timer:
        return self.at(time.monotonic_ns() + int(seconds * 1e9), call)

    def at(self, due: int, call: Handler) -> Timer:
        """Call at monotonic time `due` (ns)."""
        timer = Timer(due, call)
        heapq.heappush(self._timers, (due, next(self._order), timer))
        return timer

    def after_handlers(self, call: Handler) -> None:
        """Call this once the handlers of a round are done, and again after its timers."""
        self._gathered.append(call)

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        while not self._stopped:
            for source, _ in self._poller.poll(self._patience()):
                # an earlier handler of this round may have forgotten it
                handler = self._handlers.get(source)
                if handler is not None:
                    handler()
            self._gather()
            now = time.monotonic_ns()
            while self._timers and self._timers[0][0] <= now:
                _, _, timer = heapq.heappop(self._timers)
                if timer.call is not None:
                    timer.call()
            self._gather()

    def _gather(self) -> None:
        for call in self._gathered:
            call()

    def _patience(self) -> int | None:
        """Milliseconds to wait; None for ever."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        wait = self._timers[0][0] - time.monotonic_ns()
        return max(0, -(-wait // 1_000_000))
