# mypy: disable-error-code="no-untyped-call,union-attr,attr-defined,misc,assignment,override"
"""The kernel's message composer: jupyter_client's, with an encoder that always succeeds."""

from __future__ import annotations

from typing import Any

from jupyter_client.session import DELIM, Session

from kernel_runtime.kernel.attribution import current
from kernel_runtime.kernel.jsonpack import pack


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
