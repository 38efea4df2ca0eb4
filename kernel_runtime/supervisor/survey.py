"""What a status says, gathered from everybody who knows a part of it, while the supervisor goes on.

The kernel is asked for its names as they are now, claims are checked, the world is looked at, and a
busy cell is asked why it is busy. Each has its time; what did not come by then is told as what the
journal knows, and nothing waits for a kernel that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.model.truth import Report

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

SNAPSHOT_WITHIN = 1.0
_SNAPSHOT = 0.5
"""seconds the kernel has for looking at its names, within the time it has for the answer"""
CLAIMS_WITHIN = 5.0
OBSERVED_WITHIN = 0.5
OBSERVED_WITHIN_STATUS = 3.0
"""seconds that an observation of the last execution may still need: an attach is told what is known by then,
a status waits for a large heap to be read"""
_AGAIN = 0.01


class Survey:
    """One status on its way to `on_done` or `on_fault`; one of them is called, once."""

    def __init__(
        self,
        supervisor: Supervisor,
        limit: int | None,
        on_done: Callable[[Report], None],
        on_fault: Callable[[KernelRuntimeError], None],
    ) -> None:
        self._s = supervisor
        self._limit = limit
        self._on_done, self._on_fault = on_done, on_fault
        self._parts: dict[str, Any] = {}
        self._waiting = {"snapshot", "claims", "activity"}

    def begin(self) -> None:
        self._s.keeper.look()
        self._s.claims.rows(check=True, on_done=lambda rows: self._have("claims", rows), budget=CLAIMS_WITHIN)
        state = self._s.shell.state
        if state.running is not None and state.kernel == "up":
            self._s.world.activity.describe(lambda found: self._have("activity", found))
        else:
            self._have("activity", None)
        when_observed(self._s, self._ask, OBSERVED_WITHIN_STATUS)

    def _ask(self) -> None:
        self._s.questions.ask(
            "snapshot",
            {"seconds": _SNAPSHOT},
            lambda found: self._have("snapshot", found),
            SNAPSHOT_WITHIN,
        )

    def _have(self, part: str, found: Any) -> None:
        self._parts[part] = found
        self._waiting.discard(part)
        if self._waiting:
            return
        try:
            report = self._report()
        except KernelRuntimeError as error:
            self._on_fault(error)
            return
        self._on_done(report)

    def _report(self) -> Report:
        state = self._s.shell.state
        report = self._s.reporter.full(state, self._limit, self._parts["snapshot"])
        why = report.why
        if self._parts["activity"] is not None and state.running is not None:
            why = {**why, "activity": self._parts["activity"]}
        return replace(report, resources=self._s.world.resources(), claims=self._parts["claims"], why=why)


def when_observed(supervisor: Supervisor, then: Callable[[], None], within: float = OBSERVED_WITHIN) -> None:
    """Call `then` when the probe has told of the last execution, or after `within` seconds.

    At once if it has, which is so but for the first milliseconds after an execution.
    """
    pump = supervisor.pump
    pump.read()
    looks = int(within / _AGAIN)

    def look() -> None:
        nonlocal looks
        looks -= 1
        if pump.is_observed or looks < 0 or supervisor.shell.state.kernel != "up":
            then()
            return
        supervisor.reactor.after(_AGAIN, again)

    def again() -> None:
        pump.read()
        look()

    look()
