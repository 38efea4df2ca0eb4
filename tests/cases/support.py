"""What the cases share: a session that ends with its test, and what its journal and notebook hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat

import kernel_runtime as kr
from kernel_runtime import places
from kernel_runtime.client import session_files
from kernel_runtime.client.blocking import Execution
from kernel_runtime.client.status import Status
from kernel_runtime.journal import verify
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import OutputRecorded
from tests.support import eventually


@contextmanager
def stopped(name: str, **how: Any) -> Iterator[kr.Session]:
    """A session that is stopped, and its journal verified, at the end."""
    with kr.attach(name, create=True, **how) as session:
        try:
            yield session
        finally:
            session.stop()
    report = verify(session_files.load(name).journal)
    assert report.ok, report.problems


def kernel_pid(session: kr.Session) -> int:
    return int(eventually(lambda: session.row()["kernel_pid"], what="a kernel pid"))


def state(session: kr.Session) -> str:
    return str(session.row()["state"])


def status_when(
    session: kr.Session, predicate: Callable[[Status], bool], timeout: float = 10.0, what: str = ""
) -> Status:
    """The first status of which that is so."""
    found: list[Status] = []

    def look() -> bool:
        found[:] = [session.status()]
        return predicate(found[0])

    eventually(look, timeout=timeout, what=what)
    return found[0]


def running(session: kr.Session, execution: Execution) -> bool:
    """Whether the kernel has it."""
    return session.peek(execution.execution_id).status in ("running", "blocked")


def blocked(session: kr.Session, execution: Execution) -> bool:
    return session.peek(execution.execution_id).status == "blocked"


def printed(session: kr.Session, execution: Execution, text: str) -> bool:
    """Whether the execution has printed `text` so far."""
    return text in execution.refresh().text


def entries(session: kr.Session, *kinds: str, execution: Execution | None = None) -> list[Entry]:
    """All entries so far, of those kinds if any are given."""
    journal = session.coroutines.journal
    found: list[Entry] = []
    after = 0
    while batch := journal.entries(
        after,
        limit=5000,
        kinds=kinds or None,
        execution_id=execution.execution_id if execution is not None else None,
    ):
        found += batch
        after = batch[-1].seq
    return found


def messages(found: Iterable[Entry]) -> list[dict[str, Any]]:
    """The kernel's messages that entries hold, in order."""
    return [
        json.loads(bytes(message))
        for entry in found
        if isinstance(entry.fact, OutputRecorded)
        for message in entry.fact.messages
    ]


def streamed(found: Iterable[Entry], name: str = "stdout") -> str:
    """Text of that stream in entries."""
    return "".join(
        message["content"]["text"]
        for message in messages(found)
        if message["type"] == "stream" and message["content"]["name"] == name
    )


def notebook_of(name: str) -> nbformat.NotebookNode:
    """The session's notebook file as it is now, valid."""
    path = Path(session_files.load(name).notebook)
    document: nbformat.NotebookNode = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(document)
    return document


def cell_of(name: str, execution: Execution, timeout: float = 10.0) -> Any:
    """The notebook's cell of a finished execution, once it is written with its outcome."""

    def look() -> Any:
        with suppress(FileNotFoundError):
            for cell in notebook_of(name).cells:
                ours = cell.metadata.get("kernel_runtime", {})
                if ours.get("execution_id") == execution.execution_id and ours.get("outcome") is not None:
                    return cell
        return None

    return eventually(look, timeout=timeout, what=f"cell of {execution.execution_id} in the notebook")


def text_in(cell: Any, name: str = "stdout") -> str:
    return "".join(out["text"] for out in cell.outputs if out.output_type == "stream" and out.name == name)


def directory(name: str) -> Path:
    return places.session_dir(name)


@contextmanager
def client_process(source: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs `source`; killed at the end. Lines of its stdout are what it tells."""
    child = subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
