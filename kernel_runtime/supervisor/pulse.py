"""Does the kernel answer? A busy one is looked at now and then, an idle one when somebody asks.

A kernel that is stopped, or that does not let its control thread run, is unresponsive, never dead: nothing
here ends or restarts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kernel_runtime import process
from kernel_runtime.core.lifecycle import State
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.supervisor.reactor import Reactor, Timer

WATCH_EVERY = 2.0
"""seconds between looks at a busy kernel"""
SILENT_AFTER = 6.0
"""seconds of silence on control that make a kernel `unresponsive`"""
_STOPPED = ("T", "t")


class Pulse:
    """Looks at one kernel process after the other.

    `pid` tells the kernel that can be asked, None while there is none; `ask` sends a question on control
    and returns its name; `happen` applies an event; `on_watch` is called as long as the kernel is busy.
    """

    def __init__(
        self,
        reactor: Reactor,
        state: Callable[[], State],
        *,
        pid: Callable[[], int | None],
        ask: Callable[[], str],
        happen: Callable[[m.Event], None],
        on_watch: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._state = state
        self._pid = pid
        self._ask = ask
        self._happen = happen
        self._on_watch = on_watch
        self._timer: Timer | None = None
        self._asked: tuple[str, float] | None = None
        """the question that is not answered yet, and since when nothing was heard"""
        self._asked_pid: int | None = None
        """whom"""

    def watch(self) -> None:
        """Look at a busy kernel from now on, no longer at an idle one."""
        state = self._state()
        wanted = state.kernel == "up" and (state.running is not None or state.unresponsive is not None)
        if wanted and self._timer is None:
            self._on_watch()
            self._timer = self._reactor.after(WATCH_EVERY, self._due)
        elif not wanted and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._asked = None

    def _due(self) -> None:
        self._timer = None
        self.look()
        self.watch()

    def look(self) -> None:
        """Is the kernel stopped, or silent?"""
        pid = self._pid()
        if pid is None or self._state().kernel != "up":
            return
        if pid != self._asked_pid:
            # one that is being replaced answers no more, and its silence is not the next one's
            self._asked, self._asked_pid = None, pid
        letter = process.run_state(pid)
        if letter in _STOPPED:
            if self._asked is not None:
                self._asked = (self._asked[0], time.monotonic())  # the stopped are not silent
            self._happen(m.TurnedUnresponsive(evidence={"process": "stopped", "state": letter}))
            return
        if self._asked is not None:
            silent = time.monotonic() - self._asked[1]
            if silent >= SILENT_AFTER:
                evidence = {"control": "silent", "seconds": round(silent, 1), "state": letter}
                self._happen(m.TurnedUnresponsive(evidence=evidence))
            return
        self._asked = (self._ask(), time.monotonic())

    def answered(self, msg_id: str) -> bool:
        """Whether this answers our question; then the kernel is there."""
        if self._asked is None or msg_id != self._asked[0]:
            return False
        self._asked = None
        pid = self._pid()
        stopped = pid is not None and process.run_state(pid) in _STOPPED
        # what it said right before it was stopped does not tell that it goes on
        if self._state().unresponsive is not None and not stopped:
            self._happen(m.TurnedResponsive())
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
