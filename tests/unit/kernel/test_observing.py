"""When the kernel looks at its heap in idle moments, and when it may stop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_runtime.kernel.observing import Observer
from kernel_runtime.kernel.probe.heap import HeapProbe


class Loop:
    """Keeps what is to be called later."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, what: Callable[[], None]) -> object:
        self.due.append((seconds, what))
        return what

    def run_next(self) -> float:
        seconds, what = self.due.pop(0)
        what()
        return seconds


class Heap:
    """A heap that takes so many slices to be looked at."""

    def __init__(self, slices: int) -> None:
        self._slices = self._left = slices
        self.looks = 0
        self.drift: dict[str, Any] | None = None

    @property
    def wants_scan(self) -> bool:
        return self._left > 0

    def scan(self, seconds: float, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        self._left = (self._left or self._slices) - 1
        self.looks += self._left == 0
        found, self.drift = self.drift, None
        return found


class Outbox:
    def __init__(self) -> None:
        self.rings = 0
        self.sent: list[bytes] = []

    def ring(self) -> None:
        self.rings += 1

    def message(self, channel: str, frames: list[bytes]) -> None:
        assert channel == "probe"
        self.sent.append(frames[0])


class Watched(Observer):
    """An observer of a kernel that has nothing but a loop and an outbox."""

    def __init__(self, slices: int, runs: list[list[str]]) -> None:
        self.loop, self.outbox, self.runs = Loop(), Outbox(), runs
        self._kernel: Any = SimpleNamespace(io_loop=self.loop, outbox=self.outbox)
        self.heap: Any = Heap(slices)
        self._effects: Any = SimpleNamespace(take_late=list)
        self._look = None
        self._pause = 0.5
        self._unsettled = False
        self._later()

    def _volatile(self) -> list[str]:
        return self.runs.pop(0) if self.runs else []


def test_a_heap_beside_which_nothing_runs_is_looked_at_once() -> None:
    watched = Watched(3, [])
    assert [watched.loop.run_next() for _ in range(3)] == [0.5, 0.5, 0.5]
    assert (watched.loop.due, watched.heap.looks) == ([], 1)
    assert (watched.outbox.sent, watched.outbox.rings) == ([], 0)


@pytest.mark.parametrize("seen", range(6))
def test_what_ran_beside_the_look_and_has_ended_costs_another_look(seen: int) -> None:
    """A thread changes a name that the look has passed, and ends before it is through.

    It is seen at the start or the end of one of three slices, and at none later. The look that it
    ran beside proves nothing of what was read first, so there is another, which it did not run beside.
    """
    watched = Watched(3, [*([] for _ in range(seen)), ["thread t"]])
    while watched.loop.due:
        watched.loop.run_next()
    assert watched.heap.looks == (3 if seen == 5 else 2)  # seen after the last slice: it may run on
    assert watched.loop.due == []


def test_as_long_as_something_runs_looks_go_on_ever_more_seldom() -> None:
    watched = Watched(1, [["thread t"] for _ in range(100)])
    pauses = [watched.loop.run_next() for _ in range(9)]
    assert pauses[:4] == [0.5, 0.5, 1.0, 2.0]
    assert max(pauses) == 60.0


def test_what_is_found_in_an_idle_moment_wakes_the_reader() -> None:
    """No execution ends, so nothing else would; it would be on record when somebody next asks."""
    watched = Watched(1, [])
    watched.heap.drift = {"names": {"x": {"how": "mutated"}}}
    watched.loop.run_next()
    assert (watched.outbox.sent, watched.outbox.rings) == ([b"krt_drifted"], 1)


def test_what_ended_before_the_next_cell_began_is_looked_for() -> None:
    """A thread that ran on when the last execution was looked at, changed a name and ended."""
    namespace: dict[str, Any] = {}
    probe = HeapProbe(namespace)
    probe.begin([])
    code = compile("rows = [1]", "<cell>", "exec")
    probe.ran(code)
    exec(code, namespace)
    probe.end(True, ["thread t"])
    namespace["rows"].append(2)
    found = probe.begin([], ended=True)
    assert found is not None
    assert found["names"]["rows"]["how"] == "mutated"
    assert probe.begin([], ended=True) is None
