"""What a managed process said, in one file that never outgrows its bound.

Whatever is not there is counted in the file itself, where it is missing, on a line of its own:

    [krt: 8388608 bytes, 120000 lines are not kept: bound]

`bound` stands first in the file: what was said before was dropped so that the last half of the bound
stays. `disk` stands where it happened: the file system had less free than what others need.
Standard library only. Not promised: what was written survives a power cut.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_LOOK_EVERY = 1 << 18
"""bytes between two looks at the free space"""
_LOOK_AFTER = 1.0
"""seconds until a disk that was short is looked at again"""
_PIECE = 1 << 20


class ProcessLog:
    """Append-only for its owner; people read the file."""

    def __init__(
        self,
        path: str,
        *,
        bound: int,
        floor: int,
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[int], os.statvfs_result] = os.fstatvfs,
    ) -> None:
        self.path = path
        self.bytes = 0
        """all that was said"""
        self.lines = 0
        self.dropped_bytes = 0
        self.dropped_lines = 0
        self._bound = max(bound, 4096)
        self._floor = floor
        self._clock = clock
        self._look = look
        self._fd = self._open(path)
        self._size = 0
        self._gaps: list[tuple[int, bytes, int, int]] = []
        """gap lines in the file: `(offset, text, bytes, lines)`"""
        self._missing = [0, 0]
        """bytes and lines said since the disk is short, not told yet"""
        self._unlooked = _LOOK_EVERY
        self._look_again = 0.0

    def append(self, data: bytes) -> None:
        """Keep what was said, or count it."""
        self.bytes += len(data)
        self.lines += data.count(b"\n")
        if self._short(len(data)):
            self._miss(data)
            return
        if self._missing[0]:
            self._tell_missing()
        self._write(data)
        if self._size > self._bound:
            self._rotate()

    def close(self) -> None:
        """Tell what is missing at the end."""
        if self._missing[0]:
            self._tell_missing()
        os.close(self._fd)

    def counts(self) -> dict[str, int]:
        return {
            "bytes": self.bytes,
            "lines": self.lines,
            "dropped_bytes": self.dropped_bytes,
            "dropped_lines": self.dropped_lines,
        }

    def _open(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _short(self, size: int) -> bool:
        if self._missing[0] and self._clock() < self._look_again:
            return True
        self._unlooked += size
        if self._unlooked < _LOOK_EVERY and not self._missing[0]:
            return False
        self._unlooked = 0
        self._look_again = self._clock() + _LOOK_AFTER
        info = self._look(self._fd)
        return info.f_bavail * info.f_frsize < min(self._floor, info.f_blocks * info.f_frsize // 20)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._fd, view)
            except OSError:  # full, over quota, a broken disk: the process goes on, and it is counted
                self._look_again = self._clock() + _LOOK_AFTER
                self._miss(bytes(view))
                return
            self._size += written
            view = view[written:]

    def _miss(self, data: bytes) -> None:
        self._missing[0] += len(data)
        self._missing[1] += data.count(b"\n")
        self.dropped_bytes += len(data)
        self.dropped_lines += data.count(b"\n")

    def _tell_missing(self) -> None:
        missing, self._missing = self._missing, [0, 0]
        line = b"\n" + gap_line(missing[0], missing[1], "disk")
        at = self._size
        try:
            written = os.write(self._fd, line)
        except OSError:
            self._missing = missing
            return
        self._size += written
        self._gaps.append((at, line[:written], missing[0], missing[1]))

    def _rotate(self) -> None:
        """Keep the last half of the bound, from the start of a line on."""
        draft = f"{self.path}.new"
        source = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not os.path.samestat(os.stat(self.path), os.fstat(source)):  # noqa: PTH116
                raise FileExistsError(
                    self.path
                )  # a later log of that name: that stays, and nobody reads ours
            cut = self._cut(source)
            kept = [gap for gap in self._gaps if gap[0] >= cut]
            left = [gap for gap in self._gaps if gap[0] < cut]
            # what earlier gaps already told of is dropped no second time
            told = sum(len(gap[1]) for gap in left)
            lines = self._lines_before(source, cut) - sum(gap[1].count(b"\n") for gap in left)
            self.dropped_bytes += cut - told
            self.dropped_lines += lines
            all_bytes = cut - told + sum(gap[2] for gap in left)
            all_lines = lines + sum(gap[3] for gap in left)
            header = gap_line(all_bytes, all_lines, "bound")
            new = self._open(draft)
            try:
                os.write(new, header)
                os.lseek(source, cut, os.SEEK_SET)
                while piece := os.read(source, _PIECE):
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(new, view) :]
                os.rename(draft, self.path)  # noqa: PTH104 - pathlib is a megabyte of memory
            except OSError:
                os.close(new)
                os.unlink(draft)  # noqa: PTH108
                raise
        except OSError:
            # no room for the copy, or no name: begin anew rather than grow
            self._start_over()
            return
        finally:
            os.close(source)
        os.close(self._fd)
        self._fd = new
        shift = len(header) - cut
        self._gaps = [(0, header, all_bytes, all_lines)]
        self._gaps += [(at + shift, text, lost, ends) for at, text, lost, ends in kept]
        self._size = self._size - cut + len(header)

    def _start_over(self) -> None:
        os.ftruncate(self._fd, 0)
        self._size = 0
        self._gaps = []
        self.dropped_bytes, self.dropped_lines = self.bytes, self.lines
        header = gap_line(self.bytes, self.lines, "bound")
        try:
            self._size = os.write(self._fd, header)
            self._gaps = [(0, header[: self._size], self.bytes, self.lines)]
        except OSError:
            self._missing = [self.bytes, self.lines]

    def _cut(self, source: int) -> int:
        wanted = self._size - self._bound // 2
        near = os.pread(source, 65536, wanted)
        at = near.find(b"\n")
        cut = wanted if at < 0 else wanted + at + 1
        for start, text, _, _ in self._gaps:
            if start < cut < start + len(text):
                cut = start + len(text)
        return cut

    def _lines_before(self, source: int, end: int) -> int:
        count, at = 0, 0
        while at < end:
            piece = os.pread(source, min(_PIECE, end - at), at)
            if not piece:
                break
            count += piece.count(b"\n")
            at += len(piece)
        return count


def gap_line(count: int, lines: int, why: str) -> bytes:
    """What stands in the file in place of what is not kept."""
    return f"[krt: {count} bytes, {lines} lines are not kept: {why}]\n".encode()
