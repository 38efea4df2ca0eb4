"""What the journal and the file say, to hold against what a page shows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import kernel_runtime as kr
from kernel_runtime.model.execution import Execution
from tests.contract.stock import executions
from tests.contract.stock import journal as journal_of
from tests.support import eventually


def row(session: kr.Session, source: str) -> Execution:
    """The latest execution whose source has that text, once there is one."""
    found = eventually(lambda: _latest(session, source), 30, f"an execution of {source!r}")
    assert found is not None
    return found


def done(session: kr.Session, source: str, timeout: float = 30.0) -> Execution:
    """As `row`, once it is done."""

    def look() -> Execution | None:
        found = _latest(session, source)
        return found if found is not None and found.status == "done" else None

    found = eventually(look, timeout, f"{source!r} is done")
    assert found is not None
    return found


def _latest(session: kr.Session, source: str) -> Execution | None:
    return next(reversed(all_of(session, source)), None)


def all_of(session: kr.Session, source: str) -> list[Execution]:
    """Every execution whose source has that text, oldest first."""
    with journal_of(session) as journal:
        return [one for one in executions(session) if source in (journal.source(one.execution_id) or "")]


def text_of(session: kr.Session, source: str) -> str:
    """All that the latest execution of that source wrote to stdout and stderr, by the journal."""
    execution = session.execution(row(session, source).execution_id)
    return "".join(o["text"] for o in execution.outputs if o["output_type"] == "stream")


def path_of(session: kr.Session) -> Path:
    return Path(session.row()["notebook"])


def at_rest(path: Path) -> None:
    """The room has saved what it had: who writes now what he read before that takes it out again."""
    eventually(lambda: time.time() - path.stat().st_mtime > 3, 60, "the room has nothing to save")


def file_of(session: kr.Session) -> dict[str, Any]:
    """The notebook file."""
    document: dict[str, Any] = json.loads(path_of(session).read_text())
    return document


def cells_of(session: kr.Session) -> list[dict[str, Any]]:
    """Of the file; none while a save is half done."""
    try:
        cells: list[dict[str, Any]] = file_of(session)["cells"]
    except ValueError:
        return []
    return cells


def sources(session: kr.Session) -> list[str]:
    """Of all cells in the file; none while a save is half done."""
    return ["".join(cell["source"]) for cell in cells_of(session)]


def saved(session: kr.Session, source: str) -> dict[str, Any] | None:
    """The cell with that text in its source, as the file has it; None also while a save is half done."""
    return next((cell for cell in cells_of(session) if source in "".join(cell["source"])), None)
