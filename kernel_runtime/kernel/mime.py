"""Make a mimebundle valid JSON, and say what had to be changed.

NaN and Infinity are no JSON, and encoders drop or null them without a word. Here they become
strings, as do Decimal and datetime; numpy scalars become numbers, bytes base64, and what nobody
knows its repr. Each change is told under `krt_json` in the output's metadata.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

NOTE_KEY = "krt_json"
_NOTES_MAX = 20
_DEPTH_MAX = 200


def clean_bundle(data: Mapping[str, Any], metadata: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and metadata that encode as JSON; unchanged ones are returned as they are, cheaply."""
    notes: list[str] = []
    cleaned = {}
    for mimetype, value in data.items():
        if type(value) is str and value.isascii():
            cleaned[mimetype] = value
        elif isinstance(value, bytes):  # images: base64 is how they are sent, no change to tell
            cleaned[mimetype] = base64.b64encode(value).decode("ascii")
        else:
            cleaned[str(mimetype)] = clean(value, str(mimetype), notes)
    meta = clean(metadata, "metadata", notes) if metadata else {}
    if not isinstance(meta, dict):
        meta = {"value": meta}
    if notes:
        left = len(notes) - _NOTES_MAX
        meta = {**meta, NOTE_KEY: notes[:_NOTES_MAX] + ([f"and {left} more"] if left > 0 else [])}
    return cleaned, meta


def clean(value: Any, path: str, notes: list[str], depth: int = 0) -> Any:
    """A JSON value; each change appends `path: what became of it` to `notes`."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if isinstance(value, str):
        return _text(value, path, notes)
    if depth > _DEPTH_MAX:
        notes.append(f"{path}: nested too deeply, as text")
        return "…"
    if isinstance(value, Mapping):
        return {
            _text(k if isinstance(k, str) else _key(k, path, notes), path, notes): clean(
                v, f"{path}.{k}", notes, depth + 1
            )
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [clean(v, f"{path}[{i}]", notes, depth + 1) for i, v in enumerate(value)]
    return _scalar(value, path, notes, depth)


def _scalar(value: Any, path: str, notes: list[str], depth: int) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        notes.append(f"{path}: {text} as text")
        return text
    if isinstance(value, int):
        return int(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, (bytes, bytearray, memoryview)):
        notes.append(f"{path}: {name} as base64")
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, Decimal):
        notes.append(f"{path}: {name} as text")
        return str(value)
    if isinstance(value, (datetime, date, time)):
        notes.append(f"{path}: {name} as ISO 8601 text")
        return value.isoformat()
    if isinstance(value, (Sequence, AbstractSet)):
        notes.append(f"{path}: {name} as list")
        return [clean(v, f"{path}[{i}]", notes, depth + 1) for i, v in enumerate(value)]
    try:
        plain = value.tolist()  # numpy scalars and arrays, without importing numpy
    except Exception as error:  # noqa: BLE001 - any object may be shown, its attributes are its own
        notes.append(f"{path}: {name} as its repr ({type(error).__name__})")
        return _safe_repr(value)
    notes.append(f"{path}: {name} as {type(plain).__name__}")
    return clean(plain, path, notes, depth + 1) if type(plain) is not type(value) else _safe_repr(value)


def _text(value: str, path: str, notes: list[str]) -> str:
    if type(value) is not str:
        value = str.__str__(value)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        notes.append(f"{path}: lone surrogates as escapes")
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _key(key: Any, path: str, notes: list[str]) -> str:
    notes.append(f"{path}: key {type(key).__name__} as text")
    return _safe_repr(key) if not isinstance(key, (int, float, bool, type(None))) else str(key)


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a repr may raise anything
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
