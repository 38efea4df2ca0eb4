"""Notebook documents as JSON: the layout that nbformat writes, without loading nbformat.

Keys sorted, one space of indentation, long texts as lists of lines: what Jupyter writes on save, so
that a save by either side shows no difference that nobody made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kernel_runtime.core.outputs import Output, jsonable

_encoder = msgspec.json.Encoder(order="sorted")
_LINED = ("application/javascript", "image/svg+xml")
"""texts beside text/* that nbformat splits into lines"""


class NotJson(ValueError):
    """Bytes that are no JSON, also as Python writes it."""


def parse(data: bytes) -> Any:
    """The value of JSON bytes, lone surrogates and NaN in it as text.

    Raises:
        NotJson: with what is wrong and where.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # Python's json reads more: NaN, lone surrogates, a byte order mark
    try:
        return jsonable(json.loads(data.decode("utf-8-sig", "surrogateescape")), [])
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def joined(text: object) -> str:
    """nbformat's multiline string as one."""
    if isinstance(text, list):
        return "".join(map(str, text))
    return text if isinstance(text, str) else ""


def lined(outputs: Iterable[Output]) -> list[Output]:
    """Outputs with their texts as lists of lines."""
    return [_lined(out) for out in outputs]


def _lined(out: Output) -> Output:
    if out["output_type"] == "stream":
        return {**out, "text": lines(out["text"])}
    if "data" not in out:
        return out
    return {
        **out,
        "data": {
            mime: lines(value) if isinstance(value, str) and _is_lined(mime) else value
            for mime, value in out["data"].items()
        },
    }


def _is_lined(mime: str) -> bool:
    return mime.startswith("text/") or mime in _LINED


def cell_bytes(cell: Mapping[str, Any]) -> bytes:
    """One cell, indented for its place in the document."""
    return _indented(cell, b"  ")


def document_bytes(cells: Iterable[bytes], metadata: Mapping[str, Any], minor: int = 5) -> bytes:
    """The document of cells that `cell_bytes` made."""
    body = b",\n".join(cells)
    return b"".join(
        (
            b'{\n "cells": [',
            b"\n" + body + b"\n " if body else b"",
            b'],\n "metadata": ',
            _indented(metadata, b" ").lstrip(),
            b',\n "nbformat": 4,\n "nbformat_minor": %d\n}\n' % minor,
        )
    )


def _indented(value: Any, by: bytes) -> bytes:
    try:
        encoded = _encoder.encode(value)
    except UnicodeEncodeError:
        encoded = _encoder.encode(jsonable(value, []))
    # a newline within a string is escaped, so each one here is the layout's
    return by + msgspec.json.format(encoded, indent=1).replace(b"\n", b"\n" + by)
