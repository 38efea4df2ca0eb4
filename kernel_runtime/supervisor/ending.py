"""The end of a session's kernel, and of what it left behind.

`stop` ends the kernel, then every marked process of the session, and answers with what was ended and
what would not end. A shutdown that a Jupyter client asks for ends the kernel only.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernel_runtime import process
from kernel_runtime.core.lifecycle import State
from kernel_runtime.core.lifecycle import messages as m
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
        self._left: list[dict[str, Any]] = []
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
        self._left = self._signal_left(signal.SIGTERM)
        if not self._left and not self._s.terminals.ending():
            self._stopped([])
            return
        deadline = time.monotonic() + LEFT_KILL

        def look() -> None:
            left = [p for p in self._left if process.identify(p["pid"]) is not None]
            holding = self._s.terminals.ending()
            if not (left or holding) or time.monotonic() > deadline + 1:
                self._stopped(left)
                return
            if time.monotonic() > deadline:
                # a holder has to see how its command ended, and to write it down
                self._signal_left(signal.SIGKILL, with_holders=time.monotonic() > deadline + _HOLDERS)
            self._s.reactor.after(_LOOK, look)

        self._s.reactor.after(_LOOK, look)

    def _signal_left(self, signum: int, *, with_holders: bool = False) -> list[dict[str, Any]]:
        spare = [] if with_holders else self._s.terminals.holders()
        return launch.signal_left(self._s.identity.session_id, self._s.keeper.record, signum, spare)

    def _stopped(self, left: list[dict[str, Any]]) -> None:
        self._s.notebooks.write_now()
        self._s.terminals.close_books()
        ended = self._s.terminals.described(self._left)
        result: Mapping[str, Any] = {"stopped": True, "ended": ended, "left": left}
        if self._token is not None:
            self._token.respond(result)
        self._s.leave("stop")
