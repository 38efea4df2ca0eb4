"""Tables, and how they come to be: one step per schema version.

`user_version` is the schema version. A new journal is version 0 and takes every step; an older one
takes those it lacks. Steps run inside one transaction, `user_version` included, so that a journal is
always of one version or the next, never between. A step is never edited once released: journals of
its version exist. A new kind of fact is a new version too, or an older reader would meet entries it
cannot decode.
"""

# ruff: noqa: S608 - the only parts put into statements are constants of this package
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from kernel_runtime.errors import JournalNewer
from kernel_runtime.journal import faults
from kernel_runtime.journal.codec import GENESIS

APPLICATION_ID = 0x6B72746A
"""`krtj`, in the file's header: what tells a journal from any other SQLite file"""

Step = Callable[[apsw.Connection], None]

_KEEPERS = ("entries_no_update", "payloads_no_update", "payloads_no_delete")

_FREQUENT_1 = ("ExecutionQueued", "ExecutionStarted", "OutputRecorded", "ExecutionFinished")

FREQUENT = (*_FREQUENT_1, "ExecutionObserved")
"""kinds that come with every execution"""

RARE = f"kind NOT IN {FREQUENT}"
"""a condition that a query must state, word for word, for SQLite to use the index of kinds"""

# What an execution writes is counted in pages, each a write to the log. So the kinds that come with
# every execution are not in the index of kinds (the last of them is near the end, and a reader that
# wants them walks forward), and an execution is found by its ExecutionQueued instead of by an index.
_ENTRIES = f"""
CREATE TABLE entries (
    seq          INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    mono         INTEGER NOT NULL,
    incarnation  INTEGER NOT NULL,
    principal    TEXT NOT NULL,
    kind         TEXT NOT NULL,
    execution_id TEXT,
    payload      BLOB,
    digest       TEXT NOT NULL,
    prev_hash    TEXT NOT NULL,
    hash         TEXT NOT NULL
) STRICT;
CREATE INDEX entries_by_kind ON entries (kind, seq) WHERE kind NOT IN {_FREQUENT_1};
CREATE INDEX entries_by_execution ON entries (execution_id, seq) WHERE execution_id IS NOT NULL;

CREATE TABLE payloads (
    digest   TEXT NOT NULL UNIQUE,
    size     INTEGER NOT NULL,
    codec    TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL
) STRICT;

CREATE TRIGGER entries_in_order BEFORE INSERT ON entries
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries)
  OR NEW.prev_hash IS NOT coalesce((SELECT hash FROM entries ORDER BY seq DESC LIMIT 1), '{GENESIS}')
BEGIN SELECT raise(ABORT, 'journal is append-only: an entry follows the last one, in seq and prev_hash'); END;
CREATE TRIGGER entries_with_payload BEFORE INSERT ON entries
WHEN NEW.payload IS NULL AND NOT EXISTS (SELECT 1 FROM payloads WHERE digest = NEW.digest)
BEGIN SELECT raise(ABORT, 'journal entry without its payload'); END;
CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
BEGIN SELECT raise(ABORT, 'journal is append-only: entries are never changed'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
BEGIN SELECT raise(ABORT, 'journal is append-only: entries are never deleted'); END;

CREATE TRIGGER payloads_no_replace BEFORE INSERT ON payloads
WHEN EXISTS (SELECT 1 FROM payloads WHERE digest = NEW.digest)
  OR EXISTS (SELECT 1 FROM payloads WHERE rowid = NEW.rowid)
BEGIN SELECT raise(ABORT, 'journal is append-only: payloads are never replaced'); END;
CREATE TRIGGER payloads_no_update BEFORE UPDATE ON payloads
BEGIN SELECT raise(ABORT, 'journal is append-only: payloads are never changed'); END;
CREATE TRIGGER payloads_no_delete BEFORE DELETE ON payloads
BEGIN SELECT raise(ABORT, 'journal is append-only: payloads are never deleted'); END;
"""

_PROJECTIONS = """
CREATE TABLE executions (
    queued_seq      INTEGER PRIMARY KEY,
    execution_id    TEXT NOT NULL,
    cell_id         TEXT NOT NULL,
    principal       TEXT NOT NULL,
    msg_id          TEXT NOT NULL,
    source_digest   TEXT NOT NULL,
    queued_at       INTEGER NOT NULL,
    key             TEXT,
    incarnation     INTEGER NOT NULL,
    status          TEXT NOT NULL,
    outcome         TEXT,
    execution_count INTEGER,
    started_at      INTEGER,
    finished_at     INTEGER,
    finished_seq    INTEGER,
    error           TEXT,
    evidence        TEXT,
    blocked         TEXT
) STRICT;
CREATE INDEX executions_by_cell ON executions (cell_id, queued_seq);
CREATE INDEX executions_by_key ON executions (key, queued_seq) WHERE key IS NOT NULL;
CREATE INDEX executions_alive ON executions (status, queued_seq) WHERE status <> 'done';

CREATE TABLE cells (
    cell_id       TEXT PRIMARY KEY,
    position      INTEGER NOT NULL,
    execution_id  TEXT NOT NULL,
    source_digest TEXT NOT NULL,
    incarnation   INTEGER NOT NULL,
    status        TEXT NOT NULL,
    outcome       TEXT,
    executions    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX cells_by_state ON cells (incarnation, status, outcome, position);

CREATE TABLE cell_counts (
    incarnation INTEGER NOT NULL,
    status      TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (incarnation, status, outcome)
) STRICT, WITHOUT ROWID;

CREATE TABLE seen (
    principal   TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    accepted    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE positions (
    incarnation INTEGER PRIMARY KEY,
    position    INTEGER NOT NULL
) STRICT;
"""


