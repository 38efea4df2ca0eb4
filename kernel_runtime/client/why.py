"""Which executions made a value what it is, as a document: the slice of core/why.py with its sources."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import msgspec

from kernel_runtime.client.session_files import SessionFile
from kernel_runtime.core.entries import walk
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.core.why import KINDS, History, Why
from kernel_runtime.errors import NoSuchVariable
from kernel_runtime.journal import JournalReader


def why(session: SessionFile, name: str) -> dict[str, Any]:
    """How the name's last value came to be, from the journal alone: nothing is started or asked.

    Returns `{"session", "name", "incarnation", "state": "present|deleted|lost", "executions":
    [{"execution_id", "cell_id", "seq", "principal", "started_at", "outcome", "because": [{"name", "how"}],
    "reads": [...], "dynamic": [...], "source"}], "drifts": [{"seq", "name", "how", "found"}],
    "unobserved": [execution ids]}`; executions in the order in which they started.

    Raises:
        NoSuchVariable: it is in no observation of this session.
        JournalCorrupt, JournalNewer, StorageFault.
    """
    if not session.journal.exists():
        raise _unknown(session, name, [])
    with JournalReader.open(session.journal) as journal:
        history = History()
        history.take(walk(journal, kinds=KINDS))
        found = history.why(name)
        if found is None:
            raise _unknown(session, name, history.names())
        return _document(session, journal, found)


def _document(session: SessionFile, journal: JournalReader, found: Why) -> dict[str, Any]:
    executions = []
    for origin in found.executions:
        row = journal.execution(origin.execution_id)
        assert row is not None
        executions.append(
            {
                "execution_id": origin.execution_id,
                "cell_id": row.cell_id,
                "seq": origin.seq,
                "principal": row.principal,
                "started_at": None if row.started_at is None else iso_time(row.started_at),
                "outcome": row.outcome,
                "because": msgspec.to_builtins(origin.because),
                "reads": origin.reads,
                "dynamic": origin.dynamic,
                "source": journal.source(origin.execution_id),
            }
        )
    latest = journal.latest("KernelStarting")
    lost = latest is not None and latest.incarnation > found.incarnation
    return {
        "session": session.name,
        "name": found.name,
        "incarnation": found.incarnation,
        "state": "lost" if lost else "present" if found.present else "deleted",
        "executions": executions,
        "drifts": msgspec.to_builtins(found.drifts),
        "unobserved": found.unobserved,
    }


def _unknown(session: SessionFile, name: str, known: list[str]) -> NoSuchVariable:
    near = get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif known:
        hint = f"krt status {session.name} --all lists names"
    else:
        hint = "no execution of this session told of any name: nothing ran, or its kernel cannot tell"
    return NoSuchVariable(
        f"session {session.name}: no execution bound or changed a name {name!r}",
        hint=hint,
        session=session.name,
        name=name,
    )
