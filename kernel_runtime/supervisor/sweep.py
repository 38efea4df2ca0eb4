"""Take a text out of the session's other files: logs, what processes showed, what the kernel said.

A file that somebody else has open keeps its length: the text is overwritten where it stands. Of the
kernel's outbox only what the journal has already is touched; its words and lengths stay, so whoever
reads it again finds its way. Notebooks are read as notebooks.

Not touched: the journal (that is its own doing), and files that say who the session or its kernel is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.journal.forms import Forms
from kernel_runtime.kernel import outbox_format as fmt
from kernel_runtime.notebook.document import lines
from kernel_runtime.notebook.put import atomic_write

_OURS = frozenset(
    {"session.json", "kernel.json", "supervisor.lock", "spawn.lock", "reserve", "control", "spare"}
    | {"notebook.mark", "notebook.lease"}
)
_PIECE = 1 << 20


def sweep(directory: Path, forms: Forms, outbox: tuple[Path, int] | None, notebook: Path) -> dict[str, int]:
    """Blank the text in every file of the session's directory but its notebook, which has a keeper.

    Args:
        directory: of the session.
        forms: the text.
        outbox: the living kernel's, and how far it is in the journal; others are as a whole.
        notebook: the session's.

    Returns:
        file, relative to the directory → bytes that were overwritten.

    Raises:
        OSError: a file cannot be read or written; those before it are done.
    """
    done: dict[str, int] = {}
    for file in _files(directory):
        if file == notebook:
            continue
        if file.suffix == ".ipynb":
            blanked = less_notebook(file, forms)
        else:
            end = None
            base = fmt.segment_base(file.name)
            if outbox is not None and base is not None and file.parent == outbox[0]:
                end = outbox[1] - base
            blanked = blank(file, forms, end)
        if blanked:
            done[str(file.relative_to(directory))] = blanked
    return done


def _files(directory: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(directory):
        if Path(root) == directory:
            folders[:] = [name for name in folders if name != "archive"]
        for name in names:
            file = Path(root) / name
            if name in _OURS or name.startswith("journal."):
                continue
            if stat.S_ISREG(file.lstat().st_mode):
                yield file


def blank(file: Path, forms: Forms, end: int | None = None) -> int:
    """Overwrite the text in a file, up to `end`, in place; bytes that were overwritten."""
    overlap = max(map(len, forms.needles)) - 1
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    blanked, at = 0, 0
    try:
        size = os.fstat(fd).st_size if end is None else end
        while at < size:
            data = os.pread(fd, min(_PIECE + overlap, size - at), at)
            if not data:
                break
            less = forms.blanked(data)
            if less != data:
                os.pwrite(fd, less, at)
                blanked += sum(a != b for a, b in zip(data, less, strict=True))
            at += _PIECE
        if blanked:
            os.fsync(fd)
    finally:
        os.close(fd)
    return blanked


def less_notebook(file: Path, forms: Forms) -> int:
    """Take the text out of a notebook's strings, those in several lines too; 1 if there was any."""
    try:
        document = msgspec.json.decode(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return blank(file, forms)
    less = _less(document, forms)
    if less is document:
        return 0
    atomic_write(file.resolve(), msgspec.json.format(msgspec.json.encode(less), indent=1) + b"\n")
    return 1


def _less(value: Any, forms: Forms) -> Any:
    if isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            joined = "".join(value)
            less = forms.less_text(joined)
            return value if less == joined else lines(less)
        items = [_less(item, forms) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, dict):
        fields = {key: _less(item, forms) for key, item in value.items()}
        return value if all(fields[key] is value[key] for key in value) else fields
    return forms.less(value)
