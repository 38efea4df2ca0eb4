"""From what a user names to a plan: a session, a notebook, a bundle.

A record is checked before it is replayed: a verdict on a damaged record would be about something that
nobody recorded.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime import places
from kernel_runtime.client import session_files
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import (
    IntegrityFault,
    JournalCorrupt,
    KernelRuntimeError,
    NoSuchExecution,
    UsageError,
)
from kernel_runtime.journal import JournalReader, verify
from kernel_runtime.notebook.read import read_notebook
from kernel_runtime.replay.plan import Plan
from kernel_runtime.replay.plan_journal import plan_of_journal
from kernel_runtime.replay.plan_notebook import plan_of_notebook

_SHOWN = 3
"""problems that an error names"""


class Source(Struct, frozen=True, kw_only=True):
    """A plan, and what the check of its record said."""

    plan: Plan
    integrity: dict[str, object]
    """`{"ok", "problems"}`; `ok` is None for a notebook, which nothing can check"""


def load(
    name: str | Path, *, order: str | None = None, until: int | None = None, force: bool = False
) -> Source:
    """The plan of a session, `.ipynb` or bundle.

    Args:
        name: of a session, or the path of a file.
        order: `executed`, `document`; None: as the source is.
        until: a `seq` of the journal: only what had ended by then.
        force: replay a damaged record too.

    Raises:
        NoSuchSession, NoSuchNotebook, InvalidNotebook, UsageError.
        NoSuchExecution: nothing was ever run in that session.
        JournalCorrupt: the record is not what was written, and `force` is false.
    """
    path = Path(name)
    if path.suffix == ".ipynb":
        if until is not None:
            raise UsageError(
                f"{name} is a notebook, and entries have numbers in a journal only",
                hint="--until is for a session or a bundle",
            )
        return Source(plan=plan_of_notebook(path, order=order), integrity={"ok": None, "problems": []})
    if path.suffix == ".bundle" or (path.is_file() and zipfile.is_zipfile(path)):
        return _bundle(path, order=order, until=until, force=force)
    return _session(session_files.load(str(name)), order=order, until=until, force=force)


def _session(session: SessionFile, *, order: str | None, until: int | None, force: bool) -> Source:
    if not session.journal.exists():
        raise NoSuchExecution(
            f"session {session.name}: nothing was ever run in it, so there is nothing to replay",
            hint=f"krt exec {session.name} CODE",
            session=session.name,
        )
    report = verify(session.journal)
    problems = [f"{problem.where}: {problem.what}" for problem in report.problems]
    if not report.ok and not force:
        raise damaged(session.name, problems)
    with JournalReader.open(session.journal) as reader:
        check_until(reader.head(), session.name, until)
        plan = plan_of_journal(
            reader, session.name, until=until, order=order or "executed", tags=_tags(session)
        )
    plan.bounds = _bounds(session)
    return Source(plan=plan, integrity={"ok": report.ok, "problems": problems})


def _bundle(path: Path, *, order: str | None, until: int | None, force: bool) -> Source:
    from kernel_runtime.evidence.restore import open_bundle, reader_of

    def plan(reader: JournalReader) -> Plan:
        check_until(reader.head(), str(path), until)
        return plan_of_journal(reader, str(path), kind="bundle", until=until, order=order or "executed")

    try:
        with open_bundle(path) as reader:
            return Source(plan=plan(reader), integrity={"ok": True, "problems": []})
    except IntegrityFault as error:
        if not force:
            raise
        problems = [f"{problem['where']}: {problem['what']}" for problem in error.fields.get("problems", [])]
    with reader_of(path) as reader:
        return Source(plan=plan(reader), integrity={"ok": False, "problems": problems})


def damaged(name: str, problems: list[str]) -> JournalCorrupt:
    """The record of `name` is not what was written."""
    more = len(problems) - _SHOWN
    told = "; ".join(problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return JournalCorrupt(
        f"{name}: the record is not what was written: {told}",
        hint=f"`krt verify {name}` lists what cannot be relied on; --force replays it all the same",
        problems=problems,
    )


def check_until(head: int, name: str, until: int | None) -> None:
    """Refuse an entry that is not there.

    Raises:
        UsageError: with the last one that is.
    """
    if until is not None and not 0 < until <= head:
        raise UsageError(
            f"{name} has no entry {until}: it has 1 to {head}", hint=f"`krt log {name}` lists them"
        )


def _bounds(session: SessionFile) -> dict[str, Any] | None:
    for path in (session.directory / "bounds.json", places.home() / "bounds.json"):
        try:
            found: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict)
        except FileNotFoundError:
            continue
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path}: {error}", hint="an object of numbers", path=str(path)) from error
        return found
    return None


def _tags(session: SessionFile) -> dict[str, list[str]]:
    """Tags of the session's cells by their ids in its notebook: the journal does not hold them."""
    path = Path(session.notebook)
    try:
        notebook = read_notebook(path)
    except KernelRuntimeError:
        return {}
    return {
        cell.id: [tag for tag in cell.metadata["tags"] if isinstance(tag, str)]
        for cell in notebook.code
        if isinstance(cell.metadata.get("tags"), list)
    }
