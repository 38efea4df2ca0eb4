"""The client's part of redaction and archive: asks the supervisor, then looks for itself what still holds it.

The search is made here, by a process that has no journal open: whoever opens and closes the file of one that
is open takes SQLite's locks from it. It reads every file of the session as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernel_runtime import places, process
from kernel_runtime.client import session_files
from kernel_runtime.client.connection import ControlLine
from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.errors import NotFound
from kernel_runtime.journal.forms import Forms

_WITHIN = 3600.0
"""seconds: the whole journal is read, and its file written anew"""
_PIECE = 1 << 22
_NOTHING: dict[str, Any] = {
    "entry": None,
    "seqs": [],
    "kinds": {},
    "shared": 0,
    "segments": [],
    "swept": {},
    "left": [],
}


async def redact(name: str, arguments: dict[str, Any], *, principal: str) -> dict[str, Any]:
    """Take something out of a session's journal and files.

    Args:
        name: the session.
        arguments: `reason`, and one of `text`, `execution_id`, `entry`; `force`.
        principal: who does so.

    Returns:
        `{"entry", "seqs", "kinds", "shared", "segments", "swept", "left", "files", "processes"}`: `left`
        in words, `files` that still hold the text, `processes` of the session that were given it.

    Raises:
        NoSuchSession, NoSuchExecution, NotFound: no such thing, or it stands nowhere.
        UsageError, SessionBusy: refused; nothing was changed.
        SupervisorFault, StorageFault: not done, or not known to be.
    """
    session = session_files.load(name)
    text = arguments.get("text")
    nowhere: NotFound | None = None
    line = ControlLine(session, principal)
    try:
        done = await line.request("redact", arguments, within=_WITHIN)
    except NotFound as error:
        if text is None:
            raise
        done, nowhere = {**_NOTHING}, error  # nowhere that the supervisor looks
    finally:
        line.close()
    if text is None:
        return {**done, "files": [], "processes": []}
    forms = Forms(str(text))
    files = [str(file) for file in _files(session, done) if holds(file, forms)]
    if nowhere is not None and not files:
        raise nowhere
    return {**done, "files": files, "processes": list(_processes(session, forms))}


async def archive(name: str, *, before: int | None, directory: Path | None, principal: str) -> dict[str, Any]:
    """Seal old entries into a segment, in `directory` (absolute) or beside the journal.

    Returns:
        `{"first", "last", "file", "sha256", "bytes", "entry", "journal_bytes": {"before", "after"}, "left"}`.

    Raises:
        NoSuchSession: none of that name.
        UsageError: nothing can be sealed up to there.
        SupervisorFault, StorageFault: not done, or not known to be.
    """
    line = ControlLine(session_files.load(name), principal)
    arguments = {"before": before, "directory": None if directory is None else str(directory)}
    try:
        return await line.request("archive", arguments, within=_WITHIN)
    finally:
        line.close()


def _files(session: SessionFile, done: dict[str, Any]) -> Iterator[Path]:
    notebook = Path(session.notebook)
    checkpoint = notebook.parent / ".ipynb_checkpoints" / f"{notebook.stem}-checkpoint{notebook.suffix}"
    extra = [notebook, checkpoint, *map(Path, done.get("segments", []))]
    below = [session.directory, places.socket_dir(session.session_id)]
    found = {file for place in below for file in place.rglob("*")}
    yield from sorted(file for file in {*found, *extra} if file.is_file() and not file.is_symlink())


def holds(file: Path, forms: Forms) -> bool:
    """Whether a file's bytes hold the text in one of its forms."""
    overlap = max(map(len, forms.needles)) - 1
    before = b""
    try:
        with file.open("rb") as data:
            while piece := data.read(_PIECE):
                if forms.is_in(before + piece):
                    return True
                before = piece[-overlap:] if overlap else b""
    except FileNotFoundError:  # a segment of the outbox that the kernel has given up meanwhile
        return False
    return False


def _processes(session: SessionFile, forms: Forms) -> Iterator[str]:
    for who, environment in process.marked_processes("KRT_SESSION_ID", session.session_id):
        argv = "\0".join(process.command_line(who.pid)).encode("utf-8", "surrogateescape")
        told = "\0".join(map("=".join, environment.items())).encode("utf-8", "surrogateescape")
        for where, data in (("command line", argv), ("environment", told)):
            if forms.is_in(data):
                yield f"{who.pid}: its {where}"
