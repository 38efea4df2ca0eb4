"""Journal entries as documents and lines."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Entry


def entry_json(entry: Entry) -> dict[str, Any]:
    """`{"seq", "at", "incarnation", "principal", "kind", "execution_id", "fact", "prev_hash", "hash"}`."""
    return {
        "seq": entry.seq,
        "at": iso_time(entry.at),
        "incarnation": entry.incarnation,
        "principal": entry.principal,
        "kind": entry.kind,
        "execution_id": entry.execution_id,
        "fact": msgspec.Raw(facts.encode(entry.fact)),
        "prev_hash": entry.prev_hash,
        "hash": entry.hash,
    }


def gist(entry: Entry, limit: int = 100) -> str:
    """What an entry says, on one line."""
    fact = entry.fact
    if isinstance(fact, facts.OutputRecorded):
        kinds: dict[str, int] = {}
        for raw in fact.messages:
            kind = str(msgspec.json.decode(raw, type=_Kind).type)
            kinds[kind] = kinds.get(kind, 0) + 1
        text = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        return text + (" (late)" if fact.late else "")
    document: dict[str, Any] = msgspec.json.decode(facts.encode(fact))
    for big in ("request", "execution_id", "reply", "msg_id", "client_session"):
        document.pop(big, None)
    text = " ".join(f"{name}={_short(value)}" for name, value in document.items())
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Kind(msgspec.Struct):
    type: str = "?"


def _short(value: object, limit: int = 60) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = text.replace("\n", "⏎")
    return text if len(text) <= limit else text[: limit - 1] + "…"
