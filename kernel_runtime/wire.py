"""Jupyter messages as frames: split, verify, read what is needed, sign what is ours.

A message on the wire is `[identities…, b"<IDS|MSG>", hmac, header, parent_header, metadata,
content, buffers…]` (Jupyter messaging protocol 5.4). Frames that only pass through are forwarded
as they came: re-encoding is what makes a broker slow, and a signed frame that is untouched stays
signed. Uses msgspec and hmac, not jupyter_client.session: that alone is 8 MiB.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

DELIMITER = b"<IDS|MSG>"
PROTOCOL = "5.4"
_EMPTY = b"{}"


class Header(Struct, frozen=True, omit_defaults=True):
    """A message header; unknown fields are dropped when decoded, so forward the raw frame."""

    msg_id: str = ""
    msg_type: str = ""
    session: str = ""
    username: str = ""
    date: str = ""
    version: str = PROTOCOL
    subshell_id: str | None = None


class Message(Struct, frozen=True):
    """Frames after the delimiter and signature, with the header decoded."""

    identities: list[bytes]
    header: Header
    frames: list[bytes]
    """`[hmac, header, parent_header, metadata, content, buffers…]`, as they came"""

    @property
    def content(self) -> bytes:
        return self.frames[4]

    def content_dict(self) -> dict[str, Any]:
        return decode_json(self.frames[4])

    def metadata_dict(self) -> dict[str, Any]:
        return decode_json(self.frames[3])

    def parent(self) -> Header:
        return decode_header(self.frames[2])


class BadMessage(ValueError):
    """Frames that are not a Jupyter message, or whose signature is not ours."""


_header_decoder = msgspec.json.Decoder(Header, strict=False)


def decode_header(frame: bytes) -> Header:
    """Header of a header or parent_header frame (`{}` gives an empty one).

    Raises:
        BadMessage: not a JSON object of that shape.
    """
    try:
        return _header_decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"header is not a Jupyter header: {error}") from error


def decode_json(frame: bytes) -> dict[str, Any]:
    """A JSON object; NaN, Infinity and lone surrogates, which Python writes, are read too.

    Raises:
        BadMessage: not a JSON object.
    """
    try:
        value = msgspec.json.decode(frame)
    except RecursionError as error:
        raise BadMessage(f"nested too deep: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            value = json.loads(frame.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadMessage("not a JSON object")
    return value


class Signer:
    """HMAC-SHA256 over the four JSON frames, as `signature_scheme: hmac-sha256` says."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._base = hmac.new(key, digestmod=hashlib.sha256) if key else None

    def sign(self, frames: Sequence[bytes]) -> bytes:
        """Signature of `[header, parent_header, metadata, content]`; empty without a key."""
        if self._base is None:
            return b""
        digest = self._base.copy()
        for frame in frames:
            digest.update(frame)
        return digest.hexdigest().encode()

    def split(self, parts: Sequence[bytes]) -> Message:
        """A verified message from multipart frames.

        Raises:
            BadMessage: malformed, or signed with another key.
        """
        try:
            mark = list(parts).index(DELIMITER)
        except ValueError:
            raise BadMessage("no delimiter") from None
        frames = list(parts[mark + 1 :])
        if len(frames) < 5:
            raise BadMessage(f"{len(frames)} frames after the delimiter, 5 are needed")
        if self._base is not None and not hmac.compare_digest(frames[0], self.sign(frames[1:5])):
            raise BadMessage("signature does not match the connection file's key")
        return Message(list(parts[:mark]), decode_header(frames[1]), frames)

    def build(
        self,
        msg_type: str,
        content: Any,
        *,
        session: str,
        parent: bytes = _EMPTY,
        metadata: Any = None,
        msg_id: str | None = None,
        username: str = "kernel_runtime",
        buffers: Sequence[bytes] = (),
    ) -> list[bytes]:
        """Frames `[hmac, header, parent_header, metadata, content, buffers…]` of a new message.

        `parent` is the raw header frame of the request; `content` and `metadata` are JSON bytes or
        values msgspec encodes.
        """
        header = Header(
            msg_id=msg_id or str(uuid.uuid4()),
            msg_type=msg_type,
            session=session,
            username=username,
            date=datetime.now(UTC).isoformat(),
        )
        body = [
            # not omit_defaults: clients read every field of a header
            msgspec.json.encode({f: v for f, v in msgspec.structs.asdict(header).items() if v is not None}),
            parent,
            _EMPTY if metadata is None else _encoded(metadata),
            _encoded(content),
        ]
        return [self.sign(body), *body, *buffers]


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate: legal in Python, escaped in JSON
        return json.dumps(value).encode("ascii")


class Connection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Jupyter connection file."""

    transport: str
    ip: str
    shell_port: int
    iopub_port: int
    stdin_port: int
    control_port: int
    hb_port: int
    key: str
    signature_scheme: str = msgspec.field(default="hmac-sha256")
    kernel_name: str = ""
    curve_publickey: str | None = None
    curve_secretkey: str | None = None

    def endpoint(self, channel: str) -> str:
        """`ipc:///dir/prefix-N` or `tcp://ip:port` of `shell`, `iopub`, `stdin`, `control`, `hb`."""
        port = getattr(self, f"{channel}_port")
        separator = "-" if self.transport == "ipc" else ":"
        return f"{self.transport}://{self.ip}{separator}{port}"

    def dump(self) -> bytes:
        fields = {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}
        return msgspec.json.format(msgspec.json.encode(fields), indent=2)


def read_connection(path: Path) -> Connection:
    """The connection a file describes.

    Raises:
        FileNotFoundError: no such file.
        BadMessage: not a connection file, or another user's: whoever wrote it holds its key.
    """
    if path.stat().st_uid != os.getuid():
        raise BadMessage(f"{path} belongs to another user")
    try:
        return msgspec.json.decode(path.read_bytes(), type=Connection, strict=False)
    except msgspec.MsgspecError as error:
        raise BadMessage(f"{path} is not a Jupyter connection file: {error}") from error


def ipc_connection(prefix: Path, key: str, kernel_name: str = "") -> Connection:
    """Five ipc endpoints `prefix-1` … `prefix-5`."""
    return Connection(
        transport="ipc",
        ip=str(prefix),
        shell_port=1,
        iopub_port=2,
        stdin_port=3,
        control_port=4,
        hb_port=5,
        key=key,
        kernel_name=kernel_name,
    )
