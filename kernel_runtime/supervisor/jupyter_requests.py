"""Requests and replies of the Jupyter protocol as data: read, kept in the journal, made again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kernel_runtime.model.execution import Execution
from kernel_runtime.model.facts import ExecutionQueued
from kernel_runtime.supervisor.recorder import KRT_MSG, execution_of_msg, sayable
from kernel_runtime.wire import BadMessage, Header, Message, decode_header, decode_json

_MAX = 1 << 53
"""the largest whole number that all of JSON's readers agree on"""


def principal_of(header: Header) -> str:
    """A Jupyter client's principal: what its headers call the user.

    Clients of ours may name any principal there (`agent:planner`).
    """
    return header.username if ":" in header.username else f"human:{header.username or 'unknown'}"


def queued_of(session_id: str, message: Message) -> ExecutionQueued:
    """The execution that an execute_request asks for.

    Raises:
        BadMessage: it is not one.
    """
    msg_id = message.header.msg_id
    if not msg_id or msg_id.startswith(KRT_MSG):
        raise BadMessage(f"msg_id {msg_id!r} cannot name a request")
    content = message.content_dict()
    metadata = message.metadata_dict()
    source = content.get("code", "")
    if not isinstance(source, str):
        raise BadMessage(f"code is {type(source).__name__}, not text")
    check_readable(message)
    execution_id = execution_of_msg(session_id, msg_id)
    silent = bool(content.get("silent", False))
    cell_id = metadata.get("cellId") or content.get("cell_id") or execution_id[:8]
    return ExecutionQueued(
        execution_id=execution_id,
        source=source,
        cell_id=sayable(str(cell_id)),
        msg_id=msg_id,
        client_session=message.header.session,
        silent=silent,
        store_history=bool(content.get("store_history", not silent)),
        allow_stdin=bool(content.get("allow_stdin", True)),
        stop_on_error=bool(content.get("stop_on_error", True)),
        door="jupyter",
        request=_dump(message, content),
    )


def check_readable(message: Message) -> None:
    """Make sure that the kernel can read it: one that cannot drops it without a word.

    Raises:
        BadMessage: a frame of it is not a JSON object.
    """
    decode_json(message.frames[2])
    decode_json(message.frames[3])
    try:
        _skim(message.content)
    except RecursionError as error:
        raise BadMessage(f"nested too deep: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError):  # NaN, say, which Python writes and reads
        decode_json(message.content)
    for frame in message.frames[1:5]:
        if frame.count(b"[") + frame.count(b"{") > _DEPTH and _depth(decode_json(frame)) > _DEPTH:
            raise BadMessage(f"nested deeper than {_DEPTH}")


_skim = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DEPTH = 200
"""how deep JSON may be nested: kernels' parsers give up at some point, orjson's at 254"""


def _depth(document: Any) -> int:
    depth, level = 0, [document]
    while level:
        depth += 1
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level = [item for values in inner for item in values]
    return depth


def _dump(message: Message, content: Mapping[str, Any]) -> str:
    expressions = content.get("user_expressions")
    document = {
        "identities": [part.hex() for part in message.identities],
        "frames": [part.decode("utf-8", "surrogateescape") for part in message.frames[1:4]],
        "user_expressions": expressions if isinstance(expressions, dict) else {},
    }
    return msgspec.json.encode(sayable(document)).decode()


def restore(queued: ExecutionQueued, sign: Callable[[Sequence[bytes]], bytes]) -> Message:
    """The client's request as it can be sent again by a new supervisor."""
    document = msgspec.json.decode(queued.request or "{}")
    content = msgspec.json.encode(execute_content(queued, document.get("user_expressions") or {}))
    body = [frame.encode() for frame in document["frames"]] + [content]
    return Message(
        [bytes.fromhex(part) for part in document["identities"]],
        decode_header(body[0]),
        [sign(body), *body],
    )


def execute_content(queued: ExecutionQueued, user_expressions: Mapping[str, Any]) -> dict[str, Any]:
    """Content of an execute_request for an execution."""
    return {
        "code": queued.source,
        "silent": queued.silent,
        "store_history": queued.store_history,
        "user_expressions": dict(user_expressions),
        "allow_stdin": queued.allow_stdin,
        "stop_on_error": queued.stop_on_error,
    }


def reply_of(
    outcome: str,
    error: Mapping[str, Any] | None,
    *,
    execution_count: int | None = None,
    said: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Content of the execute_reply that an outcome amounts to, where the kernel's own is not to be had."""
    count = execution_count or 0
    if outcome == "ok":
        kept = dict(said or {})
        return {
            "status": "ok",
            "execution_count": count,
            "user_expressions": kept.get("user_expressions") or {},
            "payload": kept.get("payload") or [],
        }
    if outcome == "aborted" and error is None:
        return {"status": "aborted"}
    return {"status": "error", "execution_count": count, **(error or lost(outcome))}


def lost(outcome: str) -> dict[str, Any]:
    """`{"ename", "evalue", "traceback"}` of an outcome that no exception of the cell's explains."""
    ename = {"died": "KernelDied", "interrupted": "KeyboardInterrupt"}.get(outcome, "ExecutionLost")
    return {"ename": ename, "evalue": f"outcome {outcome}", "traceback": []}


def recorded_reply(execution: Execution, said: Mapping[str, Any] | None) -> dict[str, Any]:
    """The execute_reply of an execution that is done, from the journal."""
    return reply_of(
        execution.outcome or "unknown", execution.error, execution_count=execution.execution_count, said=said
    )


def whole(value: object, default: int | None = None) -> int | None:
    """A count from somebody else's JSON; what is none is as if it were not there."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return default
    return int(min(max(value, -_MAX), _MAX))
