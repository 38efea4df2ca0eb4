"""Writes versions of the handoff: the one place where two workers' changes meet.

A change is applied to the version that stands at that moment, so what another worker set meanwhile is
kept; each version is a HandoffWritten, the latest stands. Synced: a handoff is written by those who leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kernel_runtime.core import handoff
from kernel_runtime.errors import SessionBusy
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import HandoffWritten
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor


class Handoffs:
    """Answers the request `handoff`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        supervisor.rpc.register({"handoff": self._write})

    def _write(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        """`document`: `set` (fields given), `replaced` (names of fields), `observed`; `complete`."""
        shell = self._s.shell
        entry = shell.reader.latest("HandoffWritten")
        version, before = 0, handoff.Document()
        if entry is not None and isinstance(entry.fact, HandoffWritten):
            version, before = entry.fact.version, handoff.read(entry.fact.document)
        expected = args.get("expect_version")
        if expected is not None and expected != version:
            raise SessionBusy(
                f"session {self._s.identity.name}: the handoff is at version {version}, not {expected}",
                hint=f"`krt handoff {self._s.identity.name}` shows it",
                version=version,
            )
        asked = args.get("document") or {}
        after = handoff.change(
            before,
            handoff.read(asked.get("set") or {}),
            replaced=[str(field) for field in asked.get("replaced") or []],
            observed=asked.get("observed") or {},
        )
        complete = bool(args.get("complete"))
        if complete:
            handoff.require_complete(after, self._s.identity.name)
        fact = HandoffWritten(version=version + 1, document=msgspec.to_builtins(after), complete=complete)
        (written,) = shell.journal.append([Draft(fact, principal, shell.state.incarnation)], sync=True)
        shell.committed()
        token.respond({"version": fact.version, "entry": written.seq})
