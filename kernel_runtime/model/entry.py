"""One line of the journal."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kernel_runtime.model.facts import Fact, OutputRecorded


class Draft(Struct, frozen=True):
    """A fact that is about to become an entry: the writer adds seq, clocks and hashes."""

    fact: Fact
    principal: str
    incarnation: int


class Entry(Struct, frozen=True, kw_only=True):
    """An immutable fact in its place.

    `at` is UTC nanoseconds since the epoch, `mono` CLOCK_MONOTONIC nanoseconds of the writing host.
    `hash = sha256(canonical JSON of [seq, at, mono, incarnation, principal, kind, execution_id,
    sha256(payload), prev_hash])`, both digests in hexadecimal; `prev_hash` of seq 1 is 64 zeros.
    """

    seq: int
    at: int
    mono: int
    incarnation: int
    principal: str
    kind: str
    fact: Fact
    execution_id: str | None
    prev_hash: str
    hash: str

    @property
    def text(self) -> str:
        """What this entry adds to the printed text: stdout, and displayed values as plain text.

        Empty for every kind but OutputRecorded. For what a cell's output looks like in the end
        (carriage returns, cleared and updated displays), ask the execution.
        """
        if not isinstance(self.fact, OutputRecorded):
            return ""
        parts: list[str] = []
        for raw in self.fact.messages:
            message = msgspec.json.decode(raw)
            content = message["content"]
            if message["type"] == "stream" and content.get("name") == "stdout":
                parts.append(content.get("text", ""))
            elif message["type"] in ("execute_result", "display_data"):
                parts.append(content.get("data", {}).get("text/plain", ""))
        return "".join(parts)
