"""The outbox, reading side: what the supervisor knows a kernel of ours by.

Works the same on an outbox whose writer is alive, stopped or dead, and resumes at any position it
returned before. It trusts nothing it reads: a directory that is not what a writer could have left
is an IntegrityFault, while a record that its writer did not live to finish is simply not there.
One reader at a time; it never blocks the writer.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from pathlib import Path

from msgspec import Struct

from kernel_runtime.errors import IntegrityFault
from kernel_runtime.kernel import outbox_format as fmt


class StreamText(Struct, frozen=True, gc=False):
    """Text of one stream and parent; `position` is after it, maybe inside a record that still grows."""

    position: int
    name: str
    parent: bytes
    """raw JSON of the parent header, `{}` if none"""
    text: bytes
    """UTF-8, whole characters"""


class WireMessage(Struct, frozen=True):
    """A message as it would have gone over the wire: identities or topic, delimiter, signature, frames."""

    position: int
    channel: str
    frames: list[bytes]


class Gap(Struct, frozen=True, gc=False):
    """What the writer dropped here, in messages and bytes."""

    position: int
    messages: int
    bytes: int


Record = StreamText | WireMessage | Gap


class OutboxReader:
    """Reads an outbox from `position` on.

    Raises:
        FileNotFoundError: there is no outbox there, or its writer has not got so far.
        IntegrityFault: it is damaged, or `position` is not in it.
    """

    def __init__(self, directory: Path, position: int = 0) -> None:
        self.directory = Path(directory)
        fd = os.open(self.directory / "control", os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != fmt.CONTROL_SIZE:
                raise self._damage("control page has the wrong size")
            self._control_map = mmap.mmap(fd, fmt.CONTROL_SIZE)
        finally:
            os.close(fd)
        self._control = memoryview(self._control_map).cast("Q")
        self._segment: _Segment | None = None
        self._bell = -1
        try:
            self._check_control()
            # Read and write: a FIFO without a writer would report hang-up for ever.
            self._bell = os.open(self.directory / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._fence = threading.Lock()
            self._oldest = min(self._bases(), default=0)
            self.position = position
            self._record = 0
            if position:
                self._seek(position)
        except BaseException:
            self.close()
            raise

    # -- reading ---------------------------------------------------------------

    def read(self, max_bytes: int = 1 << 20) -> list[Record]:
        """Records from `position` on, in order; about `max_bytes` of them, `[]` when there is no more now.

        Raises:
            IntegrityFault: the outbox is damaged; `position` stays after the last good record.
        """
        records: list[Record] = []
        start = self.position
        while self.position - start < max_bytes:
            record = self._next()
            if record is None:
                break
            records.append(record)
        self._control[fmt.C_READ] = self.position
        return records

    def _next(self) -> Record | None:
        while True:
            segment = self._segment
            if segment is None:
                segment = self._open_first()
                if segment is None:
                    return None
            at = self._record
            word = segment.words[at >> 3]
            kind, end = word & 0xFF, at + fmt.RECORD_HEADER + (word >> 8)
            if not word:
                return None
            if end > segment.size or kind > fmt.END:
                raise self._damage(f"no record can be at {segment.base + at}: word {word:#x}")
            if kind == fmt.END:
                self._enter(self._open(segment.base + segment.size), fmt.SEGMENT_HEADER)
                continue
            if kind in (fmt.STREAM_OPEN, fmt.STREAM):
                record = self._stream(segment, at, end)
                if kind == fmt.STREAM:
                    self._record = fmt.align(end)
                    if record is None:
                        self.position = segment.base + self._record
                        continue
                return record
            self._record = fmt.align(end)
            self.position = segment.base + self._record
            if kind == fmt.MESSAGE:
                return self._message(segment, at, end)
            words = segment.words
            return Gap(self.position, words[(at >> 3) + 1], words[(at >> 3) + 2])

    def _stream(self, segment: _Segment, at: int, end: int) -> StreamText | None:
        aux = segment.words[(at >> 3) + 1]
        body = at + fmt.RECORD_HEADER
        name_end = body + (aux >> 32)
        text = name_end + (aux & 0xFFFFFFFF)
        if text > end:
            raise self._damage(f"stream record at {segment.base + at} is shorter than its parent")
        seen = max(text, self.position - segment.base)
        if seen >= end:
            return None
        view = segment.view
        self.position = segment.base + end
        return StreamText(
            self.position,
            str(view[body:name_end], "utf-8", "replace"),
            bytes(view[name_end:text]),
            bytes(view[seen:end]),
        )

    def _message(self, segment: _Segment, at: int, end: int) -> WireMessage:
        word = (at >> 3) + 1
        count, code = segment.words[word] >> 8, segment.words[word] & 0xFF
        start = at + fmt.RECORD_HEADER + 8 * count
        if start > end or code >= len(fmt.CHANNELS):
            raise self._damage(f"message at {segment.base + at} has no {count} frames")
        frames = []
        for index in range(word + 1, word + 1 + count):
            stop = start + segment.words[index]
            frames.append(bytes(segment.view[start:stop]))
            start = stop
        if start != end:
            raise self._damage(f"message at {segment.base + at}: its frames do not fill it")
        return WireMessage(self.position, fmt.CHANNELS[code], frames)

    # -- collecting and the bell -----------------------------------------------

    def collected(self, position: int) -> None:
        """All before `position` is durable elsewhere: segments that end there may go."""
        position = min(position, self.position)
        self._control[fmt.C_COLLECTED] = max(position, self._control[fmt.C_COLLECTED])
        while self._segment is not None and self._oldest < self._segment.base:
            path = self.directory / fmt.segment_name(self._oldest)
            size = path.stat().st_size
            if self._oldest + size > position:
                break
            path.unlink()
            self._oldest += size

    def arm(self, level: int) -> None:
        """Ask to be rung: 0 no, 1 at anything, 2 at anything but stream text (and at > 1 MiB unread).

        One ring per arming. What is there already rings at once, so arm-then-poll misses nothing.
        Level 3, for who looks again soon anyway, is rung only by what ends an execution (`status:
        idle`) or asks for input, from now on: a short cell costs one ring instead of four.
        """
        self._control[fmt.C_ARMED] = level
        # A full fence between our store and our look, as the writer's lock is between its record
        # and its look at `armed`: without both, each could miss the other (x86 lets a load pass
        # an older store).
        with self._fence:
            pass
        if level and self._worth_ringing(level):
            self._control[fmt.C_ARMED] = 0
            with contextlib.suppress(BlockingIOError):  # full: it rings already
                os.write(self._bell, b"\0")

    def fileno(self) -> int:
        """The bell, for poll(2)."""
        return self._bell

    def drain(self) -> None:
        """Empty the bell."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)

    @property
    def writer_pid(self) -> int:
        """The kernel that writes here; 0 before it came."""
        return self._control[fmt.C_PID]

    @property
    def head(self) -> int:
        """How far the writer is; a hint, since a killed writer may have been a record further."""
        return self._control[fmt.C_HEAD]

    @property
    def dropped(self) -> tuple[int, int]:
        """Messages and bytes the writer has dropped so far, including those no Gap tells yet."""
        return self._control[fmt.C_DROPPED], self._control[fmt.C_DROPPED_BYTES]

    def close(self) -> None:
        """Let go of the files; a second call does nothing."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
        if not self._control_map.closed:
            self._control.release()
            self._control_map.close()

    # -- finding the way -------------------------------------------------------

    def _check_control(self) -> None:
        if self._control[fmt.C_MAGIC] != fmt.MAGIC:
            raise self._damage("control page is not an outbox's")
        if self._control[fmt.C_VERSION] != fmt.VERSION:
            raise self._damage(f"version {self._control[fmt.C_VERSION]} is unknown")

    def _worth_ringing(self, level: int) -> bool:
        if self.head > self.position + fmt.UNREAD_LOUD:
            return True
        segment = self._segment or self._open_first()
        if segment is None or level == fmt.ENDS_ONLY:
            return False
        at = self._record
        while word := segment.words[at >> 3]:
            kind, end = word & 0xFF, at + fmt.RECORD_HEADER + (word >> 8)
            if kind not in (fmt.STREAM_OPEN, fmt.STREAM):
                return True
            if level == 1 and segment.base + end > self.position:
                return True
            if kind == fmt.STREAM_OPEN or end > segment.size:
                return False
            at = fmt.align(end)
        return False

    def _bases(self) -> list[int]:
        found = (fmt.segment_base(name) for name in os.listdir(self.directory))
        return [base for base in found if base is not None]

    def _open_first(self) -> _Segment | None:
        try:
            segment = _Segment(self.directory, self._oldest)
        except FileNotFoundError:
            return None  # an outbox whose writer has not come yet
        if not segment.words[0] and not self.writer_pid:
            segment.close()
            return None
        if not segment.sound:
            raise self._damage(f"segment {self._oldest} has a false header")
        if self._oldest > 0:
            raise self._damage(f"position {self.position} was collected; the oldest left is {self._oldest}")
        self._enter(segment, fmt.SEGMENT_HEADER)
        return segment

    def _open(self, base: int) -> _Segment:
        try:
            segment = _Segment(self.directory, base)
        except FileNotFoundError:
            raise self._damage(f"segment {base} is missing") from None
        if not segment.sound:
            segment.close()
            raise self._damage(f"segment {base} has a false header")
        return segment

    def _enter(self, segment: _Segment, at: int) -> None:
        if self._segment is not None:
            self._segment.close()
        self._segment = segment
        self._record = at
        self.position = segment.base + at

    def _seek(self, position: int) -> None:
        base = max((b for b in self._bases() if b <= position), default=None)
        if base is None:
            raise self._damage(f"position {position} was collected or never written")
        segment = self._open(base)
        offset = position - base
        at = fmt.SEGMENT_HEADER
        while at < offset:
            if at + fmt.RECORD_HEADER > segment.size:
                break
            word = segment.words[at >> 3]
            end = at + fmt.RECORD_HEADER + (word >> 8)
            if not word or end > segment.size:
                break
            if offset < end or (offset == end and word & 0xFF == fmt.STREAM_OPEN):
                break  # inside a record: only stream records may be resumed there
            at = fmt.align(end)
        word = segment.words[at >> 3] if at + fmt.RECORD_HEADER <= segment.size else 0
        inside = at < offset
        if inside and word & 0xFF not in (fmt.STREAM_OPEN, fmt.STREAM):
            segment.close()
            raise self._damage(f"no record begins or grows at position {position}")
        self._enter(segment, at)
        self.position = position

    def _damage(self, what: str) -> IntegrityFault:
        return IntegrityFault(
            f"the kernel's outbox {self.directory} is damaged: {what}",
            hint="what was journaled before is unaffected; restart the kernel to start a new outbox",
            path=str(self.directory),
        )


class _Segment:
    """A mapped segment file; `sound` is False when its header is not that of this place."""

    def __init__(self, directory: Path, base: int) -> None:
        fd = os.open(directory / fmt.segment_name(base), os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(fd).st_size
            self.base = base
            self.sound = self.size >= fmt.PAGE and self.size % fmt.PAGE == 0
            self._map = mmap.mmap(fd, max(self.size, 1), access=mmap.ACCESS_READ) if self.sound else None
        finally:
            os.close(fd)
        self.view = memoryview(self._map) if self._map is not None else memoryview(bytes(fmt.PAGE))
        self.words = self.view.cast("Q")
        if list(self.words[1:3]) != [base, self.size] or self.words[0] != fmt.MAGIC:
            self.sound = False

    def close(self) -> None:
        self.words.release()
        self.view.release()
        if self._map is not None:
            self._map.close()
