"""What the kernel's probe saw, as facts.

The kernel is the user's process: what it sends under our name is checked before it is a fact.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernel_runtime.model.facts import EffectsObserved, ExecutionObserved, Fact, NamesDrifted
from kernel_runtime.wire import BadMessage

OBSERVED = "krt_observed"
DRIFTED = "krt_drifted"
EFFECTS = "krt_effects"


def fact_of(msg_type: str, execution_id: str | None, content: dict[str, Any], position: int | None) -> Fact:
    """The fact that a message on the outbox channel `probe` states.

    Raises:
        BadMessage: it states none.
    """
    said = {**content, "position": position}
    try:
        if msg_type == OBSERVED and execution_id is not None:
            return msgspec.convert({**said, "execution_id": execution_id}, ExecutionObserved)
        if msg_type == EFFECTS:
            return msgspec.convert({**said, "execution_id": execution_id}, EffectsObserved)
        if msg_type == DRIFTED:
            return msgspec.convert(said, NamesDrifted)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadMessage(f"{msg_type}: {error}") from error
    raise BadMessage(f"{msg_type} on channel probe")
