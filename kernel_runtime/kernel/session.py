"""The kernel's message composer: jupyter_client's, with an encoder that always succeeds."""

from __future__ import annotations

from typing import Any

import msgspec
from jupyter_client.session import DELIM, Session

from kernel_runtime.kernel.attribution import current
from kernel_runtime.kernel.mime import clean

_encoder = msgspec.json.Encoder(decimal_format="string")


def pack(value: Any) -> bytes:
    """JSON of any value: what JSON does not have is replaced by what comes nearest."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encoder.encode(clean(value, "$", []))


class KernelSession(Session):
    """Composes messages; a request's header is encoded once, not for every message it causes."""

    def serialize(self, msg: dict[str, Any], ident: list[bytes] | bytes | None = None) -> list[bytes]:
        parent = current.get()
        header = msg["parent_header"]
        body = [
            pack(msg["header"]),
            parent.raw if header is parent.header else pack(header),
            pack(msg["metadata"]),
            _content(msg.get("content")),
        ]
        start = ident if isinstance(ident, list) else [] if ident is None else [ident]
        return [*start, DELIM, self.sign(body), *body]


def _content(content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    return pack({} if content is None else content)
