"""The client's part of claims: write one down, check them, withdraw one.

A claim's first check is part of making it: `claim` returns when its truth is known, or `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime.client.connection import ControlLine
from kernel_runtime.core.claim_grammar import parse
from kernel_runtime.core.claims import LONGEST_TIMEOUT, TIMEOUT


class Claim(Struct, frozen=True, kw_only=True):
    """A claim and what its check found."""

    claim_id: str
    text: str
    probe: str
    truth: str
    """`true`, `false` or `unknown`"""
    evidence: dict[str, Any] = {}
    checked_at: str | None = None
    principal: str = ""
    """who made it"""
    entries: list[int] = []
    """of the journal: where it was made, and where its truth last changed"""

    @property
    def holds(self) -> bool:
        return self.truth == "true"

    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


class Checked(Struct, frozen=True, kw_only=True):
    """What one probe found, asked once and not written down."""

    probe: str
    truth: str
    evidence: dict[str, Any] = {}


class ClaimCalls:
    """Methods of a session that are about claims."""

    _line: ControlLine

    async def claim(
        self, text: str, *, probe: str, timeout: float = TIMEOUT, allow: Sequence[str] = ()
    ) -> Claim:
        """Write down a claim and check it. The same text and probe again: the claim that stands, checked.

        Args:
            text: the sentence, for people.
            probe: how to check it: docs/claims.md.
            timeout: seconds a check may take, at most 60.
            allow: hosts that an `http` probe may ask beside this machine; `network`: any.

        Raises:
            BadProbe: the probe cannot be read; says what was expected and where.
            UsageError: no text, or a time limit out of bounds.
        """
        parse(probe.strip())  # before a supervisor is started for it
        arguments = {"text": text, "probe": probe, "timeout": timeout, "allow": list(allow)}
        return msgspec.convert(await self._line.request("claim", arguments, within=_within(timeout)), Claim)

    async def claims(self, *, check: bool = True, timeout: float | None = None) -> list[Claim]:
        """Every claim that stands, checked now, each within its own time limit and `timeout` seconds in all.

        Those that were not checked (all, with `check=False`) are `unknown`, with what was found last.
        """
        arguments: dict[str, Any] = {"check": check}
        if timeout is not None:
            arguments["timeout"] = timeout
        reply = await self._line.request("claims", arguments, within=_within(LONGEST_TIMEOUT))
        return msgspec.convert(reply["claims"], list[Claim])

    async def withdraw_claim(self, claim_id: str, reason: str = "") -> None:
        """Take a claim back: it is no longer checked, and stays in the journal.

        Raises:
            NotFound: none of that id stands.
        """
        await self._line.request("withdraw_claim", {"claim_id": claim_id, "text": reason})

    async def check(self, probe: str, *, timeout: float = TIMEOUT, allow: Sequence[str] = ()) -> Checked:
        """What a probe finds now; nothing is written down.

        Raises:
            BadProbe: it cannot be read.
        """
        parse(probe.strip())
        arguments = {"probe": probe, "timeout": timeout, "allow": list(allow)}
        return msgspec.convert(await self._line.request("probe", arguments, within=_within(timeout)), Checked)


def _within(timeout: float) -> float:
    # several wait for the same few threads
    return 4 * timeout + 30.0
