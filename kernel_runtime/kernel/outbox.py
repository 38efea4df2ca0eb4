# ruff: noqa: PTH100, PTH104, PTH110
# os.path: this loads in the user's process, before anything else
"""The kernel's outbox, writing side. Standard library only, any thread, any moment.

What a call has put in survives SIGKILL of this process and waits for whoever reads. Invariant:
the mapping is well-formed between any two bytecodes, because a record exists only once its word
is stored, and that store is the last. So a KeyboardInterrupt inside a call leaves the record in
or out, never half; the next call finds where the records end by reading them (`_recover`).

When nobody collects, or the disk is full, stream text and displays are dropped and counted in a
Gap record; what tells how an execution went (`vital`) still goes in, the last of it to a segment
held in reserve. What it does not promise: that the pages survive a power cut.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from kernel_runtime.kernel import outbox_format as fmt

_VITAL_TOPICS = (b".status", b".execute_input", b".error", b".shutdown")
_RETRY_SECONDS = 0.05
_STALL_SECONDS = 0.5
_FAST_SECONDS = 0.1
_SEGMENT_MAX = 2 << 20
_BELL = b"\0"
_LONGEST_CHAR = 4
_WHOLE = 32 * 1024
"""text up to this long is in or out as a whole; an interrupt can end longer text after any piece"""


_STDIN = fmt.CHANNELS.index("stdin")
_PROBE = fmt.CHANNELS.index("probe")


class OutboxWriter:
    """Appends records to an outbox directory; exactly one process writes, and never its fork children.

    `bound` is how many bytes may wait uncollected before output is dropped; `segment` the size of
    a segment file; `free` what must stay free on the disk, or a twentieth of it if that is less; all
    in bytes. The directory is created, unless `outbox_format.create` did.

    Raises:
        OSError: the directory cannot be written, or its disk is full.
        ValueError: the directory holds another writer's outbox.
    """

    def __init__(
        self, directory: str, *, bound: int = 256 << 20, segment: int = 256 << 10, free: int = 0
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.bound = bound
        self._free = free
        self.segment = fmt.round_up(segment)
        if not os.path.exists(os.path.join(self.directory, "control")):
            fmt.create(self.directory)
        fd = os.open(os.path.join(self.directory, "control"), os.O_RDWR | os.O_CLOEXEC)
        try:
            self._control_map = mmap.mmap(fd, fmt.CONTROL_SIZE)
        finally:
            os.close(fd)
        self._control = memoryview(self._control_map).cast("Q")
        if self._control[fmt.C_MAGIC] != fmt.MAGIC or self._control[fmt.C_VERSION] != fmt.VERSION:
            raise ValueError(f"{directory} is not an outbox of version {fmt.VERSION}")
        if self._control[fmt.C_PID] or self._control[fmt.C_HEAD]:
            raise ValueError(f"{directory} already has a writer: pid {self._control[fmt.C_PID]}")
        self._bell = os.open(os.path.join(self.directory, "bell"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.RLock()
        self._inside = False
        self._dirty = False
        self._pending: list[Callable[[], object]] = []
        self._pressed = False
        self._retry_at = 0.0
        self._collected_then = 0
        self._stalled_at = -1
        self._opened_at = 0.0
        self._grown = self.segment
        self._gap_messages = 0
        self._gap_bytes = 0
        self._open_name, self._open_parent = "", b""
        self._open_word = self._open_body = 0
        self._text_end, self._text_limit = 1, 0
        self._allocate(self._path("spare"), self.segment).close()
        self._base, self._size = 0, self.segment
        path = self._path(fmt.segment_name(0))
        self._mapping = self._allocate(path, self.segment)
        self._view = memoryview(self._mapping)
        self._words = self._view.cast("Q")
        fmt.write_segment_header(self._view, 0, self.segment)
        self._tail = fmt.SEGMENT_HEADER
        self._control[fmt.C_HEAD] = self._tail
        self._control[fmt.C_PID] = os.getpid()
        self.is_child = False
        _writers.add(self)

    # -- writing ---------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether the thread that asks is in the middle of writing here."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001 - Condition asks it too

    def stream(self, name: str, parent: bytes, text: str) -> bool:
        """Text of `stdout` or `stderr`; True when it is in, False when it was dropped and counted.

        `parent` is the raw JSON of the parent header, `{}` if none. Lone surrogates are kept as
        backslash escapes. Consecutive text of one stream and parent grows one record in place.
        """
        data = text.encode("utf-8", "backslashreplace")
        if not data:
            return True
        with self._lock:
            if self._inside and not self._left_inside():
                return self._later(lambda: self._stream(name, parent, data))
            self._inside = True
            try:
                if self._dirty or self._pending:
                    self._settle()
                self._dirty = True
                end = self._text_end + len(data)
                if end <= self._text_limit and parent == self._open_parent and name == self._open_name:
                    self._view[self._text_end : end] = data
                    self._words[self._open_word] = (end - self._open_body) << 8 | fmt.STREAM_OPEN
                    self._text_end = end
                    self._control[fmt.C_HEAD] = self._base + end
                    done = True
                else:
                    done = self._stream(name, parent, data)
                self._dirty = False
                if self._pending:
                    self._settle()
            finally:
                self._inside = False
        # After the lock: releasing it is a full fence, so either this load sees the reader's arm,
        # or the reader's look after arming sees the record (see OutboxReader.arm).
        armed = self._control[fmt.C_ARMED]
        if armed and (armed == 1 or self._control[fmt.C_HEAD] - self._control[fmt.C_READ] > fmt.UNREAD_LOUD):
            self._ring()
        return done

    def message(self, channel: str, frames: Sequence[bytes], *, vital: bool | None = None) -> bool:
        """A message as for the wire, identities or topic included; False when dropped and counted.

        `channel` is `iopub`, `shell`, `stdin` or `probe`. `vital` messages are dropped only when the
        reserve is used up too; None judges by channel and topic.
        """
        code = fmt.CHANNELS.index(channel)
        frames = [bytes(frame) for frame in frames]  # copies nothing that is bytes already
        is_vital = code != 0 or frames[0].endswith(_VITAL_TOPICS) if vital is None else vital
        with self._lock:
            if self._inside and not self._left_inside():
                return self._later(lambda: self._message(code, frames, vital=is_vital))
            self._inside = True
            try:
                if self._dirty or self._pending:
                    self._settle()
                self._dirty = True
                done = self._message(code, frames, vital=is_vital)
                self._dirty = False
                if self._pending:
                    self._settle()
            finally:
                self._inside = False
        armed = self._control[fmt.C_ARMED]
        if armed and code != _PROBE and (armed < fmt.ENDS_ONLY or code == _STDIN or _is_idle(frames)):
            self._ring()
        return done

    def ring(self) -> None:
        """Wake the reader if it waits: for what the probe tells when no execution ends."""
        if self._control[fmt.C_ARMED]:
            self._ring()

    @property
    def head(self) -> int:
        """Position after the last byte written."""
        return self._control[fmt.C_HEAD]

    @property
    def dropped(self) -> tuple[int, int]:
        """Messages and bytes dropped so far."""
        return self._control[fmt.C_DROPPED], self._control[fmt.C_DROPPED_BYTES]

    def close(self) -> None:
        """Let go of the files; what was written stays."""
        with self._lock:
            _let_go(self._words, self._view, self._mapping)
            self._control.release()
            self._control_map.close()
            os.close(self._bell)

    # -- inside the lock -------------------------------------------------------

    def _left_inside(self) -> bool:
        """Whether `_inside` is only what an exception left behind, and no caller of ours is in here.

        Otherwise this thread, which holds the lock, is inside already: a signal handler prints.
        """
        if self.is_child:
            return False
        frame = sys._getframe(2)  # noqa: SLF001 - inspect would import much
        ours = (OutboxWriter.stream.__code__, OutboxWriter.message.__code__)
        while frame := frame.f_back:  # type: ignore[assignment]
            if frame.f_code in ours and frame.f_locals.get("self") is self:
                return False
        self._dirty = True
        return True

    def _later(self, write: Callable[[], object]) -> bool:
        if self.is_child:
            return False
        self._pending.append(write)
        return True

    def _settle(self) -> None:
        """Mend what an exception left half-done, then write what signal handlers wanted written."""
        if self._dirty:
            self._recover()
            self._dirty = False
        while self._pending:
            self._dirty = True
            self._pending[0]()
            del self._pending[0]
            self._dirty = False

    def _stream(self, name: str, parent: bytes, data: bytes) -> bool:
        encoded_name = name.encode("utf-8", "backslashreplace")
        fixed = len(encoded_name) + len(parent)
        done = True
        rest = memoryview(data)  # cut without a copy: one line may be all there is
        while rest:
            whole = len(rest) if len(rest) <= _WHOLE else _LONGEST_CHAR
            done = self._place(
                fmt.RECORD_HEADER + fixed + max(whole, _LONGEST_CHAR), vital=False, counted=len(rest)
            )
            if not done:
                return False
            self._finish_open()
            start = self._tail
            body = start + fmt.RECORD_HEADER
            text = body + fixed
            limit = max(text + _LONGEST_CHAR, min(self._size - fmt.END_SIZE, body + fmt.STREAM_RECORD_MAX))
            piece = rest if len(rest) <= limit - text else rest[: _cut(rest, limit - text)]
            rest = rest[len(piece) :]
            end = text + len(piece)
            view = self._view
            view[body : body + len(encoded_name)] = encoded_name
            view[body + len(encoded_name) : text] = parent
            view[text:end] = piece
            word = start >> 3
            self._words[word + 1] = len(encoded_name) << 32 | len(parent)
            self._words[word] = (end - body) << 8 | fmt.STREAM_OPEN
            self._open_name, self._open_parent = name, parent
            self._open_word, self._open_body = word, body
            self._text_end, self._text_limit = end, limit
            self._tail = fmt.align(end)
            self._control[fmt.C_HEAD] = self._base + end
        return done

    def _message(self, code: int, frames: Sequence[bytes], *, vital: bool) -> bool:
        sizes = [len(frame) for frame in frames]
        total = sum(sizes)
        if not self._place(fmt.RECORD_HEADER + 8 * len(sizes) + total, vital=vital, counted=total):
            return False
        self._finish_open()
        start = self._tail
        word = start >> 3
        at = word + 2
        for size in sizes:
            self._words[at] = size
            at += 1
        offset = at << 3
        for frame, size in zip(frames, sizes, strict=True):
            self._view[offset : offset + size] = frame
            offset += size
        self._words[word + 1] = len(sizes) << 8 | code
        self._words[word] = (offset - start - fmt.RECORD_HEADER) << 8 | fmt.MESSAGE
        self._advance(offset)
        return True

    def _gap(self) -> None:
        self._finish_open()
        start = self._tail
        word = start >> 3
        self._words[word + 2] = self._gap_bytes
        self._words[word + 1] = self._gap_messages
        self._words[word] = 8 << 8 | fmt.GAP
        self._gap_messages = self._gap_bytes = 0
        self._advance(start + fmt.RECORD_HEADER + 8)

    def _advance(self, end: int) -> None:
        self._tail = fmt.align(end)
        self._control[fmt.C_HEAD] = self._base + self._tail

    def _finish_open(self) -> None:
        """Say that the growing record grows no more; its length stays."""
        if self._open_word:
            self._words[self._open_word] = (self._text_end - self._open_body) << 8 | fmt.STREAM
            self._tail = fmt.align(self._text_end)
            self._close_open()

    def _close_open(self) -> None:
        self._open_word = self._open_body = 0
        self._open_name, self._open_parent = "", b""
        self._text_end, self._text_limit = 1, 0  # no text fits

    # -- room ------------------------------------------------------------------

    def _place(self, need: int, *, vital: bool, counted: int) -> bool:
        """Room for a record of `need` bytes at the tail, and a pending gap told before it."""
        if self._open_word:
            self._tail = fmt.align(self._text_end)
        gap = fmt.RECORD_HEADER + 8 if self._gap_messages else 0
        if self._pressed and not vital and not self._relieved():
            return self._drop(counted)
        full = self._tail + gap + need + fmt.END_SIZE > self._size
        if full and not self._next_segment(gap + need, vital=vital):
            return self._drop(counted)
        if self._gap_messages:
            self._gap()
        return True

    def _drop(self, counted: int) -> bool:
        self._gap_messages += 1
        self._gap_bytes += counted
        self._control[fmt.C_DROPPED] += 1
        self._control[fmt.C_DROPPED_BYTES] += counted
        return False

    def _relieved(self) -> bool:
        """Whether to try again: the reader collected something, or a moment has passed."""
        collected = self._control[fmt.C_COLLECTED]
        now = time.monotonic()
        if collected == self._collected_then and now < self._retry_at:
            return False
        self._collected_then = collected
        self._retry_at = now + _RETRY_SECONDS
        if self._waiting() + self.segment > self.bound:
            return False
        self._pressed = False
        return True

    def _waiting(self) -> int:
        return self._base + self._size - self._control[fmt.C_COLLECTED]

    def _press(self) -> bool:
        self._pressed = True
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        self._collected_then = self._control[fmt.C_COLLECTED]
        return False

    def _next_segment(self, need: int, *, vital: bool) -> bool:
        need += fmt.SEGMENT_HEADER + fmt.END_SIZE
        size = max(self._next_size(), fmt.round_up(need))
        if not vital and self._waiting() + size > self.bound and not self._patience(size):
            return self._press()
        if not vital and self._disk_short(size):
            return self._press()
        base = self._base + self._size
        path = self._path(fmt.segment_name(base))
        fresh = self._path("next")
        try:
            mapping = self._allocate(fresh, size)
        except OSError:
            self._press()
            if not vital or need > self.segment:
                return False
            try:
                fd = os.open(self._path("spare"), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            size, fresh = self.segment, self._path("spare")
            try:
                mapping = mmap.mmap(fd, size)
            finally:
                os.close(fd)
        view = memoryview(mapping)
        fmt.write_segment_header(view, base, size)
        view.release()
        os.rename(fresh, path)
        self._finish_open()
        # The next segment is in place before this one says so.
        self._words[(self._tail >> 3) + 1] = 0
        self._words[self._tail >> 3] = fmt.END
        self._move(mapping, base, size)
        self._control[fmt.C_HEAD] = base + fmt.SEGMENT_HEADER
        if not self._pressed and not os.path.exists(self._path("spare")):
            self._restock()
        return True

    def _disk_short(self, size: int) -> bool:
        """A kernel that nobody collects from must not fill the disk either."""
        info = os.statvfs(self.directory)
        return info.f_bavail * info.f_frsize - size < min(self._free, info.f_blocks * info.f_frsize // 20)

    def _next_size(self) -> int:
        """Larger segments while they fill fast: opening and removing files is what bulk costs."""
        now = time.monotonic()
        fast = now - self._opened_at < _FAST_SECONDS
        self._opened_at = now
        self._grown = (
            min(max(self._grown * 2, self.segment), _SEGMENT_MAX, self.bound // 16) if fast else self.segment
        )
        return max(self._grown, self.segment)

    def _restock(self) -> None:
        try:
            self._allocate(self._path("spare.new"), self.segment).close()
            os.rename(self._path("spare.new"), self._path("spare"))
        except OSError:
            self._press()

    def _patience(self, size: int) -> bool:
        """Over the bound: wait as long as the reader makes progress, so that a slow one loses nothing.

        A stalled reader is waited for once, for half a second: then output is dropped, and the
        cell stays interruptible.
        """
        last = self._control[fmt.C_COLLECTED]
        if last == self._stalled_at:
            return False
        since = time.monotonic()
        self._ring()
        while self._waiting() + size > self.bound:
            time.sleep(0.005)
            collected = self._control[fmt.C_COLLECTED]
            if collected != last:
                last, since = collected, time.monotonic()
            elif time.monotonic() - since > _STALL_SECONDS:
                self._stalled_at = last
                return False
        return True

    def _recover(self) -> None:
        """Find the end of the records after an exception cut an operation short."""
        self._close_open()
        while True:
            at = fmt.SEGMENT_HEADER
            while True:
                word = self._words[at >> 3]
                if word & 0xFF in (0, fmt.END):
                    break
                end = at + fmt.RECORD_HEADER + (word >> 8)
                if word & 0xFF == fmt.STREAM_OPEN:
                    self._words[at >> 3] = word & ~0xFF | fmt.STREAM
                at = fmt.align(end)
            self._tail = at
            if not word:
                self._clear(at)
                break
            base = self._base + self._size
            fd = os.open(self._path(fmt.segment_name(base)), os.O_RDWR | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                mapping = mmap.mmap(fd, size)
            finally:
                os.close(fd)
            self._move(mapping, base, size)
        self._control[fmt.C_HEAD] = self._base + self._tail

    def _clear(self, at: int) -> None:
        """Zero what an operation cut short may have left after the last record.

        A word is read as a record only when the record before it is complete, so leftovers of a
        body would be taken for one.
        """
        self._view[at : self._size] = bytes(self._size - at)

    def _allocate(self, path: str, size: int) -> mmap.mmap:
        return fmt.allocate(path, size)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _move(self, mapping: mmap.mmap, base: int, size: int) -> None:
        """Go on in another segment: whole, or not at all."""
        view = memoryview(mapping)
        words = view.cast("Q")
        old = (self._words, self._view, self._mapping)
        # No call between these stores, so no signal handler either.
        self._mapping = mapping
        self._view = view
        self._words = words
        self._base = base
        self._size = size
        self._tail = fmt.SEGMENT_HEADER
        _let_go(*old)

    # -- others ----------------------------------------------------------------

    def _ring(self) -> None:
        self._control[fmt.C_ARMED] = 0
        with contextlib.suppress(BlockingIOError):  # full of bytes nobody read: it rings already
            os.write(self._bell, _BELL)

    def forked(self) -> None:
        """In a fork child: from here on nothing is written, whoever asks."""
        self.is_child = True
        self._inside = True  # whatever path leads here in a child, it writes nothing
        self._lock = threading.RLock()


def _is_idle(frames: Sequence[bytes]) -> bool:
    return frames[0].endswith(b".status") and b'"idle"' in frames[-1]


_writers: weakref.WeakSet[OutboxWriter] = weakref.WeakSet()


def _forked() -> None:
    for writer in _writers:
        writer.forked()


os.register_at_fork(after_in_child=_forked)


def _let_go(words: memoryview, view: memoryview, mapping: mmap.mmap) -> None:
    words.release()
    view.release()
    mapping.close()


def _cut(data: memoryview, limit: int) -> int:
    """The largest cut at or below `limit` that splits no character."""
    while limit and data[limit] & 0xC0 == 0x80:
        limit -= 1
    return limit
