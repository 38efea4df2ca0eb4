# ruff: noqa: PTH103, PTH104, PTH108, PTH110
# os.path: this loads in the user's process, before anything else
r"""The outbox on disk: what its writer and its reader agree on. Standard library only.

    DIR/control              one page, shared: the words below
        bell                 FIFO; one byte means "look"
        <20 digits>.seg      segments; the number is the position of its first byte
        spare                a segment in reserve, for when the disk is full

A **position** is a 64-bit number that only grows: the segment's number plus an offset in it, so
`position` also says in which file. A segment starts with a header of 32 bytes (magic, its own
position, its size, zero), then records, each aligned to 8 bytes:

    word   u64   length of the body << 8 | kind        0: nothing here yet
    aux    u64   per kind, below
    body

| kind        | aux                              | body                                       |
|-------------|----------------------------------|--------------------------------------------|
| STREAM_OPEN | length of name << 32 \| of parent | name, parent, text; **may still grow**     |
| STREAM      | the same                         | the same, final                            |
| MESSAGE     | frames << 8 \| channel           | u64 length of each frame, then the frames  |
| GAP         | messages dropped                 | u64 bytes dropped                          |
| END         | 0                                | none: go on in the next segment            |

A record exists from the moment its word is stored, and the word is stored last. That is one
aligned 8-byte store, and the bytes before it are visible before it: x86 keeps stores in order
(ADR 0001). Memoryviews are cast to native "Q" for that: `struct.pack_into("<Q")` stores byte by byte.
"""

from __future__ import annotations

import mmap
import os

MAGIC = int.from_bytes(b"KRTOBOX1", "little")
VERSION = 1
CONTROL_SIZE = 4096

# words of the control page
C_MAGIC, C_VERSION, C_HEAD, C_COLLECTED, C_READ, C_ARMED, C_DROPPED, C_DROPPED_BYTES, C_PID = range(9)

SEGMENT_HEADER = 32
RECORD_HEADER = 16
END_SIZE = RECORD_HEADER

STREAM_OPEN, STREAM, MESSAGE, GAP, END = 1, 2, 3, 4, 5

CHANNELS = ("iopub", "shell", "stdin", "probe")
"""`probe`: what the heap's probe saw; it rings no bell, whoever wants it looks"""

STREAM_RECORD_MAX = 64 * 1024
UNREAD_LOUD = 1 << 20
"""unread bytes from which stream text rings too when armed at level 2 or 3"""

ENDS_ONLY = 3
"""level of arming at which only `status: idle` and an input_request ring"""

PAGE = mmap.PAGESIZE


def align(offset: int) -> int:
    """The next multiple of 8."""
    return (offset + 7) & ~7


def segment_name(base: int) -> str:
    return f"{base:020d}.seg"


def segment_base(name: str) -> int | None:
    """The number in a segment's file name; None for any other file."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "seg" and len(stem) == 20 and stem.isdigit() else None


def round_up(size: int) -> int:
    """`size` in whole pages."""
    return (size + PAGE - 1) // PAGE * PAGE


def write_segment_header(view: memoryview, base: int, size: int) -> None:
    words = view[:SEGMENT_HEADER].cast("Q")
    words[0], words[1], words[2], words[3] = MAGIC, base, size, 0
    words.release()


def allocate(path: str, size: int) -> mmap.mmap:
    """Create `path` with `size` bytes that are really there, and map it.

    A sparse mapping on a full disk is a SIGBUS at some later store; allocation fails here, where
    it can be handled.

    Raises:
        OSError: ENOSPC, EDQUOT, EROFS and the like; no file is left.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        return mmap.mmap(fd, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def create(directory: str) -> None:
    """Lay out an outbox without a writer; the control page comes last, so it means "complete".

    A supervisor may do this before it starts the kernel, and hold the bell from the beginning.

    Raises:
        FileExistsError: there is an outbox already.
        OSError: the disk's own.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    control = os.path.join(directory, "control")
    if os.path.exists(control):
        raise FileExistsError(control)
    bell = os.path.join(directory, "bell")
    if not os.path.exists(bell):
        os.mkfifo(bell, 0o600)
    mapping = allocate(control + ".new", CONTROL_SIZE)
    words = memoryview(mapping).cast("Q")
    words[C_MAGIC], words[C_VERSION] = MAGIC, VERSION
    words.release()
    mapping.close()
    os.rename(control + ".new", control)
