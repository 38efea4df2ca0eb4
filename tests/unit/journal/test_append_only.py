"""The database itself refuses to change what was written, whoever asks.

All of it from the standard library's SQLite with its default pragmas: no opener of ours in between.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kernel_runtime.journal import Journal, verify
from tests.unit.journal.support import append, plain_sqlite, printed, queued, started

ZEROS = "0" * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"), printed("a", "large " * 2000))
    return path


COPY = "SELECT {seq}, at, mono, incarnation, 'human:eve', kind, execution_id, payload, digest, {prev}, hash"

REFUSED = {
    "update": "UPDATE entries SET principal = 'human:eve' WHERE seq = 1",
    "update of nothing new": "UPDATE entries SET seq = seq",
    "update or replace": "UPDATE OR REPLACE entries SET seq = 1 WHERE seq = 2",
    "update or ignore": "UPDATE OR IGNORE entries SET seq = 1 WHERE seq = 2",
    "delete one": "DELETE FROM entries WHERE seq = 3",
    "delete all": "DELETE FROM entries",
    "replace": f"REPLACE INTO entries {COPY} FROM entries WHERE seq = 1".format(seq="seq", prev="prev_hash"),
    "insert or replace": f"INSERT OR REPLACE INTO entries {COPY} FROM entries WHERE seq = 3".format(
        seq="seq", prev="prev_hash"
    ),
    "insert or ignore": f"INSERT OR IGNORE INTO entries {COPY} FROM entries WHERE seq = 3".format(
        seq="seq", prev="prev_hash"
    ),
    "upsert": f"INSERT INTO entries {COPY} FROM entries WHERE seq = 3 "
    "ON CONFLICT (seq) DO UPDATE SET principal = excluded.principal".format(seq="seq", prev="prev_hash"),
    "a gap": f"INSERT INTO entries {COPY} FROM entries WHERE seq = 3".format(seq="seq + 2", prev="hash"),
    "seq left to SQLite": f"INSERT INTO entries {COPY} FROM entries WHERE seq = 3".format(
        seq="NULL", prev="hash"
    ),
    "before the first": f"INSERT INTO entries {COPY} FROM entries WHERE seq = 1".format(
        seq="0", prev="prev_hash"
    ),
    "off the chain": f"INSERT INTO entries {COPY} FROM entries WHERE seq = 3".format(
        seq="seq + 1", prev="prev_hash"
    ),
    "without its payload": "INSERT INTO entries SELECT 4, at, mono, incarnation, principal, kind, "
    f"execution_id, NULL, '{ZEROS}', hash, '{ZEROS}' FROM entries WHERE seq = 3",
    "payload update": "UPDATE payloads SET data = x'00'",
    "payload delete": "DELETE FROM payloads",
    "payload replace": "REPLACE INTO payloads SELECT digest, size, codec, checksum, x'00' FROM payloads",
    "payload replace or ignore": "INSERT OR IGNORE INTO payloads "
    "SELECT digest, size, codec, 1, data FROM payloads",
    "payload replaced by rowid": "REPLACE INTO payloads (rowid, digest, size, codec, checksum, data) "
    f"SELECT rowid, '{ZEROS}', size, codec, checksum, data FROM payloads",
    "payload upsert": "INSERT INTO payloads SELECT digest, size, codec, checksum, x'00' FROM payloads "
    "WHERE 1 ON CONFLICT (digest) DO UPDATE SET data = excluded.data",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("recursive", [False, True])
def test_refused(path: Path, statement: str, recursive: bool):
    with plain_sqlite(path) as plain:
        plain.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
        before = (
            plain.execute("SELECT * FROM entries").fetchall()
            + plain.execute("SELECT * FROM payloads").fetchall()
        )
        with pytest.raises(sqlite3.IntegrityError, match="journal"):
            plain.execute(statement)
        after = (
            plain.execute("SELECT * FROM entries").fetchall()
            + plain.execute("SELECT * FROM payloads").fetchall()
        )
    assert after == before
    assert verify(path).ok


def test_the_first_entry_must_be_number_one_with_no_predecessor(tmp_path: Path):
    path = tmp_path / "journal.db"
    Journal.create(path).close()
    with plain_sqlite(path) as plain:
        for seq, prev in ((2, ZEROS), (1, "1" * 64), (0, ZEROS), (-1, ZEROS)):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                plain.execute(
                    "INSERT INTO entries VALUES (?, 0, 0, 0, 'p', 'k', NULL, x'', '', ?, '')", (seq, prev)
                )


@pytest.mark.parametrize(
    "column, value", [("seq", "'x'"), ("at", "'noon'"), ("payload", "'text'"), ("hash", "x'00'")]
)
def test_columns_hold_only_their_type(path: Path, column: str, value: str):
    columns = ["seq", "at", "mono", "incarnation", "principal", "kind", "execution_id", "payload", "digest"]
    columns += ["prev_hash", "hash"]
    chosen = ["4" if c == "seq" else "hash" if c == "prev_hash" else c for c in columns]
    chosen[columns.index(column)] = value
    with plain_sqlite(path) as plain, pytest.raises(sqlite3.Error):
        plain.execute(f"INSERT INTO entries SELECT {', '.join(chosen)} FROM entries WHERE seq = 3")
