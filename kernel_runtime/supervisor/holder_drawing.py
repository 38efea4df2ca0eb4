"""When a holder feeds its screen: when somebody asks, a little at a time, and never all of a flood.

pyte reads some hundred kB a second, and a holder has a terminal to empty meanwhile. So the last `WINDOW`
bytes are kept, and drawn in slices between everything else. `holder_screen`, 3 MB with pyte, is loaded at
the first question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WINDOW = 128 << 10
"""bytes of output that a screen is made from at most"""
SLICE = 8 << 10
"""bytes that are fed between two looks at everything else"""


class Drawing:
    """The output last heard, and a screen that follows it on demand."""

    def __init__(self, rows: int, cols: int) -> None:
        self.rows, self.cols = rows, cols
        self._recent = bytearray()
        self._said = 0
        self._fed = 0
        """how much of what was said the screen has been fed"""
        self._screen: Any = None
        self._since = "start"
        self._wanted: list[Callable[[], None]] = []
        self._slices = 0

    @property
    def pending(self) -> bool:
        """Whether somebody waits for the screen."""
        return bool(self._wanted)

    def heard(self, data: bytes) -> None:
        self._said += len(data)
        self._recent += data[-2 * WINDOW :]
        if len(self._recent) > 2 * WINDOW:
            del self._recent[:-WINDOW]

    def resize(self, rows: int, cols: int) -> None:
        """What was said so far was for the old size."""
        if self._screen is not None:
            if self._said - self._fed <= SLICE:
                self._feed(self._said - self._fed)
            self._screen.resize(rows, cols)
        self.rows, self.cols = rows, cols

    def when_drawn(self, call: Callable[[], None]) -> None:
        """Call once the screen shows all that was said; `step` until then."""
        if not self._wanted:
            self._slices = 0
            self._begin()
        self._wanted.append(call)

    def step(self) -> None:
        """Feed a little; call those who wait once nothing is left."""
        self._slices += 1
        left = self._said - self._fed
        if left > WINDOW or self._slices > 2 * WINDOW // SLICE:
            # it says more than can be drawn: what is not fed by now is left out
            self._fed = max(self._fed, self._said - SLICE)
            self._since = "cut"
            left = self._said - self._fed
        self._feed(min(left, SLICE))
        if self._fed == self._said:
            wanted, self._wanted = self._wanted, []
            for call in wanted:
                call()

    def document(self) -> dict[str, Any]:
        return {**self._screen.document(), "since": self._since}

    def render(self) -> bytes:
        """What puts another terminal into this one's state."""
        rendered: bytes = self._screen.render()
        return rendered

    def _begin(self) -> None:
        if self._screen is not None and self._said - self._fed <= WINDOW:
            return
        from kernel_runtime.supervisor import holder_screen

        recent = bytes(self._recent[-WINDOW:])
        skip, self._since = holder_screen.beginning(recent, complete=len(recent) == self._said)
        self._screen = holder_screen.TerminalScreen(self.rows, self.cols)
        self._fed = self._said - len(recent) + skip

    def _feed(self, size: int) -> None:
        at = len(self._recent) - (self._said - self._fed)
        piece = bytes(self._recent[at : at + size])
        self._fed += len(piece)
        self._screen.feed(piece)
