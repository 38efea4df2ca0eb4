r"""Text of one stream output with the cursor of a terminal line.

Shows what Jupyter's frontends show: `\r` goes to the start of the line and later text overwrites,
`\b` takes back the last character, or within the line goes back over it, and never passes the line's
start, `\n` ends the line as it stands. Escape sequences are text. Text without `\r` and `\b` is kept
as it came, in time linear in its length; a line under a cursor is held as UTF-32, so that each update
costs its own length and not the line's. Lone surrogates are escaped (`\ud800`), so the text is UTF-8.
"""

from __future__ import annotations

import re
from collections import deque

from kernel_runtime.model.facts import escape_text

_CURSOR = re.compile("[\r\b]")
_ENDS = re.compile("\r+\n")
_NEAR = 1024
"""how far a cut may move to meet the end of a line, in characters"""


class StreamText:
    """A growing text; `size` is its length in bytes of UTF-8, a line under a cursor counted by characters."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._fixed = 0
        self._line: bytearray | None = None
        self._cursor = 0

    @property
    def size(self) -> int:
        return self._fixed + (len(self._line) // 4 if self._line is not None else 0)

    def write(self, text: str) -> int:
        """Take in text; how much `size` grew (less than 0 where a cursor took something back)."""
        try:
            length = len(text.encode())
        except UnicodeEncodeError:
            text = escape_text(text)
            length = len(text)
        if self._line is None and "\r" not in text and "\b" not in text:
            self._parts.append(text)
            self._fixed += length
            return length
        before = self.size
        self._write_under_cursor(text)
        return self.size - before

    def _write_under_cursor(self, text: str) -> None:
        if "\r\n" in text:
            text = _ENDS.sub("\n", text)
        at = 0
        while at < len(text):
            if self._line is None:
                found = _CURSOR.search(text, at)
                if found is None:
                    self._keep(text[at:])
                    return
                start = text.rfind("\n", at, found.start()) + 1
                if start > at:
                    self._keep(text[at:start])
                    at = start
                self._take_up_line()
            end = text.find("\n", at)
            self._overwrite(text[at:] if end < 0 else text[at:end])
            if end < 0:
                return
            self._end_line()
            at = end + 1

    def text(self) -> str:
        line = "" if self._line is None else self._line.decode("utf-32-le")
        return "".join(self._parts) + line

    def take(self, limit: int) -> str:
        """Remove about `limit` bytes from the front, whole lines where one ends near, and return them."""
        taken: list[str] = []
        while limit > 0 and self._parts:
            part = self._parts.popleft()
            size = len(part.encode())
            self._fixed -= size
            if size > limit:
                at = _cut(part, limit)
                if at <= _NEAR and not part.startswith("\n", at - 1) and taken and taken[-1].endswith("\n"):
                    at = 0
                self._parts.appendleft(part[at:])
                self._fixed += len(part[at:].encode())
                part = part[:at]
                size = limit
            limit -= size
            taken.append(part)
        if limit > 0 and self._line:
            count = min(limit, len(self._line) // 4)
            taken.append(self._line[: count * 4].decode("utf-32-le"))
            del self._line[: count * 4]
            self._cursor = max(0, self._cursor - count)
        return "".join(taken)

    def _keep(self, text: str) -> None:
        self._parts.append(text)
        self._fixed += len(text.encode())

    def _take_up_line(self) -> None:
        """Put the unfinished last line under the cursor, which stands at its end."""
        tail: list[str] = []
        while self._parts:
            part = self._parts.pop()
            start = part.rfind("\n") + 1
            if start:
                self._parts.append(part[:start])
                part = part[start:]
            tail.append(part)
            if start:
                break
        line = "".join(reversed(tail))
        self._fixed -= len(line.encode())
        self._line = bytearray(line.encode("utf-32-le"))
        self._cursor = len(line)

    def _overwrite(self, text: str) -> None:
        line = self._line
        assert line is not None
        at = 0
        while at < len(text):
            found = _CURSOR.search(text, at)
            end = len(text) if found is None else found.start()
            if end > at:
                start = self._cursor * 4
                line[start : start + (end - at) * 4] = text[at:end].encode("utf-32-le")
                self._cursor += end - at
            if found is None:
                return
            if text[end] == "\r":
                self._cursor = 0
            elif self._cursor:
                if self._cursor * 4 == len(line):
                    del line[-4:]
                self._cursor -= 1
            at = end + 1

    def _end_line(self) -> None:
        assert self._line is not None
        self._keep(self._line.decode("utf-32-le") + "\n")
        self._line = None


def _cut(text: str, limit: int) -> int:
    """Index of the character where `limit` bytes end, moved back to a line's end if one is near."""
    at = limit if text.isascii() else len(text.encode()[:limit].decode("utf-8", "ignore"))
    line_end = text.rfind("\n", max(0, at - _NEAR), at) + 1
    return line_end or at
