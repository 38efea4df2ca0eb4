"""The end of a session's kernel, and of what it left behind.

`stop` ends the kernel, then every process of the session, and answers with what was ended and what would
not end. Which those are, the session's mark in their environment says, and, where a process has cleared it,
its parents or that it was orphaned into our care (`world.processes`). A shutdown that a Jupyter client asks
for ends the kernel only.

Invariant: nothing is signalled by its number alone, and nothing that only looks like the session's.
Not promised: that a process is found which cleared its environment and was orphaned while another than the
supervisor that started the kernel was there: it belongs to init, and nothing leads back to the session.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernel_runtime import process
from kernel_runtime.core.lifecycle import State
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.masking import mask_argv
from kernel_runtime.errors import EnvironmentFault, KernelRuntimeError
from kernel_runtime.supervisor import launch
from kernel_runtime.supervisor.shell import Token

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

LEFT_KILL = 2.0
"""seconds that processes left behind have after SIGTERM, in a `stop`"""
_LOOK = 0.05
_HOLDERS = 0.6
"""seconds after the SIGKILL that the holders of managed processes have"""


class Ending:
    """Ends things, and tells whoever asked once they have ended."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self.stopping = False
        """the session is being stopped, not only its kernel"""
        self._token: Token | None = None
        self._left: dict[process.ProcessId, dict[str, Any]] = {}
        """what was told to end"""
        self._ending_left = False
        self._shutdown_tokens: list[Token] = []

    def shutdown_requested(self, principal: str, token: Token, *, restart: bool) -> None:
        """A Jupyter client asks the kernel to shut down."""
        shell = self._s.shell
        try:
            if restart and self._s.ephemeral is None:
                shell.apply(m.RestartRequested(token=token, principal=principal))
                return
            if shell.state.kernel not in ("up", "starting"):
                token.respond({})
                return
            self._shutdown_tokens.append(token)
            # the manager of an ephemeral session starts the next incarnation itself, with a new owner
            reason = "jupyter restart" if restart else "jupyter shutdown"
            shell.apply(m.StopRequested(token=None, principal=principal, reason=reason))
        except KernelRuntimeError as error:
            token.refuse(error)

    def stop(self, principal: str, token: Token | None) -> None:
        """End the kernel and every process of the session, then leave."""
        self._token = token
        self.stopping = True
        # whose parents lead to the kernel now, and nowhere once it is gone, is known by then
        self._s.world.look()
        if self._s.shell.state.kernel not in ("up", "starting"):
            self._end_left()
            return
        try:
            self._s.shell.apply(m.StopRequested(token=None, principal=principal))
        except EnvironmentFault:
            # refused: nothing is being stopped, and a later end of the kernel is not ours
            self._token, self.stopping = None, False
            raise

    def kernel_is_down(self, state: State) -> bool:
        """Go on with what waited for the kernel's end; True when the session ends with it."""
        if self._shutdown_tokens and not state.restarting:
            tokens, self._shutdown_tokens = self._shutdown_tokens, []
            for token in tokens:
                token.respond({})
        if self.stopping:
            self._end_left()
        return self.stopping

    def _end_left(self) -> None:
        if self._ending_left:
            return
        self._ending_left = True
        self._s.terminals.end_all()
        self._signal_left(signal.SIGTERM)
        deadline = time.monotonic() + LEFT_KILL

        def look() -> None:
            holding = self._s.terminals.ending()
            if not (self._living() or holding):
                # what was started meanwhile, or lost its parents only now
                self._signal_left(signal.SIGTERM)
            left = self._living()
            late = time.monotonic() - deadline
            if not (left or holding) or late > 1:
                self._stopped([self._left[who] for who in left])
                return
            if late > 0:
                # a holder has to see how its command ended, and to write it down
                self._signal_left(signal.SIGKILL, with_holders=late > _HOLDERS)
            self._s.reactor.after(_LOOK, look)

        look()

    def _living(self) -> list[process.ProcessId]:
        return [who for who in self._left if process.is_alive(who)]

    def _signal_left(self, signum: int, *, with_holders: bool = False) -> None:
        """Signal every process of the session; what was not known before is added to what is told of."""
        spare = set() if with_holders else set(self._s.terminals.holders())
        record = self._s.keeper.record
        kernel = {record.process, record.foster} if record is not None else set()
        for who, execution_id in self._found().items():
            if who.pid in spare or who in kernel:
                continue
            if who not in self._left:
                argv = mask_argv(process.command_line(who.pid))
                self._left[who] = {"pid": who.pid, "argv": argv, "execution_id": execution_id}
            with contextlib.suppress(PermissionError):
                process.signal_process(who, signum)

    def _found(self) -> dict[process.ProcessId, str | None]:
        """The session's processes, each with the execution that started it."""
        session_id = self._s.identity.session_id
        found = {
            who: launch.started_by_execution(session_id, env)
            for who, env in process.marked_processes(launch.MARK, session_id)
        }
        for member in self._s.world.look():
            if member.stat.state not in "ZX":
                who = process.ProcessId(member.stat.pid, member.stat.start_time, process.boot_id())
                found[who] = found.get(who) or member.execution_id
        return found

    def _stopped(self, left: list[dict[str, Any]]) -> None:
        self._s.notebooks.write_now()
        self._s.terminals.close_books()
        ended = self._s.terminals.described(list(self._left.values()))
        result: Mapping[str, Any] = {"stopped": True, "ended": ended, "left": left}
        if self._token is not None:
            self._token.respond(result)
        self._s.leave("stop")
