"""Who writes the session's notebook file: this supervisor, unless an open document holds it.

A Jupyter server on which the notebook is open asks for the file (`hold_notebook`), for some seconds and
again before they are over. While it holds it, nothing here writes: the file is the document's to save.
Before that is granted the file is brought up to date, so that what the document starts from lacks
nothing. `flush` asks for the same again, of the one who holds it: a file that somebody else changed is
merged with the journal, by the one merge there is.

Invariant: one holder at a time. The lease ends when it is released, when its time is over, or when the
process it was given to is gone, whichever comes first; then file and journal are merged as ever.

It is kept in a file, so that a supervisor that takes over a session does not write under an open document.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kernel_runtime import process
from kernel_runtime.errors import UsageError
from kernel_runtime.supervisor.claim_probes import Observers
from kernel_runtime.supervisor.door import write_private
from kernel_runtime.supervisor.reactor import Timer
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

log = logging.getLogger("kernel_runtime.supervisor")

SHORTEST, LONGEST = 1.0, 120.0
"""seconds a lease may be asked for"""
LOOK = 1.0
"""seconds between looks at whether the holder's process is there"""


class Owner(Struct, frozen=True):
    """A process, as another one in its pid namespace can know it."""

    pid: int = 0
    start_time: int = 0
    boot_id: str = ""
    pid_namespace: str = ""


class Lease(Struct, frozen=True, kw_only=True):
    """`notebook.lease`: who may write, and until when."""

    holder: str
    principal: str
    owner: Owner
    boot_id: str
    """of the boot whose monotonic clock `until` is on"""
    until: float


class NotebookLease:
    """Answers `hold_notebook` and `release_notebook`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._path = supervisor.directory / "notebook.lease"
        self._flusher = Observers(supervisor.reactor, threads=1)
        self._timer: Timer | None = None
        self._lease = self._left_behind()
        supervisor.rpc.register({"hold_notebook": self._hold, "release_notebook": self._release})
        if self._lease is not None:
            self._s.notebooks.hold()
            self._look()

    def _left_behind(self) -> Lease | None:
        """The lease that the last supervisor gave, as it was written down."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Lease)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("the notebook's lease cannot be read, and counts as ended: %s", error)
            self._s.notebooks.touch()
            return None

    def _hold(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        holder = str(args.get("holder") or "")
        if not holder:
            raise UsageError("hold_notebook without a holder", hint="`holder` is a name that nobody else has")
        self._look()
        before = self._lease
        if before is not None and before.holder != holder:
            left = max(0.0, before.until - time.monotonic())
            token.respond({"held": False, "by": before.principal, "seconds": left})
            return
        seconds = min(max(float(args.get("seconds") or 0.0), SHORTEST), LONGEST)
        self._keep(
            Lease(
                holder=holder,
                principal=principal,
                owner=_owner(args.get("owner")),
                boot_id=process.boot_id(),
                until=time.monotonic() + seconds,
            )
        )
        answer = {"held": True, "by": principal, "seconds": seconds}
        if before is not None and not args.get("flush"):
            token.respond(answer)
            return
        self._s.notebooks.hold()
        self._flusher.submit(self._s.notebooks.flush, partial(self._flushed, token, answer))

    @staticmethod
    def _flushed(token: Token, answer: dict[str, Any], seen: dict[str, Any]) -> None:
        token.respond({**answer, **seen})

    def _release(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        held = self._lease is not None and self._lease.holder == str(args.get("holder") or "")
        if held:
            self._end("it was released")
        token.respond({"released": held})

    def _keep(self, lease: Lease) -> None:
        self._lease = lease
        try:
            write_private(self._path, msgspec.json.encode(lease))
        except OSError as error:
            # it holds for as long as this supervisor lives
            log.warning("the notebook's lease could not be written down: %s", error)
        self._watch(lease)

    def _watch(self, lease: Lease) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait = min(LOOK, max(0.0, lease.until - time.monotonic()))
        self._timer = self._s.reactor.after(wait, self._look)

    def _look(self) -> None:
        """End the lease whose holder is gone or whose time is over."""
        lease = self._lease
        if lease is None:
            return
        if lease.boot_id != process.boot_id() or time.monotonic() >= lease.until:
            self._end("its time is over")
        elif _is_gone(lease.owner):
            self._end("its holder is gone")
        else:
            self._watch(lease)

    def _end(self, why: str) -> None:
        log.info("the notebook's lease ended: %s", why)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._lease = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._s.notebooks.resume()

    def close(self) -> None:
        """Leave; the lease stays with whoever has it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flusher.close()


def _owner(given: Any) -> Owner:
    try:
        return msgspec.convert(given or {}, Owner)
    except msgspec.ValidationError as error:
        raise UsageError(f"the owner of a lease cannot be read: {error}") from error


def _is_gone(owner: Owner) -> bool:
    """Whether that process is known to have ended; False where this one could not know."""
    if not owner.pid or owner.boot_id != process.boot_id() or owner.pid_namespace != pid_namespace():
        return False
    return not process.is_alive(process.ProcessId(owner.pid, owner.start_time, owner.boot_id))


def pid_namespace() -> str:
    """Names the pid namespace of this process; empty where that cannot be told."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
