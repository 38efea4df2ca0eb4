"""Anchors: the head of a journal, written down where whoever can change the journal cannot change it.

An anchor is one line of JSON with `session_id`, `seq` and `hash` (and who, when, which name, for people).
It says that the journal had this entry then: a chain without it was cut off or computed anew.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime.core.entries import walk
from kernel_runtime.errors import MissingPackage, UsageError
from kernel_runtime.evidence import files
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import HeadWitnessed

NOTES = "kernel-runtime"
"""notes are in refs/notes/kernel-runtime"""

_MOST = 16 << 20
"""bytes of an anchor file"""


class Head(Struct, frozen=True, kw_only=True):
    """The last entry of a journal at one moment."""

    session_id: str
    name: str
    seq: int
    hash: str


def line(head: Head, principal: str) -> bytes:
    """The anchor of a head, as of now."""
    told = {**msgspec.to_builtins(head), "at": datetime.now(UTC).isoformat(), "by": principal}
    return msgspec.json.encode(told)


def to_file(path: Path, head: Head, principal: str) -> str:
    """Add the anchor to a file; where it is.

    Raises:
        DiskFull, ReadOnlyStorage, StorageFault: nothing was added.
    """
    files.append_line(path, line(head, principal))
    return str(path.absolute())


def to_git(repository: Path, head: Head, principal: str) -> str:
    """Add the anchor to the git note of HEAD; the commit and the repository.

    Raises:
        UsageError: git refuses, and says why.
        MissingPackage: there is no git.
    """
    commit = _git(repository, "rev-parse", "--verify", "HEAD").strip()
    note = line(head, principal).decode()
    _git(repository, "notes", f"--ref={NOTES}", "append", "-m", note, commit)
    top = _git(repository, "rev-parse", "--absolute-git-dir").strip()
    return f"{commit} in {top}"


def read(source: str) -> str:
    """The anchors in a file, in the notes of a git repository (a directory), or witnessed by a journal.

    Args:
        source: a path; of a `journal.db` too.

    Raises:
        UsageError: it cannot be read.
    """
    path = Path(source)
    if path.is_dir():
        listed = _git(path, "notes", f"--ref={NOTES}", "list")
        return "\n".join(_git(path, "cat-file", "blob", row.split()[0]) for row in listed.splitlines())
    if path.name == "journal.db":
        return witnessed(path)
    try:
        if path.stat().st_size > _MOST:
            raise UsageError(f"{source} is too long for a file of anchors", hint="name the file of anchors")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the anchors in {source} cannot be read: {error}", hint="name another file"
        ) from error


def witnessed(journal: Path) -> str:
    """The anchors that another session's journal holds."""
    found: list[bytes] = []
    with JournalReader.open(journal) as reader:
        for entry in walk(reader, kinds=("HeadWitnessed",)):
            fact = entry.fact
            assert isinstance(fact, HeadWitnessed)
            head = Head(session_id=fact.session_id, name=fact.name, seq=fact.seq, hash=fact.hash)
            found.append(msgspec.json.encode(head))
    return b"\n".join(found).decode()


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise MissingPackage("git is not installed", hint="anchor in a file, with --file") from error
    if done.returncode:
        raise UsageError(
            f"git {arguments[0]} in {repository} failed: {done.stderr.strip()}",
            hint="a repository with a commit, and a user.name and user.email for its notes",
            repository=str(repository),
        )
    return done.stdout
