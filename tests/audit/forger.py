"""A forger at work on what a session left: on its journal, hashes made anew or not; on files.

The careful one writes the whole journal again with the session's own code, so that the chain, the digests and
every view computed from it are whole. He does not hold the anchors, nor does he run the cells again: a forger
who does both has made another record, and nothing tells it from a true one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from kernel_runtime.client import session_files
from kernel_runtime.journal import Journal, JournalReader
from kernel_runtime.model.entry import Draft, Entry
from kernel_runtime.model.facts import ExecutionQueued, OutputRecorded
from tests.unit.evidence.support import container, members_of, with_manifest
from tests.unit.journal.support import without_triggers

Change = Callable[[list[Entry]], list[Entry]]


def journal_of(session: str) -> Path:
    return session_files.load(session).journal


def entries_of(session: str) -> list[Entry]:
    found: list[Entry] = []
    with JournalReader.open(journal_of(session)) as reader:
        while page := reader.entries(found[-1].seq if found else 0):
            found += page
    return found


def rewrite(session: str, change: Change) -> None:
    """Write the journal of a stopped session again, with other entries; all in it is consistent."""
    path = journal_of(session)
    old = entries_of(session)
    new = change(old)
    assert new != old, "nothing was forged"
    new = [entry for entry in new if entry.kind != "HeadAnchored"]  # they would not fit any more, and tell
    times = sorted((entry.at, entry.mono) for entry in new)
    moments: Iterator[tuple[int, int]] = iter(times)
    forged = path.with_name("forged.db")
    with Journal.create(forged, lambda: next(moments)) as journal:
        for entry in new:
            journal.append([Draft(entry.fact, entry.principal, entry.incarnation)], sync=False)
    put(files_of(forged), path)


def files_of(journal: Path) -> dict[str, bytes]:
    """The files of a journal that is closed, by what follows its name: its log, and what was acknowledged."""
    return {
        path.name.removeprefix(journal.stem): path.read_bytes()
        for path in journal.parent.glob(f"{journal.stem}.*")
        if path.is_file()
    }


def put(files: dict[str, bytes], journal: Path) -> None:
    """Let a journal have these files and no others."""
    for path in journal.parent.glob(f"{journal.stem}.*"):
        path.unlink()
    for suffix, content in files.items():
        (journal.parent / f"{journal.stem}{suffix}").write_bytes(content)


def with_output(entries: list[Entry], old: str, new: str) -> list[Entry]:
    """The entries with another text in the last output that holds it."""
    wanted, instead = old.encode(), new.encode()
    at = max(at for at, entry in enumerate(entries) if _shows(entry, wanted))
    fact = entries[at].fact
    assert isinstance(fact, OutputRecorded)
    messages = [Raw(bytes(raw).replace(wanted, instead)) for raw in fact.messages]
    changed = list(entries)
    changed[at] = replace(entries[at], fact=replace(fact, messages=messages))
    return changed


def _shows(entry: Entry, text: bytes) -> bool:
    return isinstance(entry.fact, OutputRecorded) and any(text in bytes(raw) for raw in entry.fact.messages)


def executions(entries: list[Entry], cell_id: str) -> list[str]:
    """Ids of the executions of a cell, in their order."""
    queued = (entry.fact for entry in entries if isinstance(entry.fact, ExecutionQueued))
    return [fact.execution_id for fact in queued if fact.cell_id == cell_id]


def moved(entries: list[Entry], execution_id: str, before: str) -> list[Entry]:
    """The entries with one execution's in front of another's."""
    block = [entry for entry in entries if entry.execution_id == execution_id]
    rest = [entry for entry in entries if entry.execution_id != execution_id]
    at = next(at for at, entry in enumerate(rest) if entry.execution_id == before)
    return [*rest[:at], *block, *rest[at:]]


def careless_text(session: str, old: str, new: str) -> None:
    """Change a text where it lies in the file, and repair nothing."""
    with without_triggers(journal_of(session)) as connection:
        done = connection.execute(
            "UPDATE entries SET payload = CAST(replace(CAST(payload AS TEXT), ?, ?) AS BLOB) "
            "WHERE kind = 'OutputRecorded' AND instr(payload, CAST(? AS BLOB))",
            (old, new, old),
        )
        assert done.rowcount > 0, f"{session}: {old!r} stands nowhere in the open"


def careless_swap(session: str, one: str, other: str) -> None:
    """Let two executions have each other's entries, and repair nothing."""
    with without_triggers(journal_of(session)) as connection:
        for old, new in ((one, "-"), (other, one), ("-", other)):
            connection.execute("UPDATE entries SET execution_id = ? WHERE execution_id = ?", (new, old))


def careless_cut(session: str, last: int) -> None:
    """Cut off what comes after an entry, and repair nothing."""
    with without_triggers(journal_of(session)) as connection:
        assert connection.execute("DELETE FROM entries WHERE seq > ?", (last,)).rowcount > 0


def careless_images(session: str) -> None:
    """Let the first and the last image change places, and repair nothing."""
    shown = [entry for entry in entries_of(session) if _images_of(entry)]
    first, last = shown[0].seq, shown[-1].seq
    with without_triggers(journal_of(session)) as connection:
        (one,), (other,) = (
            connection.execute("SELECT digest FROM entries WHERE seq = ?", (seq,)).fetchone()
            for seq in (first, last)
        )
        for seq, digest in ((first, other), (last, one)):
            connection.execute("UPDATE entries SET digest = ? WHERE seq = ?", (digest, seq))


def images(session: str) -> list[str]:
    """PNG images of the record, in base64, in their order."""
    return [image for entry in entries_of(session) for image in _images_of(entry)]


def _images_of(entry: Entry) -> list[str]:
    if not isinstance(entry.fact, OutputRecorded):
        return []
    shown = [json.loads(bytes(raw)).get("content", {}).get("data") or {} for raw in entry.fact.messages]
    return [data["image/png"] for data in shown if "image/png" in data]


def printed(session: str, cell_id: str) -> str:
    """What the last execution of a cell printed."""
    entries = entries_of(session)
    last = executions(entries, cell_id)[-1]
    return "".join(entry.text for entry in entries if entry.execution_id == last)


def edit_notebook(path: Path, cell_id: str, old: str, new: str) -> None:
    """Change the text of a cell's output in a file."""
    document = json.loads(path.read_text())
    cell = next(cell for cell in document["cells"] if cell["id"] == cell_id)
    before = json.dumps(cell["outputs"])
    assert old in before
    cell["outputs"] = json.loads(before.replace(old, new))
    path.write_text(json.dumps(document))


def move_cell(path: Path, cell_id: str, to: int) -> None:
    """Put a cell of a file elsewhere."""
    document = json.loads(path.read_text())
    cells: list[dict[str, Any]] = document["cells"]
    at = next(at for at, cell in enumerate(cells) if cell["id"] == cell_id)
    cells.insert(to, cells.pop(at))
    path.write_text(json.dumps(document))


def with_notebook(bundle: Path, notebook: bytes) -> None:
    """Put another notebook into a bundle, and repair manifest and container."""
    members = members_of(bundle) | {"notebook.ipynb": notebook}
    bundle.write_bytes(container(with_manifest(members)))
