"""Write an evidence bundle: one file that holds a session's journal and checks itself.

The members are those of `standalone.MEMBERS`, in that order. The same journal, written by the same
version on the same zlib, gives the same bytes: nothing in it tells when or where it was made.

Invariants: the bundle is of one state of the journal, also while the session works on; FILE is whole or
not there; entries and cells pass through one at a time, and the verifier's own check looks at each entry.
Not promised: that memory does not grow at all: a few hundred bytes are held of each cell.
"""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any, BinaryIO

from msgspec import Struct

from kernel_runtime.errors import JournalCorrupt, NotFound, Refused
from kernel_runtime.evidence import files, signing, standalone
from kernel_runtime.journal import JournalReader
from kernel_runtime.notebook.render import NotebookBuilder
from kernel_runtime.version import __version__

_SPOOL = 4 << 20
_CHUNK = 1 << 20


class Bundled(Struct, frozen=True, kw_only=True):
    """What was written."""

    session: str
    session_id: str
    file: str
    entries: int
    head: int
    head_hash: str
    bytes: int
    sha256: str
    """of the whole file"""
    signed: str | None
    """fingerprint of the key that signed the manifest"""


def write(journal: Path, target: Path, *, force: bool = False, key: Path | None = None) -> Bundled:
    """Write the bundle of a journal, as it is at this moment.

    Args:
        journal: its `journal.db`.
        target: the file to write.
        force: replace a file that is there.
        key: sign the manifest, and so every member, with this Ed25519 key.

    Raises:
        NotFound: nothing was ever recorded there.
        Refused: there is such a file.
        UsageError: the key cannot be used.
        JournalCorrupt: an entry is not what was written.
        DiskFull, ReadOnlyStorage, StorageFault: nothing is left of it.
    """
    if not journal.exists():
        raise NotFound(f"there is no journal at {journal}", hint="nothing was ever run in that session")
    if target.exists() and not force:
        raise _exists(target)
    with JournalReader.open(journal) as reader, files.new_file(target) as file:
        reader.connection.execute("BEGIN")  # one state for all that is read
        made = _Archive(file)
        chain, signed = _fill(made, reader, key)
        made.close()
        if target.exists() and not force:
            raise _exists(target)
        return Bundled(
            session=chain.session["name"],
            session_id=chain.session["session_id"],
            file=str(target),
            entries=chain.entries,
            head=chain.seq,
            head_hash=chain.hash,
            bytes=file.tell(),
            sha256=made.sha256,
            signed=signed,
        )


def _exists(target: Path) -> Refused:
    return Refused(
        f"{target} is there already",
        hint="name another file, or replace it with --force",
        file=str(target),
    )


def _fill(made: _Archive, reader: JournalReader, key: Path | None) -> tuple[standalone.Chain, str | None]:
    chain = standalone.Chain()
    made.add("README.txt", [README.encode()])
    made.add("krt_verify.py", [verifier()])
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as environment:
        with suppress(standalone.Damaged):  # told with the problems
            made.add(standalone.JOURNAL, _lines(reader, chain, environment))
        chain.finish()
        if chain.problems:
            first = chain.problems[0]
            raise JournalCorrupt(
                f"entry {first['seq']} of {reader.path} is not what was written: {first['what']}",
                hint="`krt verify` lists what cannot be relied on; nothing was bundled",
                path=str(reader.path),
                seq=first["seq"],
            )
        environment.seek(0)
        made.add(standalone.ENVIRONMENT, iter(lambda: environment.read(_CHUNK), b""))
    made.add("notebook.ipynb", notebook_of(reader))
    manifest = standalone.manifest_bytes(__version__, chain.summary(), made.digests)
    made.add(standalone.MANIFEST, [manifest])
    if key is None:
        return chain, None
    reader.connection.execute("ROLLBACK")  # ssh-keygen may wait for a passphrase, and the journal must not
    signature = signing.sign(key, manifest, standalone.BUNDLE_NAMESPACE)
    made.add(standalone.SIGNATURE, [signature.armor.encode()])
    return chain, signature.fingerprint


def _lines(reader: JournalReader, chain: standalone.Chain, environment: IO[bytes]) -> Iterator[bytes]:
    for columns, payload in reader.rows():
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            text = payload.decode("utf-8", "backslashreplace")  # which does not fit its digest
        row = [*columns[:7], *columns[8:], text]
        chain.add(row)
        if columns[5] == "EnvironmentRecorded":
            environment.write(standalone.environment_item(columns[0], columns[3], text))
        yield standalone.entry_line(row)


def verifier() -> bytes:
    """The program that checks a bundle, as it lies in each."""
    return resources.files("kernel_runtime.evidence").joinpath("standalone.py").read_bytes()


def notebook_of(reader: JournalReader) -> Iterator[bytes]:
    """The notebook as the journal alone has it, without what people wrote beside; a cell at a time."""
    return NotebookBuilder(reader).stream()


class _Archive:
    """A ZIP file of the one form that the verifier accepts."""

    def __init__(self, file: BinaryIO) -> None:
        self.digests: dict[str, dict[str, Any]] = {}
        self.sha256 = ""
        self._file = file
        self._members: list[standalone.Member] = []

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        file, deflate, digest = self._file, zlib.compressobj(6, zlib.DEFLATED, -15), hashlib.sha256()
        offset = file.tell()
        file.write(standalone.local_header(standalone.Member(name)))
        start, size, crc = file.tell(), 0, 0
        for chunk in chunks:
            digest.update(chunk)
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            file.write(deflate.compress(chunk))
        file.write(deflate.flush())
        end = file.tell()
        member = standalone.Member(name, crc, end - start, size, offset)
        file.seek(offset)
        file.write(standalone.local_header(member))
        file.seek(end)
        self._members.append(member)
        self.digests[name] = {"bytes": size, "sha256": digest.hexdigest()}

    def close(self) -> None:
        file, digest = self._file, hashlib.sha256()
        file.write(standalone.directory(self._members, file.tell()))
        file.flush()
        file.seek(0)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        comment = b"sha256:" + digest.hexdigest().encode()
        file.write(comment)
        digest.update(comment)
        self.sha256 = digest.hexdigest()


README = """\
The record of a session of kernel-runtime.

journal.jsonl     every entry, one per line, each chained to the one before
environment.json  what the kernels could import and where they ran, one start per line; part of the journal
notebook.ipynb    the journal's cells as a Jupyter notebook
manifest.json     whose record it is, the head of its chain, the sha256 of every other member
krt_verify.py     checks all of it with Python 3.8 or newer and nothing else

    python krt_verify.py BUNDLE [--anchor FILE] [--allowed-signers FILE]

Take krt_verify.py from where you trust it: kernel_runtime/evidence/standalone.py is the same file. The
copy in here was made by whoever made the bundle.

To check the chain by hand: a line is the JSON array

    [seq, at, mono, incarnation, principal, kind, execution_id, digest, prev_hash, hash, payload]

- seq is 1, 2, 3, without a gap; prev_hash is the hash of the line before, and 64 zeros in the first
- digest is the sha256 of payload, in UTF-8 (if a later PayloadRedacted names the seq, it is that of the
  payload before its text was taken out)
- hash is the sha256 of the first nine, as a JSON array without white space, in UTF-8 with only the
  quotation mark, the backslash and control characters escaped

The last 71 bytes of the bundle are `sha256:` and the sha256 of all bytes before them. Where there is a
manifest.json.sig, `ssh-keygen -Y verify -n kernel-runtime-bundle` checks it against manifest.json.
"""
