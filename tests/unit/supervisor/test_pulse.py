"""Whose silence makes a kernel unresponsive."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from kernel_runtime import process
from kernel_runtime.core.lifecycle import State
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.supervisor.pulse import SILENT_AFTER, Pulse


class Rig:
    """A pulse with a clock and kernels of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.pid = 11
        self.state = State(session="s", incarnation=1, kernel="up")
        self.asked: list[str] = []
        self.happened: list[m.Event] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(process, "run_state", lambda _pid: "S")
        self.pulse = Pulse(
            self,  # type: ignore[arg-type]
            lambda: self.state,
            pid=lambda: self.pid,
            ask=self._ask,
            happen=self.happened.append,
            on_watch=lambda: None,
        )

    def after(self, seconds: float, call: Any) -> Any:
        del seconds, call
        return self

    def cancel(self) -> None:
        """As a timer."""

    def _ask(self) -> str:
        self.asked.append(f"alive-{len(self.asked)}")
        return self.asked[-1]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


def test_a_kernel_that_does_not_answer_in_time_is_unresponsive(rig: Rig) -> None:
    rig.pulse.look()
    rig.now += SILENT_AFTER
    rig.pulse.look()
    assert [type(event) for event in rig.happened] == [m.TurnedUnresponsive]


def test_the_silence_of_a_kernel_that_was_replaced_is_not_the_next_ones(rig: Rig) -> None:
    """A page asks for the state while its session restarts; the kernel on its way out does not answer.

    The question stood open over the restart, and the new kernel, up after more than six seconds on a busy
    machine, was called unresponsive at the first look, for a question that it was never asked. It was not
    asked again either, so that this stayed until the next restart. Each kernel is asked for itself.
    """
    rig.pulse.look()
    rig.state = replace(rig.state, incarnation=2, kernel="starting")
    rig.now += 2 * SILENT_AFTER
    rig.pid, rig.state = 12, replace(rig.state, kernel="up")
    rig.pulse.look()
    assert rig.happened == []
    assert len(rig.asked) == 2
    assert rig.pulse.answered(rig.asked[1])
    assert not rig.pulse.answered(rig.asked[0])
