"""When the reply of a kernel that is not ours counts, on a clock that only the test turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_runtime.core.lifecycle import State
from kernel_runtime.core.lifecycle.state import Pending, Running
from kernel_runtime.supervisor import foreign
from kernel_runtime.supervisor.foreign import IDLE_PATIENCE, ForeignVoice
from kernel_runtime.supervisor.reactor import Reactor, Timer
from kernel_runtime.wire import DELIMITER, BadMessage, Header, Message, Signer

SIGNER = Signer(b"k")
PARENT = SIGNER.build("execute_request", {}, session="c", msg_id="m")[1]


class Clock:
    """A reactor's timers, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1
        self.timers: list[Timer] = []
        monkeypatch.setattr(foreign, "time", SimpleNamespace(monotonic_ns=lambda: self.now))

    def after(self, seconds: float, call: Callable[[], object]) -> Timer:
        return self.at(self.now + int(seconds * 1e9), call)

    def at(self, due: int, call: Callable[[], object]) -> Timer:
        self.timers.append(Timer(due, call))
        return self.timers[-1]

    def after_handlers(self, call: Callable[[], object]) -> None:
        pass

    def turn(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)
        due = [timer for timer in self.timers if timer.due <= self.now]
        self.timers = [timer for timer in self.timers if timer.due > self.now]
        for timer in due:
            if timer.call is not None:
                timer.call()


class Heard:
    """What the journal would get."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        execution = Pending(execution_id="x", cell_id="c", msg_id="m", principal="p", client="c")
        self.running: Running | None = Running(execution=execution, dispatched_at=0)

    def state(self) -> State:
        return cast("State", SimpleNamespace(running=self.running))

    def iopub(self, topic: bytes, frames: Sequence[bytes]) -> None:
        self.happened.append(topic.decode())

    def flush(self, *, gaps: bool = False) -> None: ...

    def forget(self) -> None: ...

    def unended(self, execution_id: str) -> None:
        self.happened.append(f"gap of {execution_id}")

    def unreadable(self, frames: Sequence[bytes], error: BadMessage) -> None: ...

    def asked(self, parent: Header, frames: Sequence[bytes], position: int | None) -> None: ...

    def replied(
        self, parent: Header, frames: Sequence[bytes], position: int | None, arrived: int | None = None
    ) -> None:
        self.happened.append("ended")
        self.running = None


def message(kind: str, content: dict[str, Any], topic: str = "", parent: bytes = PARENT) -> Message:
    frames = SIGNER.build(kind, content, session="k", parent=parent)
    return SIGNER.split([topic.encode(), DELIMITER, *frames])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def voice(clock: Clock, heard: Heard) -> ForeignVoice:
    voice = ForeignVoice(cast("Reactor", clock), heard.state, heard)
    voice.heard("shell", message("execute_reply", {"status": "ok"}))
    assert voice.drain()
    return voice


def say(voice: ForeignVoice, text: str, parent: bytes = PARENT) -> None:
    voice.heard("iopub", message("stream", {"name": "stdout", "text": text}, text, parent))
    assert voice.drain()


def test_idle_ends_it(clock: Clock, heard: Heard, voice: ForeignVoice) -> None:
    say(voice, "one")
    assert heard.running is not None
    heard.running = Running(execution=heard.running.execution, dispatched_at=0, idle_at=clock.now)
    voice.heard("iopub", message("status", {"execution_state": "idle"}, "idle"))
    assert voice.drain()
    assert heard.happened == ["one", "idle", "ended"]
    clock.turn(100 * IDLE_PATIENCE)
    assert heard.happened == ["one", "idle", "ended"]


def test_patience_is_with_silence(clock: Clock, heard: Heard, voice: ForeignVoice) -> None:
    """Mechanism: it ran from the reply on, and outputs that took longer to come came after the end."""
    for text in ("one", "two", "three"):
        clock.turn(0.6 * IDLE_PATIENCE)
        say(voice, text)
    clock.turn(0.9 * IDLE_PATIENCE)
    assert heard.happened == ["one", "two", "three"]
    clock.turn(0.2 * IDLE_PATIENCE)
    assert heard.happened == ["one", "two", "three", "gap of x", "ended"]


def test_what_another_request_says_is_silence(clock: Clock, heard: Heard, voice: ForeignVoice) -> None:
    other = SIGNER.build("execute_request", {}, session="c", msg_id="before")[1]
    for _ in range(2):
        clock.turn(0.6 * IDLE_PATIENCE)
        say(voice, "late", other)
    assert heard.happened == ["late", "gap of x", "ended", "late"]


def test_who_prints_for_ever_does_not_run_for_ever(clock: Clock, heard: Heard, voice: ForeignVoice) -> None:
    said = 0
    while "ended" not in heard.happened:
        clock.turn(0.5 * IDLE_PATIENCE)
        say(voice, "more")
        said += 1
        assert said < 1000
    assert heard.happened[-3:] == ["gap of x", "ended", "more"]
