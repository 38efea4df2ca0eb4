"""A journal from a bundle: the same entries with the same hashes, in a file that readers of ours open.

Not promised: that the session can go on from it. It has no lock file, no kernel and no notebook.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernel_runtime.errors import IntegrityFault, NotFound
from kernel_runtime.evidence import standalone
from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.journal import connection as opener
from kernel_runtime.journal.codec import INLINE_MAX
from kernel_runtime.journal.writer import keep_payload

_BATCH = 1000


@contextmanager
def open_bundle(path: Path) -> Iterator[JournalReader]:
    """A reader of a bundle's journal, once the bundle was verified; it lives in a temporary directory.

    Raises:
        NotFound: there is no such file.
        IntegrityFault: it is not what was written; `fields["problems"]` says what.
    """
    try:
        found = standalone.verify(str(path))
    except FileNotFoundError:
        raise NotFound(f"there is no bundle at {path}", hint="`krt bundle NAME FILE` makes one") from None
    if not found["ok"]:
        first = found["problems"][0]
        raise IntegrityFault(
            f"the bundle {path} was changed: {first['where']}: {first['what']}",
            hint=f"`krt verify {path}` lists all of it",
            problems=found["problems"],
        )
    with reader_of(path) as reader:
        yield reader


@contextmanager
def reader_of(path: Path) -> Iterator[JournalReader]:
    """As `open_bundle`, without verifying it."""
    with TemporaryDirectory() as directory, JournalReader.open(unchecked(path, Path(directory))) as reader:
        yield reader


def unchecked(path: Path, directory: Path) -> Path:
    """Make `journal.db` in the directory of a bundle that was verified already.

    Raises:
        JournalNewer: it has entries of a kind that this version does not know.
        DiskFull, StorageFault: it cannot be written.
    """
    journal = directory / "journal.db"
    Journal.create(journal).close()
    connection = opener.open_writer(journal)
    try:
        with path.open("rb") as file:
            member = {one.name: one for one in standalone.read_directory(file)}[standalone.JOURNAL]
            with connection:
                for line in standalone.lines(standalone.unpacked(file, member)):
                    _insert(connection, standalone.read_line(line))
    finally:
        connection.close()
    journal.with_suffix(".lock").unlink(missing_ok=True)
    with Journal.open(journal) as made:
        made.rebuild()
    return journal


def _insert(connection: Any, row: list[Any]) -> None:
    *columns, payload = row
    data = payload.encode()
    inline: bytes | None = data
    if len(data) > INLINE_MAX and standalone.sha256(data) == columns[7]:  # not one that was redacted
        keep_payload(connection, columns[7], data)
        inline = None
    values = (*columns[:7], inline, *columns[7:])
    connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
