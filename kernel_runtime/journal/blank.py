"""A fact with all that was said taken out: for what is redacted as a whole, whatever its text.

What stays is what happened: kind, ids, outcome, which stream, the class of an error, names and effects.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from kernel_runtime.journal.forms import MARK
from kernel_runtime.model import facts as f

_encode = msgspec.json.Encoder(order="sorted").encode


def blanked(fact: f.Fact) -> f.Fact | None:
    """The fact without what was said in it; None for a kind in which nothing is said."""
    match fact:
        case f.ExecutionQueued():
            return structs.replace(fact, source=MARK, request=None)
        case f.OutputRecorded():
            return structs.replace(fact, messages=[_message(bytes(raw)) for raw in fact.messages])
        case f.InputRequested():
            return structs.replace(fact, prompt=MARK, command=[MARK] if fact.command else [])
        case f.InputAnswered():
            return structs.replace(fact, value=None if fact.value is None else MARK)
        case f.ExecutionFinished():
            return structs.replace(fact, error=_error(fact.error), reply=None)
        case _:
            return None


def _error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    if not error:
        return error
    return {"ename": error.get("ename", ""), "evalue": MARK, "traceback": [MARK]}


def _message(raw: bytes) -> msgspec.Raw:
    message = msgspec.json.decode(raw)
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict):
        return msgspec.Raw(_encode({"content": {"name": "stdout", "text": MARK}, "type": "stream"}))
    kind = message.get("type")
    if kind == "stream":
        said: dict[str, Any] = {"name": content.get("name", "stdout"), "text": MARK}
    elif kind == "error":
        said = _error({"ename": "", **content}) or {}
    else:
        kept = ("execution_count", "transient", "comm_id", "target_name", "wait")
        said = {key: content[key] for key in kept if key in content}
        if "data" in content:
            said["data"] = {} if str(kind).startswith("comm_") else {"text/plain": MARK}
        if "metadata" in content:
            said["metadata"] = {}
    return msgspec.Raw(_encode({"content": said, "type": kind}))
