"""What others kept of a journal, held against it: anchors and signatures. And a bundle, in full.

A bundle is checked by `standalone`, the program that lies in it. What that program cannot do is done here:
render the notebook anew and compare.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from kernel_runtime.evidence import restore, standalone
from kernel_runtime.evidence.bundle import README, notebook_of, verifier
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import HeadSigned, SessionCreated
from kernel_runtime.version import __version__

RENDERED = 64 << 20
"""bytes of a bundle's journal up to which its notebook is rendered without being asked for it"""


def check_journal(path: Path, anchors: str | None, allowed: str | None) -> dict[str, Any]:
    """`{"problems", "found", "notes", "signatures"}` of what was kept of a journal elsewhere.

    The chain itself is not walked here: `journal.verify` does that.

    Args:
        path: the `journal.db`.
        anchors: text of a file of anchors; None: none were given.
        allowed: text of an allowed_signers file; None: none was given.
    """
    chain = standalone.Chain()
    with JournalReader.open(path) as reader:
        connection = reader.connection
        connection.execute("BEGIN")
        created = reader.latest("SessionCreated")
        if created is not None and isinstance(created.fact, SessionCreated):
            chain.session = {"session_id": created.fact.session_id, "name": created.fact.name}
        row = connection.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        chain.seq, chain.hash = row if row is not None else (0, standalone.GENESIS)
        kept = standalone.read_anchors(anchors or "", chain)
        for entry in reader.entries(kinds=("HeadSigned",), limit=1 << 30):
            fact = entry.fact
            assert isinstance(fact, HeadSigned)
            chain.signed.append((entry.seq, fact.seq, fact.hash, fact.signature))
        wanted = {seq for _entry, seq, _hash, _text in chain.signed} | {seq for _id, seq, _hash in kept}
        for seq in wanted:
            found = connection.execute("SELECT hash FROM entries WHERE seq = ?", (seq,)).fetchone()
            chain.known[seq] = found[0] if found is not None else None
    if anchors is not None:
        standalone.check_anchors(chain, kept)
    standalone.check_signatures(chain, b"", None, allowed)
    return {
        "problems": chain.problems,
        "found": chain.found,
        "notes": chain.notes,
        "signatures": chain.signatures,
    }


def check_bundle(
    path: Path, anchors: str | None, allowed: str | None, *, notebook: bool = False
) -> dict[str, Any]:
    """What `standalone.verify` finds, and `notebook`: `match`, `differs` or `unchecked`.

    Args:
        path: the bundle.
        anchors: text of a file of anchors; None: none were given.
        allowed: text of an allowed_signers file; None: none was given.
        notebook: render the notebook also where the journal is longer than `RENDERED`.

    Raises:
        OSError: it cannot be read.
    """
    found = {**standalone.verify(str(path), anchors, allowed), "projections": "none", "notebook": "unchecked"}
    if not found["ok"]:
        return found
    with path.open("rb") as file:
        members = {one.name: one for one in standalone.read_directory(file)}
        manifest = msgspec.json.decode(b"".join(standalone.unpacked(file, members[standalone.MANIFEST])))
    version, told = manifest["kernel_runtime"], manifest["members"]
    if version != __version__:
        found["notes"].append(
            f"made by kernel-runtime {version}; {__version__} does not judge what that renders"
        )
        return found
    for name, ours in (("README.txt", README.encode()), ("krt_verify.py", verifier())):
        if told[name]["sha256"] != standalone.sha256(ours):
            _add(found, name, f"is not the one of kernel-runtime {version}")
    if members[standalone.JOURNAL].size > RENDERED and not notebook:
        found["notes"].append("the notebook was not rendered anew to compare: --notebook does so")
        return found
    digest = hashlib.sha256()
    with restore.reader_of(path) as reader:
        for part in notebook_of(reader):
            digest.update(part)
    same = told["notebook.ipynb"]["sha256"] == digest.hexdigest()
    found["notebook"] = "match" if same else "differs"
    if not same:
        _add(found, "notebook.ipynb", "is not what the journal gives")
    return found


def _add(found: dict[str, Any], where: str, what: str) -> None:
    found["problems"].append({"where": where, "what": what, "seq": None})
    found["found"] += 1
    found["ok"] = False
