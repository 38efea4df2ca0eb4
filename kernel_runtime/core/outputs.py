"""From the messages a kernel sent to the outputs a notebook holds.

`messages` are those of OutputRecorded: `{"type", "content", "metadata"?, "buffers"?}`, as
`msgspec.Raw`, JSON bytes or mappings. What comes out is valid nbformat 4: streams merged and shown
as a terminal would, cleared outputs gone, displays in their latest state, lone surrogates escaped,
NaN and Infinity as strings (flagged in the output's metadata under `kernel_runtime.changed`).

Nothing is dropped silently: where `cap_bytes` is reached, the first and the last half are kept and a
stderr stream output between them counts what is left out and says where it is. Messages of kinds
that are no outputs (comm_*, status, …) are ignored; a message that cannot be read becomes a stderr
output that says so.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime.core.stream_text import StreamText
from kernel_runtime.model.facts import escape_text

Output = dict[str, Any]
Message = msgspec.Raw | bytes | Mapping[str, Any]

_JSON_MIME = re.compile(r"application/(.*\+)?json")
_DISPLAYS = ("display_data", "execute_result", "update_display_data")


class _Wire(Struct):
    type: str
    content: dict[str, Any] = {}


_decoder = msgspec.json.Decoder(_Wire)


def missing(reason: str, messages: int, size: int) -> str:
    """What a gap is to a reader; nobody knows the counts of one that says 0."""
    if not messages:
        return f"output may be missing here, how much is not known: {reason}"
    return f"{messages} messages, {size} bytes were not recorded: {reason}"


class _Stream:
    __slots__ = ("name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = StreamText()

    @property
    def size(self) -> int:
        return self.text.size

    def output(self) -> Output:
        return {"output_type": "stream", "name": self.name, "text": self.text.text()}


class _Rich:
    __slots__ = ("body", "display_id", "size")

    def __init__(self, body: Output, display_id: str | None, size: int) -> None:
        self.body = body
        self.display_id = display_id
        self.size = size

    def output(self) -> Output:
        return dict(self.body)


class DisplayIndex:
    """Which executions show which `display_id`, and its latest content where two share one.

    Every message with a display_id sets the content of all outputs that show it (Jupyter's
    frontends do the same), so across executions the latest in journal order is what all show. Content
    is kept only for ids that more than one execution has touched.
    """

    def __init__(self) -> None:
        self._shown_by: dict[str, set[str]] = {}
        self._latest: dict[str, tuple[Output, Output]] = {}

    def note(self, execution_id: str, messages: Iterable[Message]) -> set[str]:
        """Take in messages of one execution, in journal order; the other executions whose outputs change."""
        changed: set[str] = set()
        for message in messages:
            if not _may_name_display(message):
                continue
            kind, content, clean = _read(message)
            display_id = _display_id(content)
            if kind not in _DISPLAYS or display_id is None:
                continue
            shown_by = self._shown_by.setdefault(display_id, set())
            others = shown_by - {execution_id}
            if others or display_id in self._latest:
                self._latest[display_id] = _bundle(content, clean=clean)
                changed |= others
            if kind != "update_display_data":
                shown_by.add(execution_id)
        return changed

    def latest(self, display_id: str) -> tuple[Output, Output] | None:
        """`(data, metadata)` that all outputs of this id show, if executions share it."""
        return self._latest.get(display_id)


class OutputFolder:
    """Folds messages one by one; `outputs()` may be called at any time.

    With `cap_bytes` memory stays within about twice the cap, however much is added. `pointer` is
    what the capped output tells a reader to do for the rest.
    """

    def __init__(
        self, *, cap_bytes: int | None = None, pointer: str = "", displays: DisplayIndex | None = None
    ) -> None:
        self._cap = cap_bytes
        self._pointer = pointer
        self._displays = displays
        self._reset()

    def add(self, message: Message) -> None:
        try:
            kind, content, clean = _read(message)
        except (ValueError, msgspec.MsgspecError) as error:
            self._append_text(
                "stderr", f"[a message of the kernel cannot be read: {escape_text(str(error))}]\n"
            )
            return
        if kind == "stream":
            text = content.get("text", "")
            if isinstance(text, list):
                text = "".join(map(str, text))
            self._append_text(str(content.get("name", "stdout")), str(text))
        elif kind in _DISPLAYS:
            self._add_display(kind, content, clean=clean)
        elif kind == "error":
            self._append(_error(content))
        elif kind == "clear_output":
            if content.get("wait"):
                self._clear_next = True
            else:
                self._reset()

    def gap(self, reason: str, messages: int, size: int) -> None:
        """Show output that the journal does not hold, where it is missing."""
        self._append_text("stderr", f"[{missing(reason, messages, size)}]\n")

    def outputs(self, *, tail: int | None = None) -> list[Output]:
        """nbformat 4 outputs so far.

        Past the cap, `tail` shows no more than so many bytes of what follows the gap, for who looks on
        while more is coming.
        """
        if self._cap is not None and self._size > self._cap:
            self._trim(self._cap)
        shown = [self._shown(item) for item in self._head]
        ends = [self._shown(item) for item in self._items]
        if self._omitted_bytes:
            left_out, ends = (0, ends) if tail is None else _last(ends, tail)
            shown.append(self._marker(left_out))
        shown += ends
        return [out for out in shown if out["output_type"] != "stream" or out["text"]]

    @property
    def is_capped(self) -> bool:
        """Whether some of it is left out, or will be when it is next asked for."""
        return bool(self._omitted_bytes) or (self._cap is not None and self._size > self._cap)

    def _reset(self) -> None:
        self._head: list[_Stream | _Rich] = []
        self._items: list[_Stream | _Rich] = []
        self._by_display: dict[str, list[_Rich]] = {}
        self._size = 0
        self._omitted_bytes = 0
        self._omitted_outputs = 0
        self._clear_next = False

    def _append_text(self, name: str, text: str) -> None:
        if self._clear_next:
            self._reset()
        last = self._items[-1] if self._items else None
        if not (isinstance(last, _Stream) and last.name == name):
            last = _Stream(escape_text(name))
            self._items.append(last)
        self._size += last.text.write(text)
        if self._cap is not None:
            self._bound()

    def _append(self, item: _Rich) -> None:
        if self._clear_next:
            self._reset()
        self._items.append(item)
        if item.display_id is not None:
            self._by_display.setdefault(item.display_id, []).append(item)
        self._size += item.size
        self._bound()

    def _add_display(self, kind: str, content: Mapping[str, Any], *, clean: bool) -> None:
        data, metadata = _bundle(content, clean=clean)
        display_id = _display_id(content)
        size = _weight(data) + _weight(metadata) if self._cap is not None else 0
        if display_id is not None:
            for shown in self._by_display.get(display_id, ()):
                shown.body["data"], shown.body["metadata"] = data, metadata
                self._size += size - shown.size
                shown.size = size
        if kind == "update_display_data":
            self._bound()
            return
        body: Output = {"output_type": kind, "data": data, "metadata": metadata}
        if kind == "execute_result":
            count = content.get("execution_count")
            body["execution_count"] = count if isinstance(count, int) and count >= 0 else None
        self._append(_Rich(body, display_id, size))

    def _shown(self, item: _Stream | _Rich) -> Output:
        out = item.output()
        if self._displays is not None and isinstance(item, _Rich) and item.display_id is not None:
            latest = self._displays.latest(item.display_id)
            if latest is not None:
                out["data"], out["metadata"] = latest
        return out

    def _bound(self) -> None:
        if self._cap is not None and self._size > 2 * self._cap:
            self._trim(self._cap)

    def _trim(self, cap: int) -> None:
        """Keep the first and the last half of the cap, and count what goes."""
        if not self._omitted_bytes:
            self._fill_head(cap // 2)
        kept: list[_Stream | _Rich] = []
        over = sum(item.size for item in self._items) - cap // 2
        for item in self._items:
            if over <= 0 or _is_error(item):
                kept.append(item)
                continue
            if isinstance(item, _Stream) and item.size > over:
                gone = len(item.text.take(over).encode())
                kept.append(item)
            else:
                gone = item.size
                self._omitted_outputs += 1
                if isinstance(item, _Rich) and item.display_id is not None:
                    self._by_display[item.display_id].remove(item)
            over -= gone
            self._omitted_bytes += gone
        self._items = kept
        self._size = sum(item.size for item in self._head) + sum(item.size for item in kept)

    def _fill_head(self, budget: int) -> None:
        """Move what fits from the front to the head, which stays as it is from now on."""
        fits = 0
        for item in self._items:
            if item.size > budget:
                break
            budget -= item.size
            fits += 1
        self._head = self._items[:fits]
        self._items = self._items[fits:]
        first = self._items[0] if self._items else None
        if isinstance(first, _Stream) and budget > 0:
            part = _Stream(first.name)
            part.text.write(first.text.take(budget))
            self._head.append(part)

    def _marker(self, more: int = 0) -> Output:
        outputs = f" and {self._omitted_outputs} whole outputs" if self._omitted_outputs else ""
        text = f"\n[{self._omitted_bytes + more} bytes{outputs} are left out here"
        text += f"; {self._pointer}]\n" if self._pointer else "]\n"
        return {"output_type": "stream", "name": "stderr", "text": text}


def fold(
    messages: Iterable[Message],
    *,
    cap_bytes: int | None = None,
    pointer: str = "",
    displays: DisplayIndex | None = None,
) -> list[Output]:
    """nbformat 4 outputs of one execution's messages, in the order they were sent."""
    folder = OutputFolder(cap_bytes=cap_bytes, pointer=pointer, displays=displays)
    for message in messages:
        folder.add(message)
    return folder.outputs()


