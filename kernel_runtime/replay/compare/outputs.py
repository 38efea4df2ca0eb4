"""The outputs of one execution as what is compared: streams, displays, errors, in their order.

Takes any JSON that calls itself outputs and never raises: what is no output is compared as JSON. Pieces of
one stream that follow each other are one text, as every Jupyter page shows them, and a list of lines is a
text: neither is a difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from kernel_runtime.replay.compare import images, markup, text, tracebacks, values
from kernel_runtime.replay.compare.bridge import Bridge

_JSON = re.compile(r"application/(?:[^\s;]*\+)?json\b")
_TEXTS = ("text/", "application/javascript", "application/x-latex")
_DISPLAYS = ("display_data", "execute_result")


class Unit(Struct):
    """One output."""

    kind: str
    """`stream`, `display_data`, `execute_result`, `error`, `other`"""
    name: str = ""
    """of a stream"""
    text: str = ""
    data: dict[str, Any] = {}
    """of a display: mime type → text or JSON; of an error: `ename`, `evalue`, `traceback`"""
    raw: Any = None
    """of an output that is none"""
    index: int = 0
    """in the list it came from"""

    def label(self) -> str:
        if self.kind == "stream":
            return self.name
        if self.kind == "error":
            return f"error {self.data['ename']}"
        return f"{self.kind} {', '.join(sorted(self.data))}".strip()

    def shape(self) -> tuple[Any, ...]:
        """What two outputs must have in common to be compared at all."""
        return (self.kind, self.name, *sorted(self.data))


def units(outputs: Any) -> list[Unit]:
    """The outputs, pieces of a stream put together."""
    found: list[Unit] = []
    pieces: list[str] = []
    for index, output in enumerate(outputs if isinstance(outputs, list | tuple) else []):
        unit = _unit(output, index)
        last = found[-1] if found else None
        if unit.kind == "stream" and last is not None and (last.kind, last.name) == ("stream", unit.name):
            pieces.append(unit.text)
            continue
        _end_stream(last, pieces)
        pieces = [unit.text]
        found.append(unit)
    _end_stream(found[-1] if found else None, pieces)
    return [unit for unit in found if unit.kind != "stream" or unit.text]


def _end_stream(last: Unit | None, pieces: list[str]) -> None:
    if last is not None and last.kind == "stream":
        last.text = "".join(pieces)


def _unit(output: Any, index: int) -> Unit:
    kind = output.get("output_type") if isinstance(output, dict) else None
    if kind == "stream":
        return Unit(
            "stream", name=_text(output.get("name", "stdout")), text=_text(output.get("text")), index=index
        )
    if kind == "error":
        lines = output.get("traceback")
        lines = [_text(line) for line in lines] if isinstance(lines, list) else [_text(lines)]
        data = {
            "ename": _text(output.get("ename")),
            "evalue": _text(output.get("evalue")),
            "traceback": lines,
        }
        return Unit("error", data=data, index=index)
    if kind in _DISPLAYS and isinstance(output.get("data"), dict):
        bundle = {
            str(mime): value if _is_json(str(mime)) else _text_or_json(value)
            for mime, value in output["data"].items()
        }
        return Unit(kind, data=bundle, index=index)
    return Unit("other", raw=output, index=index)


def _text(value: Any) -> str:
    found = _text_or_json(value)
    return found if isinstance(found, str) else ("" if found is None else str(type(found).__name__))


def _text_or_json(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _is_json(mime: str) -> bool:
    return bool(_JSON.match(mime))


def by_stream(found: Sequence[Unit]) -> list[Unit]:
    """With all of stdout before all of stderr, wherever streams follow each other."""
    grouped: list[Unit] = []
    run: dict[str, Unit] = {}
    for unit in [*found, Unit("end")]:
        if unit.kind != "stream":
            grouped += [run[name] for name in sorted(run, reverse=True)]
            run = {}
            grouped.append(unit)
        elif unit.name in run:
            known = run[unit.name]
            run[unit.name] = Unit("stream", name=known.name, text=known.text + unit.text, index=known.index)
        else:
            run[unit.name] = unit
    return grouped[:-1]


def compare(bridge: Bridge, recorded: Unit, replayed: Unit) -> None:
    """Hold two outputs of one shape against each other."""
    if recorded.kind == "stream":
        bridge.where = recorded.name
        text.compare(bridge, recorded.text, replayed.text)
    elif recorded.kind == "error":
        bridge.where = "error"
        tracebacks.compare(bridge, recorded.data, replayed.data)
    elif recorded.kind == "other":
        bridge.where = "output"
        values.compare(bridge, recorded.raw, replayed.raw)
    else:
        for mime, value in recorded.data.items():
            bridge.where = mime
            _representation(bridge, mime, value, replayed.data[mime])


def _representation(bridge: Bridge, mime: str, one: Any, two: Any) -> None:
    if _is_json(mime) or not (isinstance(one, str) and isinstance(two, str)):
        values.compare(bridge, one, two)
    elif mime.startswith("image/svg"):
        markup.compare(bridge, one, two, xml=True)
    elif mime == "text/html":
        markup.compare(bridge, one, two)
    elif mime.startswith("image/"):
        images.compare(bridge, one, two)
    elif mime.startswith(_TEXTS):
        text.compare(bridge, one, two)
    elif one != two:
        bridge.differ(f"{len(one)} characters", f"{len(two)} characters", why=f"{mime} is compared as it is")
