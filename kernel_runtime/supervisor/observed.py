"""What the kernel's probe saw, as facts.

A record on the outbox channel `probe` is `[kind, raw parent header, content]`, unsigned: the outbox is
the session's own. The kernel is the user's process all the same: what it says is checked before it is
a fact.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kernel_runtime.model.facts import (
    EffectsObserved,
    ExecutionObserved,
    Fact,
    NamesDrifted,
    storable,
)
from kernel_runtime.wire import BadMessage

OBSERVED = b"krt_observed"
_KINDS: dict[bytes, type[Fact]] = {
    OBSERVED: ExecutionObserved,
    b"krt_drifted": NamesDrifted,
    b"krt_effects": EffectsObserved,
}


def fact_of(frames: Sequence[bytes], execution_id: str | None, position: int) -> Fact:
    """The fact that a record states of an execution, or of none.

    Raises:
        BadMessage: it states none.
    """
    try:
        kind, _, content = frames
        made = _KINDS[kind]
        said = msgspec.json.decode(content)
        if execution_id is not None and made is not NamesDrifted:
            said["execution_id"] = execution_id
        said["position"] = position
        return storable(msgspec.convert(said, made))
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise BadMessage(f"on channel probe: {error}") from error
