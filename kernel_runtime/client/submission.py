"""What may be asked of a cell that is to be run."""

from __future__ import annotations

from typing import TypedDict

from kernel_runtime.errors import InvalidSource

MAX_SOURCE = 16 * 1024 * 1024
"""bytes of UTF-8 that one cell may have"""


class How(TypedDict, total=False):
    """How a cell is to be run; every part may be left out."""

    key: str | None
    """idempotency key: the same key and source run once, ever"""
    cell_id: str | None
    """the nbformat cell it belongs to; a new one by default"""
    accept: bool
    """run it even if the heap this principal knew is gone"""
    expect_incarnation: int | None
    """refuse it in any other"""
    allow_stdin: bool
    stop_on_error: bool
    store_history: bool
    silent: bool


def check_source(source: str, session: str) -> None:
    """Refuse what cannot be a cell.

    Raises:
        InvalidSource: over 16 MiB, or with surrogates that have no UTF-8.
    """
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise InvalidSource(
            f"session {session}: the source is not text: {error.reason} at character {error.start}",
            hint="write the character as an escape, e.g. '\\ud800'",
            session=session,
        ) from None
    if size > MAX_SOURCE:
        raise InvalidSource(
            f"session {session}: the source has {size:,} bytes, {MAX_SOURCE:,} is the most one cell may have",
            hint="put the data in a file and have the cell read it",
            session=session,
            bytes=size,
            bound=MAX_SOURCE,
        )