def _read(message: Message) -> tuple[str, dict[str, Any], bool]:
    """Kind, content, and whether strings and numbers may be what JSON does not allow.

    Raises:
        ValueError or msgspec.MsgspecError: not a message.
    """
    if isinstance(message, bytes | msgspec.Raw):
        return _read_json(message)
    content = message.get("content")
    return str(message.get("type")), content if isinstance(content, dict) else {}, True


def _read_json(message: bytes | msgspec.Raw) -> tuple[str, dict[str, Any], bool]:
    try:
        wire = _decoder.decode(message)
        return wire.type, wire.content, False
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Python's json reads the NaN and lone surrogates that Python's json writes
        value = json.loads(bytes(message).decode("utf-8", "surrogateescape"))
        wire = msgspec.convert(value, _Wire)
        return wire.type, wire.content, True


def _may_name_display(message: Message) -> bool:
    return not isinstance(message, bytes | msgspec.Raw) or b'"display_id"' in bytes(message)


def _display_id(content: Mapping[str, Any]) -> str | None:
    transient = content.get("transient")
    found = transient.get("display_id") if isinstance(transient, dict) else None
    return None if found is None else str(found)


def _bundle(content: Mapping[str, Any], *, clean: bool) -> tuple[Output, Output]:
    """`(data, metadata)` as nbformat allows them; changes are named in the metadata."""
    given, metadata = content.get("data"), content.get("metadata")
    data: Output = dict(given) if isinstance(given, dict) else {}
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    changed: list[str] = []
    if clean:
        data = {escape_text(str(mime)): jsonable(value, changed, mime) for mime, value in data.items()}
        metadata = jsonable(metadata, changed, "metadata")
    for mime, value in data.items():
        if isinstance(value, str) or _JSON_MIME.fullmatch(mime):
            continue
        if not (isinstance(value, list) and all(isinstance(line, str) for line in value)):
            data[mime] = json.dumps(value)
            changed.append(f"{mime}: not text, written as JSON")
    if changed:
        ours = metadata.get("kernel_runtime")
        metadata["kernel_runtime"] = {**(ours if isinstance(ours, dict) else {}), "changed": changed}
    return data, metadata


