"""The order in which a supervisor takes what happened, with real descriptors and timers."""

from __future__ import annotations

import os

from kernel_runtime.supervisor.reactor import Reactor


def test_what_has_come_is_taken_before_what_is_due() -> None:
    """Mechanism: a supervisor that was stopped for a second, or got no processor, finds a kernel's reply in
    a socket and the timer that ends the waiting for it, both due. Right: the reply counts. Messages are
    gathered by their handler and taken once all handlers of the round are done; timers come after that.
    """
    reactor = Reactor()
    happened: list[str] = []
    come: list[bytes] = []
    told, tell = os.pipe()
    reactor.watch(told, lambda: come.append(os.read(told, 100)))

    def take() -> None:
        happened.extend(one.decode() for one in come)
        come.clear()

    reactor.after_handlers(take)
    os.write(tell, b"reply")
    reactor.at(0, lambda: happened.append("too late"))

    def last() -> None:
        come.append(b"said by a timer")
        reactor.stop()

    reactor.at(1, last)
    reactor.run()
    assert happened == ["reply", "too late", "said by a timer"]
    os.close(told)
    os.close(tell)
