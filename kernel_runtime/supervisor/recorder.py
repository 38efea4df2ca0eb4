"""Kernel messages into journal entries, in the kernel's order, before anybody sees them.

The recorder holds no message back and invents none: what passes a bound is counted into a gap.
It knows nothing of sockets; it is given records and hands out drafts and frames to publish.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import Fact, GapRecorded, OutputRecorded
from kernel_runtime.supervisor.bounds import Bounds, disk_is_short
from kernel_runtime.wire import Header, Signer, decode_header, decode_json

OUTPUT_TYPES = frozenset(
    {
        "stream",
        "display_data",
        "execute_result",
        "error",
        "clear_output",
        "update_display_data",
        "comm_open",
        "comm_msg",
        "comm_close",
    }
)
KRT_MSG = "krt-exec-"
"""msg_id prefix of requests the supervisor makes for our own clients; the execution_id follows"""

_SYSTEM = "system"
_GAP_BYTES = 32 << 20
_GAP_SECONDS = 2.0
_GAP_SECONDS_MOST = 60.0
"""a gap that grows on is told again after twice as much, so that telling it does not fill the disk"""
_DISK_CHECK_BYTES = 1 << 20
_ERROR_ROOM = 64 << 10
"""bytes beyond a bound for tracebacks: a cell that said too much still shows how it ended"""


@lru_cache(maxsize=1024)
def execution_of_msg(session_id: str, msg_id: str) -> str:
    """The execution that a request's msg_id names: the same for every supervisor, so no table is kept."""
    if msg_id.startswith(KRT_MSG):
        return msg_id[len(KRT_MSG) :]
    return str(uuid.uuid5(uuid.UUID(session_id), msg_id))