def jsonable(value: Any, changed: list[str], where: Any = "") -> Any:
    """The value with what JSON cannot hold written as text; `changed` says what and where."""
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        changed.append(f"{where}: {text}, written as text")
        return text
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {escape_text(str(key)): jsonable(item, changed, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, changed, where) for item in value]
    changed.append(f"{where}: {type(value).__name__}, written as text")
    return escape_text(str(value))


def _error(content: Mapping[str, Any]) -> _Rich:
    lines = content.get("traceback")
    body = {
        "output_type": "error",
        "ename": escape_text(str(content.get("ename", ""))),
        "evalue": escape_text(str(content.get("evalue", ""))),
        "traceback": [escape_text(str(line)) for line in lines] if isinstance(lines, list) else [],
    }
    return _Rich(body, None, sum(map(len, body["traceback"])) + len(body["evalue"]))


def _last(outputs: list[Output], size: int) -> tuple[int, list[Output]]:
    """How many bytes go, and the last outputs within `size`, of which the first may be cut."""
    kept: list[Output] = []
    gone = 0
    for out in reversed(outputs):
        text = out.get("text", "")
        weight = len(text) if out["output_type"] == "stream" else _weight(out)
        if weight <= size or out["output_type"] == "error":
            kept.append(out)
        elif size > 0 and out["output_type"] == "stream":
            shown = text[-size:]
            shown = shown[shown.find("\n") + 1 :]
            kept.append({**out, "text": shown})
            gone += weight - len(shown)
        else:
            gone += weight
        size -= weight
    return gone, kept[::-1]


def _is_error(item: _Stream | _Rich) -> bool:
    return isinstance(item, _Rich) and item.body["output_type"] == "error"


def _weight(value: Any) -> int:
    """About how many bytes the value takes in JSON."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _weight(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(_weight, value))
    return 8
