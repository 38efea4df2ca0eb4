"""What can be a cell's source."""

from __future__ import annotations

from kernel_runtime.errors import InvalidSource

MAX_SOURCE = 16 * 1024 * 1024
"""bytes of UTF-8 that one cell may have"""


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
            hint="nothing was run; write the character as an escape, e.g. '\\ud800'",
            session=session,
        ) from None
    if size > MAX_SOURCE:
        raise InvalidSource(
            f"session {session}: the source has {size:,} bytes, {MAX_SOURCE:,} is the most one cell may have",
            hint="nothing was run; put the data in a file and have the cell read it",
            session=session,
            bytes=size,
            bound=MAX_SOURCE,
        )
