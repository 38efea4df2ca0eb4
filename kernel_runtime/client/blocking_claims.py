"""The blocking client's part of claims and handoff: `HandoffCalls` without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from kernel_runtime.client.blocking_calls import BlockingCalls
from kernel_runtime.client.claims import Checked, Claim
from kernel_runtime.client.handoff import Handoff, HandoffFields, Tested
from kernel_runtime.core.claims import TIMEOUT


class BlockingClaimCalls(BlockingCalls):
    """Methods, their arguments and errors are those of `AsyncSession`."""

    def claim(self, text: str, *, probe: str, timeout: float = TIMEOUT, allow: Sequence[str] = ()) -> Claim:
        """Write down a claim and check it."""
        return self.run(self._session.claim(text, probe=probe, timeout=timeout, allow=allow))

    def claims(self, *, check: bool = True, timeout: float | None = None) -> list[Claim]:
        """Every claim that stands, checked now."""
        return self.run(self._session.claims(check=check, timeout=timeout))

    def withdraw_claim(self, claim_id: str, reason: str = "") -> None:
        """Take a claim back."""
        self.run(self._session.withdraw_claim(claim_id, reason))

    def check(self, probe: str, *, timeout: float = TIMEOUT, allow: Sequence[str] = ()) -> Checked:
        """What a probe finds now; nothing is written down."""
        return self.run(self._session.check(probe, timeout=timeout, allow=allow))

    def handoff(self, **fields: Unpack[HandoffFields]) -> Handoff:
        """Write the next version of the handoff; without arguments, the version that stands."""
        return self.run(self._session.handoff(**fields))

    def test_handoff(self) -> Tested:
        """Whether a fresh client can go on from the handoff that stands."""
        return self.run(self._session.test_handoff())
