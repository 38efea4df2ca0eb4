"""What tests of evidence share: a journal of everything, keys, and a forger who repairs what he changes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_runtime.evidence import bundle, signing, standalone
from kernel_runtime.evidence.standalone import Member
from kernel_runtime.journal import Journal
from kernel_runtime.model.facts import (
    EnvironmentRecorded,
    GapRecorded,
    HeadAnchored,
    HeadSigned,
    HeadWitnessed,
    KernelStarted,
    PayloadRedacted,
    SessionCreated,
)
from tests.unit.journal.support import FixedClock, append, printed, queued, run

SESSION = "5e55-10"
ENVIRONMENT = EnvironmentRecorded(
    python={"version": "3.11.7"},
    platform={"system": "Linux"},
    packages={"a": {"version": "1"}},
    fingerprint="f",
)


def create(path: Path) -> Journal:
    """A journal that has its first entries."""
    journal = Journal.create(path, FixedClock())
    created = SessionCreated(
        session_id=SESSION, name="alice", kernel="python3", cwd="/", notebook="n.ipynb", version="0"
    )
    started = KernelStarted(
        pid=1, start_time=1, boot_id="b", language="python", implementation="ipython", own=True
    )
    append(journal, created, incarnation=0)
    append(journal, started, ENVIRONMENT)
    return journal


def journal_of_everything(path: Path, key: Path | None = None) -> Path:
    """Executions, large and odd payloads, gaps, environments; signed in the middle where there is a key."""
    with create(path) as journal:
        run(journal, "a", source="print('é \u2028 \\x1b')")
        append(journal, queued("b", "x = 1"), printed("b", "\r\n\x00\x7f\x85 " + "large " * 2000))
        append(journal, GapRecorded(reason="disk", messages=2, bytes=70, execution_id="b"))
        if key is not None:
            append(journal, signed(journal, key))
        append(journal, HeadAnchored(seq=3, hash=hash_of(journal, 3), where="file", reference="/f"))
        append(journal, HeadWitnessed(session_id="other", name="bob", seq=9, hash="0" * 64))
        append(journal, ENVIRONMENT, incarnation=2)
        append(journal, redaction(journal, 6))
        for name in "cdefgh":
            run(journal, name, incarnation=2)
    return path


WITHOUT = (
    '{"execution_id":"a","messages":[{"type":"stream","content":{"name":"stdout","text":"[redacted]"}}]}'
)


def redaction(journal: Journal, seq: int) -> PayloadRedacted:
    """That `WITHOUT` stands in the place of an entry's payload."""
    with journal.reader() as reader:
        columns, _payload = next(reader.rows(seq - 1))
    return PayloadRedacted(
        seqs=[seq],
        digests=[columns[8]],
        replacements={str(seq): standalone.sha256(WITHOUT.encode())},
        reason="a token",
        how="text",
    )


def signed(journal: Journal, key: Path) -> HeadSigned:
    message = standalone.head_message(SESSION, journal.head, journal.head_hash)
    made = signing.sign(key, message, standalone.HEAD_NAMESPACE)
    return HeadSigned(
        seq=journal.head,
        hash=journal.head_hash,
        signature=made.armor,
        key=made.key,
        namespace=standalone.HEAD_NAMESPACE,
    )


def hash_of(journal: Journal, seq: int) -> str:
    with journal.reader() as reader:
        return reader.entries(seq - 1, limit=1)[0].hash


def make_key(directory: Path, name: str = "key", kind: str = "ed25519", passphrase: str = "") -> Path:
    path = directory / name
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def allowed(key: Path, who: str = "alice@example.com", options: str = "") -> str:
    kind, public, *_comment = key.with_name(key.name + ".pub").read_text().split()
    return " ".join(filter(None, (who, options, kind, public))) + "\n"


# -- the forger


def members_of(path: Path) -> dict[str, bytes]:
    with path.open("rb") as file:
        return {one.name: b"".join(standalone.unpacked(file, one)) for one in standalone.read_directory(file)}


def rows_of(members: dict[str, bytes]) -> list[list[Any]]:
    return [json.loads(line) for line in members[standalone.JOURNAL].split(b"\n")[:-1]]


def container(members: dict[str, bytes]) -> bytes:
    """A bundle of these members, whole in itself."""
    data, made = b"", []
    for name, content in members.items():
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = deflate.compress(content) + deflate.flush()
        made.append(Member(name, zlib.crc32(content), len(packed), len(content), len(data)))
        data += standalone.local_header(made[-1]) + packed
    return closed(data + standalone.directory(made, len(data)))


def closed(data: bytes) -> bytes:
    return data + b"sha256:" + hashlib.sha256(data).hexdigest().encode()


def repaired(members: dict[str, bytes], rows: Sequence[Sequence[Any]]) -> bytes:
    """A bundle with these entries instead, its manifest and environment made to fit them."""
    chain = standalone.Chain()
    environment = b""
    for row in rows:
        chain.add(row)
        if row[5] == "EnvironmentRecorded" and row[0] != 1:
            environment += standalone.environment_item(row[0], row[3], row[10])
    changed = {
        **members,
        standalone.JOURNAL: b"".join(map(standalone.entry_line, rows)),
        standalone.ENVIRONMENT: environment,
    }
    return container(with_manifest(changed, chain.summary()))


def with_manifest(members: dict[str, bytes], summary: dict[str, Any] | None = None) -> dict[str, bytes]:
    told = json.loads(members[standalone.MANIFEST])
    digests = {
        name: {"bytes": len(content), "sha256": standalone.sha256(content)}
        for name, content in members.items()
        if name not in (standalone.MANIFEST, standalone.SIGNATURE)
    }
    if summary is None:
        summary = {
            key: told[key] for key in ("session", "head", "entries", "incarnations", "gaps", "notable")
        }
    return {
        **members,
        standalone.MANIFEST: standalone.manifest_bytes(told["kernel_runtime"], summary, digests),
    }


def rehash(row: list[Any]) -> list[Any]:
    """The row with the hash that fits its columns."""
    return [*row[:9], standalone.sha256(standalone._encode(row[:9]).encode()), row[10]]


def anchor_of(seq: int, hash_: str) -> str:
    return json.dumps({"session_id": SESSION, "seq": seq, "hash": hash_}) + "\n"


def redacted(path: Path) -> bytes:
    """The bundle at that path, of whose entry 6 the text was taken out as a PayloadRedacted in it says."""
    members = members_of(path)
    rows = rows_of(members)
    rows[5][10] = WITHOUT
    return repaired(members, rows)


def write(directory: Path, **how: Any) -> Path:
    """The bundle of the journal of everything."""
    journal = directory / "journal.db"
    if not journal.exists():
        journal_of_everything(journal, how.get("key"))
    target = directory / "alice.zip"
    bundle.write(journal, target, **how)
    return target
