"""What a status says, gathered from everybody who knows a part of it, while the supervisor goes on.

The kernel is asked for its names as they are now, claims are checked, the world is looked at, and a
busy cell is asked why it is busy. Each has its time; what did not come by then is told as what the
journal knows, and nothing waits for a kernel that does not answer. The journal is read beside the reactor
(`aside`), however many cells it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.model.truth import Report
from kernel_runtime.supervisor.aside import Made
from kernel_runtime.supervisor.world.resources import WORLD_WITHIN
from kernel_runtime.supervisor.world.rows import settings_rows

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
    """One status on its way to `on_done` or `on_fault`; one of them is called, once.

    `on_done` gets the journal's report and the document that is told, with everybody's part in it.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        limit: int | None,
        on_done: Callable[[Report, dict[str, Any]], None],
        on_fault: Callable[[KernelRuntimeError], None],
    ) -> None:
        self._s = supervisor
        self._limit = limit
        self._on_done, self._on_fault = on_done, on_fault
        self._parts: dict[str, Any] = {}
        self._waiting = {"snapshot", "claims", "activity", "world"}

    def begin(self) -> None:
        self._s.keeper.look()
        self._s.claims.rows(check=True, on_done=lambda rows: self._have("claims", rows), budget=CLAIMS_WITHIN)
        state = self._s.shell.state
        if state.running is not None and state.kernel == "up":
            self._s.world.activity.describe(lambda found: self._have("activity", found))
        else:
            self._have("activity", None)
        self._s.questions.ask("world", {}, lambda found: self._have("world", found), WORLD_WITHIN)
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
        self._s.reports.ask(self._limit, self._parts["snapshot"], self._made, self._on_fault)

    def _made(self, made: Made) -> None:
        why = made.report.why
        if self._parts["activity"] is not None and "execution_id" in why:
            why = {**why, "activity": self._parts["activity"]}
            if unseen := self._s.tty.unseen:
                # processes that have the kernel's terminal, sleep, and may not be looked into
                why["unseen"] = list(unseen)
        try:
            resources = [*self._s.world.resources(), *settings_rows(self._parts["world"] or {})]
        except KernelRuntimeError as error:
            self._on_fault(error)
            return
        if why.get("execution_id") is not None:
            # a cell that waits does so for one of these more often than not
            mine = [row for row in resources if row["kind"] == "process" and row["truth"] == "true"]
            mine = [row for row in mine if row["started_by"] == why["execution_id"]]
            why = {**why, "processes": [{"pid": row["pid"], "command": row["command"]} for row in mine]}
        document = made.document(resources=resources, claims=self._parts["claims"], why=why)
        self._on_done(made.report, document)


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
