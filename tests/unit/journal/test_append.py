"""What the writer promises: one transaction, the chain, the laws, and the same facts when read."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from kernel_runtime.errors import InternalFault, JournalBusy, NotFound, SessionExists
from kernel_runtime.journal import Journal, verify
from kernel_runtime.model import facts
from tests.unit.journal.support import (
    FixedClock,
    append,
    draft,
    finished,
    plain_sqlite,
    printed,
    queued,
    run,
    started,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_a_new_journal_is_empty_private_and_verifies(path: Path):
    with Journal.create(path) as journal:
        assert (journal.head, journal.head_hash) == (0, "0" * 64)
        assert not journal.unsynced
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_suffix(".lock").stat().st_mode & 0o777 == 0o600
    assert verify(path).ok


def test_create_refuses_what_is_there_and_leaves_it_alone(path: Path):
    with Journal.create(path) as journal:
        run(journal, "a")
    before = path.read_bytes()
    with pytest.raises(SessionExists):
        Journal.create(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["journal.db", "journal.lock"]


def test_open_names_a_missing_journal_and_makes_nothing(path: Path):
    with pytest.raises(NotFound, match="no journal at"):
        Journal.open(path)
    assert not list(path.parent.iterdir())


def test_entries_come_back_as_they_were_returned(path: Path):
    with Journal.create(path, FixedClock()) as journal:
        made = journal.append([draft(queued("a")), draft(started("a"))], sync=True)
        made += journal.append([draft(printed("a", "hi\n", 10))], sync=False)
        made += journal.append([draft(finished("a", execution_count=1, position=20))], sync=False)
        with journal.reader() as reader:
            read = reader.entries()
        assert [e.seq for e in read] == [1, 2, 3, 4]
        assert [facts.encode(e.fact) for e in read] == [facts.encode(e.fact) for e in made]
        for one, other in zip(read, made, strict=True):
            assert (one.hash, one.prev_hash, one.at, one.mono) == (
                other.hash,
                other.prev_hash,
                other.at,
                other.mono,
            )
            assert (one.kind, one.execution_id, one.principal) == (
                other.kind,
                other.execution_id,
                other.principal,
            )
        assert journal.head_hash == read[-1].hash


def test_the_hash_is_the_documented_one(path: Path):
    with Journal.create(path, FixedClock()) as journal:
        (entry,) = journal.append([draft(started_alone := facts.PrincipalAttached())], sync=False)
    payload = facts.encode(started_alone)
    line = [
        1,
        entry.at,
        entry.mono,
        1,
        "agent:a",
        "PrincipalAttached",
        None,
        hashlib.sha256(payload).hexdigest(),
        "0" * 64,
    ]
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    assert entry.hash == hashlib.sha256(text.encode()).hexdigest()


def test_an_append_of_nothing_writes_nothing(path: Path):
    with Journal.create(path) as journal:
        assert journal.append([], sync=True) == []
        assert journal.head == 0


def test_reopening_goes_on_where_it_ended(path: Path):
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"))
        head = (journal.head, journal.head_hash)
    with Journal.open(path) as journal:
        assert (journal.head, journal.head_hash) == head
        append(journal, printed("a", "x"), finished("a"))
    assert verify(path).ok


def test_only_one_writer_and_the_other_is_told_who(path: Path):
    with Journal.create(path):
        with pytest.raises(JournalBusy) as caught:
            Journal.open(path)
        assert caught.value.fields["pid"] > 0
        assert str(caught.value.fields["pid"]) in caught.value.message
    Journal.open(path).close()


def test_unsynced_until_synced(path: Path):
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"), sync=True)
        seen = [journal.unsynced]
        append(journal, printed("a", "x"))
        seen.append(journal.unsynced)
        journal.sync()
        seen.append(journal.unsynced)
        append(journal, printed("a", "y"))
        append(journal, finished("a"), sync=True)
        seen.append(journal.unsynced)
    assert seen == [False, True, False, False]


def test_sync_from_another_thread_while_appending(path: Path):
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"))
        stop = threading.Event()
        failed: list[Exception] = []

        def keep_syncing() -> None:
            while not stop.is_set():
                try:
                    journal.sync()
                except Exception as error:  # noqa: BLE001 - told below
                    failed.append(error)
                    return

        thread = threading.Thread(target=keep_syncing)
        thread.start()
        for n in range(300):
            append(journal, printed("a", "x" * 30_000 + str(n)), sync=n % 50 == 0)
        stop.set()
        thread.join()
        assert not failed
        journal.sync()
        assert not journal.unsynced
    report = verify(path)
    assert report.ok
    assert report.entries == 302


def test_the_log_is_moved_into_the_file_by_sync_and_does_not_grow_without_end(path: Path):
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"))
        for _ in range(8):
            for _ in range(10):
                append(journal, printed("a", os.urandom(100_000).hex()))
            journal.sync()
        log = path.with_name("journal.db-wal").stat().st_size
        assert log < 16 << 20
        assert path.stat().st_size > 5 << 20


def test_nor_when_nobody_syncs(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kernel_runtime.journal.writer._BACKSTOP", 100)
    with Journal.create(path) as journal:
        for _ in range(100):
            append(journal, printed(None, os.urandom(10_000).hex()))
        assert path.with_name("journal.db-wal").stat().st_size < 1 << 20
    assert verify(path).ok


@pytest.mark.parametrize("size", [10, 4096, 5000, 300_000])
def test_payloads_of_any_size(path: Path, size: int):
    text = "añ%" * size
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"), printed("a", text))
        with journal.reader() as reader:
            (entry,) = reader.entries(2)
        assert isinstance(entry.fact, facts.OutputRecorded)
        assert msgspec.json.decode(entry.fact.messages[0])["content"]["text"] == text
    assert verify(path).ok


def test_large_payloads_are_kept_once_and_compressed_if_worth_it(path: Path):
    image = base64.b64encode(os.urandom(30_000)).decode()
    with Journal.create(path) as journal:
        append(journal, queued("a"), started("a"))
        append(journal, printed("a", "same " * 10_000), printed("a", "same " * 10_000))
        append(journal, printed("a", image))
    with plain_sqlite(path) as plain:
        rows = plain.execute("SELECT codec, size, length(data) FROM payloads ORDER BY rowid").fetchall()
    assert [codec for codec, _size, _kept in rows] == ["zstd", "raw"]
    assert rows[0][2] < rows[0][1] / 20
    report = verify(path)
    assert report.ok
    assert report.entries == 5


def test_what_json_cannot_hold_is_kept_escaped(path: Path):
    with Journal.create(path) as journal:
        made = journal.append(
            [
                draft(queued("a", source="s = 'a\ud800b'", key="k\udfff"), principal="agent:\udcff"),
                draft(started("a")),
                draft(
                    facts.OutputRecorded(
                        execution_id="a",
                        messages=[
                            msgspec.Raw(b'{"text":"a\\ud800b"}'),
                            msgspec.Raw(b'{"data":NaN}'),
                            msgspec.Raw(b'{"text":"\xff"}'),
                            msgspec.Raw(b"no json"),
                            msgspec.Raw(b'{"as": "it came"}'),
                        ],
                    )
                ),
            ],
            sync=False,
        )
        with journal.reader() as reader:
            read = reader.entries()
            assert [e.fact for e in read[:2]] == [e.fact for e in made[:2]]
            assert reader.source("a") == r"s = 'a\ud800b'"
            assert reader.by_key("k\udfff") == reader.execution("a")
            assert read[0].principal == r"agent:\udcff"
        output = read[2].fact
        assert isinstance(output, facts.OutputRecorded)
        assert [bytes(raw) for raw in output.messages] == [
            rb'{"text":"a\\ud800b"}',
            b'{"data":"NaN"}',
            rb'{"text":"\\udcff"}',
            b'{"unreadable":"no json"}',
            b'{"as": "it came"}',
        ]
    assert verify(path).ok


@pytest.mark.parametrize(
    "before, broken, why",
    [
        ([], [finished("a")], "never queued"),
        ([], [started("a")], "never queued"),
        ([queued("a")], [queued("a")], "queued before"),
        ([queued("a"), finished("a", "aborted")], [queued("a")], "queued before"),
        ([queued("a", key="k")], [queued("b", key="k")], "key 'k' was used"),
        ([], [queued("a", key="k"), queued("b", key="k")], "key 'k' was used"),
        ([queued("a"), started("a"), finished("a")], [finished("a", "died")], "recorded already: ok"),
        ([queued("a"), started("a")], [finished("a"), finished("a")], "recorded already: ok"),
    ],
)
def test_the_laws_of_executions_are_held(
    path: Path, before: list[facts.Fact], broken: list[facts.Fact], why: str
):
    with Journal.create(path) as journal:
        append(journal, *before)
        head = journal.head
        with pytest.raises(InternalFault, match=why):
            append(journal, facts.PrincipalAttached(), *broken)
        assert journal.head == head
        append(journal, facts.PrincipalAttached())
        assert journal.head == head + 1
    report = verify(path)
    assert report.ok
    assert report.entries == head + 1


def test_rebuild_mends_projections(path: Path):
    with Journal.create(path) as journal:
        for name in "abc":
            run(journal, name, key=name)
        append(journal, queued("d"), started("d"))
    with plain_sqlite(path) as plain:
        plain.execute("UPDATE executions SET outcome = 'died' WHERE execution_id = 'a'")
        plain.execute("DELETE FROM cells")
        plain.execute("UPDATE seen SET incarnation = 7")
    assert verify(path).projections == "differ"
    with Journal.open(path) as journal:
        journal.rebuild()
        assert verify(path).ok
        append(journal, finished("d"))
    assert verify(path).ok


def test_close_twice(path: Path):
    journal = Journal.create(path)
    journal.close()
    journal.close()
