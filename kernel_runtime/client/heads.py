"""The client's part of signing and anchoring a session's head.

The head is taken from its supervisor, durable, signed or written down elsewhere by this process, and then
journaled. Where that last step fails, the anchor stands all the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime.client import session_files
from kernel_runtime.client.connection import ControlLine
from kernel_runtime.errors import UsageError
from kernel_runtime.evidence import anchors, signing, standalone
from kernel_runtime.evidence.anchors import Head


class Kept(Struct, frozen=True, kw_only=True):
    """A head that was signed or anchored."""

    head: Head
    entry: int
    """the journal's entry that says so"""
    told: str
    """fingerprint of the key, or where the anchor is"""


async def sign(name: str, key: Path, *, principal: str) -> Kept:
    """Sign the head of a session with an Ed25519 key.

    Raises:
        NoSuchSession: none of that name.
        UsageError: the key cannot be used.
        SupervisorFault, StorageFault: it is not journaled.
    """
    line = ControlLine(session_files.load(name), principal)
    try:
        head = await _head(line)
        message = standalone.head_message(head.session_id, head.seq, head.hash)
        signature = await asyncio.to_thread(signing.sign, key, message, standalone.HEAD_NAMESPACE)
        document = {
            "seq": head.seq,
            "hash": head.hash,
            "signature": signature.armor,
            "key": signature.key,
            "namespace": standalone.HEAD_NAMESPACE,
        }
        entry = await _journal(line, "head_signed", document)
        return Kept(head=head, entry=entry, told=signature.fingerprint)
    finally:
        line.close()


async def anchor(name: str, where: str, target: str, *, principal: str) -> Kept:
    """Write the head of a session down elsewhere.

    Args:
        name: the session.
        where: `file`, `git` or `session`.
        target: a file, a repository, or the name of another session.
        principal: who does so.

    Raises:
        NoSuchSession: none of that name.
        UsageError: a session cannot witness itself; or git refuses.
        SupervisorFault, StorageFault: it is not written down.
    """
    line = ControlLine(session_files.load(name), principal)
    try:
        head = await _head(line)
        match where:
            case "file":
                reference = await asyncio.to_thread(anchors.to_file, Path(target), head, principal)
            case "git":
                reference = await asyncio.to_thread(anchors.to_git, Path(target), head, principal)
            case _:
                reference = await _witness(target, head, principal)
        document = {"seq": head.seq, "hash": head.hash, "where": where, "reference": reference}
        entry = await _journal(line, "head_anchored", document)
        return Kept(head=head, entry=entry, told=reference)
    finally:
        line.close()


async def _witness(other: str, head: Head, principal: str) -> str:
    session = session_files.load(other)
    if session.session_id == head.session_id:
        raise UsageError(f"session {other} cannot witness itself", hint="name another session")
    line = ControlLine(session, principal)
    try:
        entry = await _journal(line, "head_witnessed", msgspec.to_builtins(head))
    finally:
        line.close()
    return f"entry {entry} of {other} ({session.session_id})"


async def _head(line: ControlLine) -> Head:
    return msgspec.convert(await line.request("head"), Head)


async def _journal(line: ControlLine, op: str, document: dict[str, Any]) -> int:
    return int((await line.request(op, {"document": document}))["entry"])
