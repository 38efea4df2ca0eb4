# mypy: disable-error-code="union-attr"
"""The probe's place in the kernel: before a cell, after its idle, and in quiet moments.

What was seen goes into the outbox on channel `probe`: `krt_observed` after each execution,
`krt_drifted` when names changed while none ran, `krt_effects` for what threads did later. It happens
after the execution's reply and idle are out, on the main thread and before the next request, so nobody
waits for it and no cell runs meanwhile. Whatever the user's objects do, nothing is raised from here.
"""

from __future__ import annotations

import select
import sys
import time
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from kernel_runtime.kernel import effects, settings
from kernel_runtime.kernel.attribution import Parent
from kernel_runtime.kernel.jsonpack import pack
from kernel_runtime.kernel.probe import layout as lay
from kernel_runtime.kernel.probe.heap import HeapProbe

if TYPE_CHECKING:
    from kernel_runtime.kernel.kernel import SessionKernel

_NOBODY = b"{}"
_FIRST_LOOK = 0.5
_LAST_LOOK = 60.0
"""seconds of idleness before the first scan, and between two when nothing has changed for long"""
_SCAN = 0.25
"""seconds that one scan may take; a request ends it at once"""


class Observer:
    """Looks at one kernel's heap and effects. Everything here is called on the main thread."""

    def __init__(self, kernel: SessionKernel) -> None:
        self._kernel = kernel
        shell = kernel.shell
        self.heap = HeapProbe(shell.user_ns, shell.user_ns_hidden, holders=lambda: (vars(shell.displayhook),))
        own = [str(kernel.outbox.directory)]
        settings.start(own)
        self._effects = effects.Effects()
        self._effects.install(own, kernel.capture)
        effects.register(kernel.shell)
        self.ended_well = False
        self._touched: list[str] = []
        self._was_volatile = True
        self._ran_on = False
        """whether something still ran when the last execution had been looked at"""
        self._unsettled = False
        """whether something ran beside the look at the whole heap that is under way"""
        self._parent: bytes | None = None
        """raw header of the request whose cell runs"""
        self._declared: str | None = None
        self._look: Any = None
        self._pause = _FIRST_LOOK
        self._hooks = frozenset(map(id, self._hooks_now()))

    def begin(self, code: str, request: Parent) -> str:
        """Right before a cell runs; the code to run, without the line that declares its effects."""
        self._cancel()
        self.ended_well = False
        self._parent = request.raw
        self._declared, code = effects.declared_by(code, request.message.get("metadata"))
        # what could start something has been looked at after it ran
        volatile = self._volatile() if self._was_volatile or self._touched else []
        self._was_volatile = bool(volatile)
        # what has ended since then may have changed something first
        drift = self.heap.begin(volatile, ended=self._ran_on, hooked=self._is_hooked())
        self._touched.clear()
        if drift is not None:
            self._send("krt_drifted", {**drift, "found": "before"}, _NOBODY)
        self._effects.begin(request.header["msg_id"], look=False)
        return code

    def ran(self, code: CodeType) -> None:
        """The shell is about to run this."""
        with self._kernel.interrupts.held():
            self.heap.ran(code)
            if not self.heap.is_quiet:
                self._effects.look()

    def end(self, msg_type: str) -> None:
        """A request's reply and idle are out."""
        parent, self._parent = self._parent, None
        if parent is None:
            # a comm message, a completion: code of the user's may have run, and no cell
            self._touched.append(msg_type)
            return
        began = time.perf_counter_ns()
        found, unseen = self._effects.end()
        # a cell that calls nothing starts nothing
        volatile = self._volatile() if self._was_volatile or not self.heap.is_quiet else []
        self._was_volatile = self._ran_on = bool(volatile)
        self._kernel.shell.forget_inputs()
        content = self.heap.end(self.ended_well, volatile)
        if not self.heap.is_quiet:
            settings.note()
        content |= {"effects": found, "unseen": unseen, "declared": self._declared}
        content["nanoseconds"] = time.perf_counter_ns() - began
        self._send("krt_observed", content, parent)
        if (drift := self.heap.take_drift()) is not None:
            self._send("krt_drifted", {**drift, "found": "after"}, _NOBODY)
        self._late_effects()
        self._pause = _FIRST_LOOK
        self._later()

    def _hooks_now(self) -> list[Any]:
        """What IPython calls with every cell."""
        shell = self._kernel.shell
        manager = shell.input_transformer_manager
        lists = [*shell.events.callbacks.values(), shell.ast_transformers, shell.input_transformers_post]
        lists += [manager.cleanup_transforms, manager.line_transforms, manager.token_transformers]
        return [hook for hooks in lists for hook in hooks]

    def _is_hooked(self) -> bool:
        """Whether code that is neither the kernel's nor a module's own runs with every cell."""
        if sys.gettrace() is not None or sys.getprofile() is not None:
            return True
        try:
            new = [hook for hook in self._hooks_now() if id(hook) not in self._hooks]
        except Exception:  # noqa: BLE001 - somebody put something else there
            return True
        return not all(
            type(hook) is FunctionType and lay.found_by_name(hook, hook.__module__, hook.__qualname__)
            for hook in new
        )

    def _volatile(self) -> list[str]:
        return [*self._touched, *settings.volatile()]

    # -- quiet moments

    def _later(self) -> None:
        pause = self._pause
        if self.heap.wants_scan:
            pause = _FIRST_LOOK  # the look at the whole heap goes on
        else:
            self._pause = min(2 * self._pause, _LAST_LOOK)
        self._look = self._kernel.io_loop.call_later(pause, self._scan)

    def _cancel(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            self._kernel.io_loop.remove_timeout(look)

    def _scan(self) -> None:
        """Look at everything, for names that changed while no cell ran, and for what was too much before."""
        self._look = None
        beside = bool(self._volatile())
        drift = self.heap.scan(_SCAN, self._is_wanted)
        if drift is not None:
            self._send("krt_drifted", {**drift, "found": "idle"}, _NOBODY)
        if self._late_effects() or drift is not None:
            self._kernel.outbox.ring()  # nothing else would: no execution ends
        goes_on = bool(self._volatile())
        self._unsettled = self._unsettled or beside or goes_on
        if self.heap.wants_scan:
            self._later()
        elif self._unsettled:
            # What ran beside it may have changed what had been read by then, and have ended before the
            # next slice. Only a look that nothing ran beside tells all.
            self._unsettled = goes_on
            self._later()

    def _is_wanted(self) -> bool:
        """Whether a request may wait.

        Asked of the descriptor: asking the socket would take the signal that its stream waits for, and
        what arrived meanwhile would lie there until the next message.
        """
        return bool(select.select([self._kernel.shell_stream.socket.FD], [], [], 0)[0])

    def _late_effects(self) -> bool:
        """Send what threads did after their execution; whether there was any."""
        late: dict[str | None, list[dict[str, Any]]] = {}
        for msg_id, effect in self._effects.take_late():
            late.setdefault(msg_id, []).append(effect)
        for msg_id, found in late.items():
            header = pack({"msg_id": msg_id, "msg_type": "execute_request"}) if msg_id else _NOBODY
            self._send("krt_effects", {"effects": found}, header)
        return bool(late)

    def _send(self, kind: str, content: dict[str, Any], parent: bytes) -> None:
        # no message of the protocol: it goes to no client, and the outbox is ours alone
        self._kernel.outbox.message("probe", [kind.encode(), parent, pack(content)])