def _to_1(connection: apsw.Connection) -> None:
    connection.execute(_ENTRIES)
    connection.execute(_PROJECTIONS)


# Version 2: what executions did to names, the world, claims and handoffs.
_KINDS_2 = f"""
DROP INDEX entries_by_kind;
CREATE INDEX entries_by_kind ON entries (kind, seq) WHERE {RARE};
"""

_HEAP = """
ALTER TABLE cells ADD COLUMN heap TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN adrift INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN unsure INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN open INTEGER NOT NULL DEFAULT 0;
DROP INDEX cells_by_state;
CREATE INDEX cells_by_state ON cells (incarnation, status, outcome, heap, position);
CREATE INDEX cells_open ON cells (incarnation) WHERE open = 1;

DROP TABLE cell_counts;
CREATE TABLE cell_counts (
    incarnation INTEGER NOT NULL,
    status      TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    heap        TEXT NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (incarnation, status, outcome, heap)
) STRICT, WITHOUT ROWID;
INSERT INTO cell_counts
SELECT incarnation, status, coalesce(outcome, ''), heap, count(*) FROM cells GROUP BY 1, 2, 3, 4;

CREATE TABLE names (
    name        TEXT PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    present     INTEGER NOT NULL,
    type        TEXT,
    bytes       INTEGER,
    digest      TEXT,
    why         TEXT,
    token       TEXT NOT NULL,
    changed_seq INTEGER NOT NULL,
    bound_by    TEXT,
    bound_in    TEXT,
    changed_by  TEXT,
    drifted     INTEGER NOT NULL,
    unbound     INTEGER NOT NULL,
    shaky       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX names_unreadable ON names (incarnation) WHERE digest IS NULL AND present = 1 AND shaky = 0;

CREATE TABLE name_counts (
    incarnation INTEGER NOT NULL,
    state       TEXT NOT NULL,
    n           INTEGER NOT NULL,
    PRIMARY KEY (incarnation, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE heaps (
    incarnation INTEGER PRIMARY KEY,
    seq         INTEGER NOT NULL,
    changed_seq INTEGER NOT NULL,
    blind_seq   INTEGER NOT NULL,
    groups      TEXT NOT NULL,
    unfollowed  TEXT NOT NULL,
    volatile    TEXT NOT NULL,
    awaited     TEXT NOT NULL
) STRICT;

CREATE TABLE observations (
    cell_id      TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL,
    incarnation  INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    bound        TEXT NOT NULL,
    mutated      TEXT NOT NULL,
    reads        TEXT NOT NULL,
    dynamic      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE reads (
    incarnation INTEGER NOT NULL,
    name        TEXT NOT NULL,
    token       TEXT NOT NULL,
    cell_id     TEXT NOT NULL,
    PRIMARY KEY (incarnation, name, token, cell_id)
) STRICT, WITHOUT ROWID;
"""


def _to_2(connection: apsw.Connection) -> None:
    connection.execute(_KINDS_2)
    connection.execute(_HEAP)


def _to_3(_connection: apsw.Connection) -> None:
    """New kinds only: the environment, redaction, archive, signatures and anchors."""


STEPS: tuple[Step, ...] = (_to_1, _to_2, _to_3)
"""`STEPS[n]` takes a journal of version n to n + 1"""


_KINDS_ONLY = frozenset({_to_3})
"""steps that change no table"""


def reads_as_it_is(version: int) -> bool:
    """Whether a journal of that version has the tables of the newest."""
    return all(step in _KINDS_ONLY for step in STEPS[version:])


def version_of(connection: apsw.Connection) -> int:
    version: int = connection.pragma("user_version")
    return version


def check(connection: apsw.Connection, path: Path) -> int:
    """The schema version, if this is a journal that this version of the package can use.

    Raises:
        JournalNewer: with both versions.
        JournalCorrupt: some other SQLite file, or one that was never finished being created.
    """
    if connection.pragma("application_id") != APPLICATION_ID:
        raise faults.corrupt(path, "it is not a journal (application_id differs)")
    version = version_of(connection)
    if version > len(STEPS):
        raise JournalNewer(
            f"the journal {path} has schema version {version}; this kernel-runtime reads up to {len(STEPS)}",
            hint="upgrade kernel-runtime (`pip install -U kernel-runtime`); the journal was not touched",
            path=str(path),
            journal_version=version,
            supported_version=len(STEPS),
        )
    if version < 1:
        raise faults.corrupt(path, "it has no tables: it was never finished being created")
    return version


def migrate(connection: apsw.Connection) -> int:
    """Take the steps that are missing, all or none, and return the version before them."""
    before = version_of(connection)
    if before >= len(STEPS):
        return before
    with connection:  # a savepoint or transaction: rolled back with user_version on any error
        for step in STEPS[before:]:
            step(connection)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(STEPS))
    return before


def declared() -> dict[tuple[str, str], str]:
    """`{(type, name): sql}` of every table, index and trigger that the newest version has."""
    connection = apsw.Connection(":memory:")
    try:
        migrate(connection)
        return objects(connection)
    finally:
        connection.close()


@contextmanager
def unlocked(connection: apsw.Connection) -> Iterator[None]:
    """Without the triggers that keep entries and payloads as they are. Inside a transaction.

    Only for what leaves the chain as it is, and is journaled in the same transaction.
    """
    triggers = {
        name: sql for (kind, name), sql in declared().items() if kind == "trigger" and name in _KEEPERS
    }
    for name in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for sql in triggers.values():
        connection.execute(sql)


def objects(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """`{(type, name): sql}` of what a journal has; without what SQLite makes by itself."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {(str(kind), str(name)): str(sql) for kind, name, sql in rows}
