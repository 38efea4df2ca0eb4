"""An encoder that always succeeds."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel_runtime.kernel.mime import clean

_encoder = msgspec.json.Encoder(decimal_format="string")


def pack(value: Any) -> bytes:
    """JSON of any value: what JSON does not have is replaced by what comes nearest."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encoder.encode(clean(value, "$", []))
