"""One line of the journal."""

from __future__ import annotations

from msgspec import Struct

from kernel_runtime.model.facts import Fact


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
