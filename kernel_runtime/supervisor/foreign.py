"""What a kernel without outbox says, in the order in which it has to be understood.

Its reply and its outputs come on two sockets, so a reply may overtake the outputs it follows. The end
of the outputs is known: `status: idle` of the same request. A reply therefore waits for its idle, but
not for ever: some kernels' iopub is never heard, and a PUB socket that reaches its high-water mark drops
what comes last, idle too. Then the record has a gap. Messages wait in memory while the journal refuses
them.
Not promised: what was said while no supervisor was there. No kernel but ours keeps that. That a drop
before the end is seen: it is counted by nobody.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from kernel_runtime.core.lifecycle import State
from kernel_runtime.errors import EnvironmentFault
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.supervisor.shell import RETRY
from kernel_runtime.wire import BadMessage, Header, Message

log = logging.getLogger("kernel_runtime.supervisor")

IDLE_PATIENCE = 1.0
"""seconds without a message of the request after which its reply waits no longer for idle"""
_MOST_PATIENCE = 30.0
"""seconds that it waits at most: a thread of the cell may print for ever"""
_BATCH = 1000
"""messages that share a commit"""


class Ear(Protocol):
    """Where messages go: `Pump`."""

    def iopub(self, topic: bytes, frames: Sequence[bytes]) -> None: ...

    def flush(self, *, gaps: bool = False) -> None: ...

    def forget(self) -> None: ...

    def unended(self, execution_id: str) -> None: ...

    def unreadable(self, frames: Sequence[bytes], error: BadMessage) -> None: ...

    def asked(self, parent: Header, frames: Sequence[bytes], position: int | None) -> None: ...

    def replied(
        self, parent: Header, frames: Sequence[bytes], position: int | None, arrived: int | None = None
    ) -> None: ...


class ForeignVoice:
    """Puts the messages of a foreign kernel in order and hands them to the pump."""

    def __init__(self, reactor: Reactor, state: Callable[[], State], ear: Ear) -> None:
        self._reactor = reactor
        self._state = state
        self._ear = ear
        self._waiting: deque[tuple[str, Message]] = deque()
        self._reply: tuple[Message, Header, int] | None = None
        """came before the end of its outputs; with its arrival, monotonic ns"""
        self._last_heard = 0
        """of the request whose reply waits, monotonic ns"""
        self._patience: Timer | None = None
        self._retry: Timer | None = None
        reactor.after_handlers(self.drain)

    def heard(self, channel: str, message: Message) -> None:
        """Take a message; all of one round share a commit."""
        self._waiting.append((channel, message))

    def drain(self) -> bool:
        """Hand over what has come; False when the journal refuses (it will be tried again)."""
        if not self._waiting:
            return True
        if self._retry is not None:
            return False
        unflushed: list[tuple[str, Message]] = []
        try:
            while self._waiting:
                channel, message = self._waiting[0]
                if channel != "iopub" or _is_idle(message) or len(unflushed) >= _BATCH:
                    self._ear.flush()
                    unflushed.clear()
                try:
                    self._take(channel, message)
                except BadMessage as error:
                    self._ear.unreadable(message.frames, error)
                self._waiting.popleft()
                if channel == "iopub" and not _is_idle(message):
                    unflushed.append((channel, message))
            self._ear.flush()
        except EnvironmentFault as error:
            log.warning("output waits in memory: %s", error.message)
            self._ear.forget()
            self._waiting.extendleft(reversed(unflushed))
            self._retry = self._reactor.after(RETRY, self._again)
            return False
        return True

    def _again(self) -> None:
        self._retry = None
        self.drain()

    def _take(self, channel: str, message: Message) -> None:
        if channel == "iopub":
            topic = message.identities[0] if message.identities else b""
            self._ear.iopub(topic, message.frames)
            if self._reply is not None and message.parent().msg_id == self._reply[1].msg_id:
                self._last_heard = time.monotonic_ns()
                if _is_idle(message):
                    self._end_anyway()
        elif channel == "stdin":
            self._ear.asked(message.parent(), message.frames, None)
        else:
            self._replied(message, message.parent())

    def _replied(self, message: Message, parent: Header) -> None:
        running = self._state().running
        arrived = time.monotonic_ns()
        if running is not None and running.execution.msg_id == parent.msg_id:
            if self._reply is not None and self._reply[1].msg_id == parent.msg_id:
                return  # a second reply: the first one counts
            if running.idle_at is None:
                self._reply = (message, parent, arrived)
                self._last_heard = arrived
                self._patience = self._reactor.after(IDLE_PATIENCE, self._impatient)
                return
        self._ear.replied(parent, message.frames, None, arrived)

    def _impatient(self) -> None:
        if self._reply is None:
            return
        now, arrived = time.monotonic_ns(), self._reply[2]
        last = min(self._last_heard + int(IDLE_PATIENCE * 1e9), arrived + int(_MOST_PATIENCE * 1e9))
        if now < last:
            self._patience = self._reactor.at(last, self._impatient)
        else:
            self._end_anyway()

    def end(self) -> None:
        """Let the reply that waits count.

        Raises:
            EnvironmentFault: the journal refused; it waits on.
        """
        if self._reply is None:
            return
        message, parent, arrived = self._reply
        running = self._state().running
        if running is not None and running.execution.msg_id == parent.msg_id and running.idle_at is None:
            self._ear.unended(running.execution.execution_id)
        self._ear.replied(parent, message.frames, None, arrived)
        self._reply = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end_anyway(self) -> None:
        """Let the reply that waits count, now or as soon as the journal takes it."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        try:
            self.end()
        except EnvironmentFault as error:
            log.warning("a reply waits for the journal: %s", error.message)
        if self._reply is not None:
            self._patience = self._reactor.after(RETRY, self._end_anyway)

    def finish(self) -> bool:
        """The kernel says no more: hand over all there is; False when the journal refuses."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self.drain():
            return False
        try:
            self.end()
        except EnvironmentFault as error:
            log.warning("a reply waits for the journal: %s", error.message)
            return False
        return True


def _is_idle(message: Message) -> bool:
    return message.header.msg_type == "status" and b'"idle"' in message.frames[4]
