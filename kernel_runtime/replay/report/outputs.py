"""nbformat outputs as a reader of the report sees them: each one labelled, bounded, safe.

A display is shown as the richest of its representations that can be shown; the others are named.
"""

from __future__ import annotations

from typing import Any

import msgspec
from markupsafe import Markup, escape
from msgspec import Struct

from kernel_runtime.replay.report import safe

MOST_TEXT = 20_000
"""characters of one text: what is longer is cut in the middle, with a sentence"""
MOST_OUTPUTS = 50
"""outputs of one execution that are shown: the first and the last ones"""
_HEAD = MOST_TEXT * 3 // 4
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_KINDS = {"execute_result": "result", "display_data": "display"}
_CAPTION = 200


class Part(Struct, frozen=True, kw_only=True):
    """One output."""

    label: str
    body: Markup
    kind: str = "text"
    """`text`: stands in `<pre>`; `html`, `image`, `none`"""
    notes: list[str] = []


def parts(outputs: Any, where: str) -> list[Part]:
    """The outputs of one side; `where` says whose they are, in the description of an image."""
    found = [one for one in outputs if isinstance(one, dict)] if isinstance(outputs, list) else []
    if len(found) <= MOST_OUTPUTS:
        return [_part(one, where) for one in found]
    half = MOST_OUTPUTS // 2
    told = f"{len(found) - MOST_OUTPUTS:,} outputs of {len(found):,} are left out here."
    left = Part(label="left out", body=Markup(), kind="none", notes=[told])
    return [*(_part(one, where) for one in found[:half]), left, *(_part(one, where) for one in found[-half:])]


def bounded(value: Any) -> Markup:
    """Text, cut in its middle where it is long, as a terminal shows it."""
    text = joined(value)
    if len(text) <= MOST_TEXT:
        return safe.terminal(text)
    left = len(text) - MOST_TEXT
    told = Markup('<span class="cut">[{} characters are left out here]</span>').format(f"{left:,}")
    tail = text[len(text) - (MOST_TEXT - _HEAD) :]
    return Markup("\n").join([safe.terminal(text[:_HEAD]), told, safe.terminal(tail)])


def joined(value: Any) -> str:
    """nbformat's multiline strings, and whatever else stands in their place."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return "" if value is None else json(value)


def json(value: Any) -> str:
    """A value as JSON, indented where it is short."""
    try:
        encoded = msgspec.json.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError):
        return repr(value)
    return (encoded if len(encoded) > MOST_TEXT else msgspec.json.format(encoded, indent=2)).decode()


def _part(output: dict[str, Any], where: str) -> Part:
    kind = output.get("output_type")
    if kind == "stream":
        return Part(label=joined(output.get("name")) or "stdout", body=bounded(output.get("text")))
    if kind == "error":
        lines = output.get("traceback")
        told = "\n".join(map(joined, lines)) if isinstance(lines, list) else joined(lines)
        message = f"{joined(output.get('ename'))}: {joined(output.get('evalue'))}"
        return Part(label="error", body=bounded(told or message))
    data = output.get("data")
    if isinstance(kind, str) and kind in _KINDS and isinstance(data, dict):
        return _display(_KINDS[kind], {str(mime): value for mime, value in data.items()}, where)
    return Part(label="output", body=bounded(json(output)))


def _display(label: str, data: dict[str, Any], where: str) -> Part:
    notes: list[str] = []
    for mime in (*_IMAGES, "text/html", *sorted(mime for mime in data if _is_text(mime)), *data):
        if mime not in data:
            continue
        try:
            body, kind = _representation(mime, data, where)
        except safe.Unsafe as why:
            notes.append(f"{mime} is not shown: {why}.")
            continue
        others = [other for other in data if other != mime and not any(other in note for note in notes)]
        if others:
            notes.append(f"It has other representations: {', '.join(others[:10])}.")
        return Part(label=f"{label}, {mime}", body=body, kind=kind, notes=notes)
    return Part(label=label, body=Markup(), kind="none", notes=notes or ["It holds nothing."])


def _representation(mime: str, data: dict[str, Any], where: str) -> tuple[Markup, str]:
    value = data[mime]
    if mime in _IMAGES:
        uri, size = safe.image(mime, joined(value))
        said = joined(data.get("text/plain")).strip()[:_CAPTION]
        alt = f"{where}: {mime}, {size}" + (f"; as text: {said}" if said else "")
        return Markup('<img src="{}" alt="{}">').format(uri, safe.visible(alt)), "image"
    if mime == "text/html":
        return safe.html(joined(value)), "html"
    if _is_text(mime) or not isinstance(value, str):
        return bounded(value), "text"
    if len(value) <= _CAPTION:
        return escape(safe.visible(value)), "text"
    raise safe.Unsafe(f"{len(value):,} characters of a type that is not shown")


def _is_text(mime: str) -> bool:
    return mime.startswith("text/") and mime != "text/html"