class Recorder:
    """Collects what the kernel says until `take`; `published` frames may go out once that is journaled."""

    def __init__(self, session_id: str, directory: Path, bounds: Bounds, session_bytes: int = 0) -> None:
        self._session_id = session_id
        self._directory = directory
        self._bounds = bounds
        self._session_bytes = session_bytes
        self._used: OrderedDict[str | None, int] = OrderedDict()
        self._admitted: dict[str | None, int] = {}
        """bytes by owner that are counted in `_used` and not journaled yet"""
        self._groups: list[tuple[str | None, bool, list[Raw]]] = []
        self._facts: list[Fact] = []
        self._gaps: dict[tuple[str | None, str], list[int]] = {}
        self._gap_since = 0.0
        self._gap_pause = 0.0
        self._gap_bytes = 0
        self._asked = False
        self._forget_growth()
        self._unchecked = _DISK_CHECK_BYTES
        self._short = False
        self._parent: tuple[bytes, str | None] = (b"", None)
        self.position: int | None = None
        self.running: str | None = None
        self.trusts_json = False
        """the kernel is ours and writes nothing that JSON or UTF-8 cannot hold (kernel/jsonpack.py)"""

    # -- what comes in

    def owner(self, parent: bytes) -> str | None:
        """The execution a raw parent header belongs to; None when it is not an execute_request."""
        if parent != self._parent[0]:
            header: Header = decode_header(parent)
            owner = None
            if header.msg_type == "execute_request":
                owner = execution_of_msg(self._session_id, header.msg_id)
            self._parent = (parent, owner)
        return self._parent[1]

    def output(self, msg_type: str, frames: Sequence[bytes]) -> bool:
        """Take one iopub output; `frames` as in `wire.Message.frames`. False: it fell into a gap."""
        content = frames[4] if self.trusts_json else _valid_json(frames[4])
        size = len(content) + sum(len(b) for b in frames[5:])
        owner = self.owner(frames[2])
        if size > self._bounds.message:
            self.gap(owner, "message-bound", 1, size)
            return False
        if not self._admit(owner, size, room=_ERROR_ROOM if msg_type == "error" else 0):
            return False
        parts = [b'{"content":', content]
        if len(frames) > 5:
            import base64

            listed = [base64.b64encode(b).decode("ascii") for b in frames[5:]]
            parts = [b'{"buffers":', msgspec.json.encode(listed), b',"content":', content]
        if frames[3] not in (b"{}", b""):
            metadata = frames[3] if self.trusts_json else _valid_json(frames[3])
            parts += [b',"metadata":', metadata]
        parts += [b',"type":"', msg_type.encode(), b'"}']
        self._add(owner, Raw(b"".join(parts)))
        return True

    def stream(self, name: str, parent: bytes, text: bytes) -> bytes | None:
        """Take stream text (UTF-8); the content of the message to publish, or None: it fell into a gap.

        Where text is cut into messages is our own doing, so their bound is not asked.
        """
        owner = self.owner(parent)
        if not self._admit(owner, len(text)):
            return None
        content = msgspec.json.encode({"name": name, "text": text.decode("utf-8", "backslashreplace")})
        self._add(owner, Raw(b'{"content":' + content + b',"type":"stream"}'))
        return content

    def observe(self, fact: Fact) -> None:
        """Take what the probe saw. It says itself how far the outbox has been read with it."""
        self._facts.append(fact)

    def gap(self, owner: str | None, reason: str, messages: int, size: int) -> None:
        """Count what is not here."""
        if not self._gaps:
            self._gap_since = time.monotonic()
        counts = self._gaps.setdefault((owner, reason), [0, 0])
        counts[0] += messages
        counts[1] += size

    def _admit(self, owner: str | None, size: int, room: int = 0) -> bool:
        reason = None
        used = self._used.get(owner, 0)
        if used + size > self._bounds.execution + room:
            reason = "execution-bound"
        elif self._session_bytes + size > self._bounds.session + room:
            reason = "session-bound"
        elif self._disk_short(size):
            reason = "disk"
        if reason is not None:
            self.gap(owner, reason, 1, size)
            return False
        self._used[owner] = used + size
        self._admitted[owner] = self._admitted.get(owner, 0) + size
        self._used.move_to_end(owner)
        if len(self._used) > 1000:
            self._used.popitem(last=False)
        self._session_bytes += size
        return True

    def _disk_short(self, size: int) -> bool:
        self._unchecked += size
        if self._unchecked >= min(_DISK_CHECK_BYTES, self._bounds.free_disk // 8) or self._short:
            self._unchecked = 0
            self._short = disk_is_short(self._directory, self._bounds.free_disk)
        return self._short

    def _add(self, owner: str | None, message: Raw) -> None:
        late = owner is not None and owner != self.running
        if self._groups and self._groups[-1][0] == owner and self._groups[-1][1] == late:
            self._groups[-1][2].append(message)
        else:
            self._groups.append((owner, late, [message]))

    # -- what goes out

    def take(self, incarnation: int, *, gaps: bool = False) -> tuple[Draft, ...]:
        """Drafts of everything taken so far.

        Gaps are included when asked for, grown, old, or when there is output after them: its position
        passes them, and they would be in nobody's count.
        Call `journaled` once they are, or `forget` when they could not be.
        """
        self._asked = gaps
        drafts: list[Draft] = [Draft(fact, _SYSTEM, incarnation) for fact in self._facts]
        groups = self._groups
        for index, (owner, late, messages) in enumerate(groups):
            last = index == len(groups) - 1
            fact = OutputRecorded(
                execution_id=owner,
                late=late,
                messages=messages,
                position=self.position if last else None,
            )
            drafts.append(Draft(fact, _SYSTEM, incarnation))
        if self._gaps and (gaps or drafts or self._gaps_due()):
            for (owner, reason), (messages_, size) in self._gaps.items():
                gap = GapRecorded(
                    execution_id=owner,
                    reason=reason,
                    messages=messages_,
                    bytes=size,
                    position=self.position,
                )
                drafts.append(Draft(gap, _SYSTEM, incarnation))
        return tuple(drafts)

    def journaled(self, drafts: Sequence[Draft]) -> None:
        """`take`'s drafts are entries now."""
        self._groups.clear()
        self._facts.clear()
        self._admitted.clear()
        if any(isinstance(d.fact, GapRecorded) for d in drafts):
            self._gaps.clear()
            if self._asked:  # an execution ends here
                self._forget_growth()
                return
            self._gap_pause = min(2 * self._gap_pause, _GAP_SECONDS_MOST)
            # what is counted and not told stays in the outbox, which has its bound too
            self._gap_bytes = min(2 * self._gap_bytes, self._bounds.outbox // 2)

    def forget(self) -> None:
        """The drafts could not be journaled and the same messages will come again."""
        for owner, size in self._admitted.items():
            self._session_bytes -= size
            if owner in self._used:
                self._used[owner] -= size
        self._admitted.clear()
        self._groups.clear()
        self._facts.clear()
        self._gaps.clear()
        self._unchecked = _DISK_CHECK_BYTES

    @property
    def has_gaps(self) -> bool:
        return bool(self._gaps)

    @property
    def has_facts(self) -> bool:
        return bool(self._facts)

    @property
    def has_output(self) -> bool:
        return bool(self._groups)

    def _gaps_due(self) -> bool:
        return (
            sum(size for _, size in self._gaps.values()) >= self._gap_bytes
            or time.monotonic() - self._gap_since >= self._gap_pause
        )

    def _forget_growth(self) -> None:
        self._gap_pause = _GAP_SECONDS
        self._gap_bytes = min(_GAP_BYTES, self._bounds.outbox // 2)


def stream_frames(signer: Signer, session: str, parent: bytes, content: bytes) -> list[bytes]:
    """A signed `stream` message for the front door."""
    return signer.build("stream", content, session=session, parent=parent)


_validate: Callable[[bytes], Any] = msgspec.json.Decoder(Raw).decode


def _valid_json(frame: bytes) -> bytes:
    """The frame, if it is JSON in UTF-8; else the same value as JSON, with what JSON cannot say as text.

    Kernels write NaN, Infinity and lone surrogates; none of them may reach the journal as they are.
    """
    try:
        _validate(frame)
        frame.decode("utf-8")
        if b"\\ud" not in frame and b"\\uD" not in frame:
            return frame
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    value = sayable(decode_json(frame))
    return msgspec.json.encode(value)


def sayable(value: Any) -> Any:
    """The value as JSON in UTF-8 can say it: no NaN, no Infinity, no lone surrogates."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {sayable(k): sayable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [sayable(v) for v in value]
    return value
