"""A writer that is killed: what it said was written is there."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_runtime.errors import JournalBusy
from kernel_runtime.journal import Journal, JournalReader, verify
from tests.support import eventually
from tests.unit.journal.support import append, printed, queued, started

WRITER = """
import os, sys, threading
from pathlib import Path
from kernel_runtime.journal import Journal
from tests.unit.journal.support import append, finished, printed, queued, started
path, tag = Path(sys.argv[1]), sys.argv[2]
journal = Journal.open(path) if path.exists() else Journal.create(path)
print("open", journal.head, flush=True)

def keep_syncing():
    while True:
        journal.sync()

threading.Thread(target=keep_syncing, daemon=True).start()
n = 0
while True:
    n += 1
    name = f"{tag}-{n}"
    for facts, sync in (
        ([queued(name), started(name)], n % 3 == 0),
        ([printed(name, os.urandom(n * 50 % 9000).hex(), n)], False),
        ([finished(name)], False),
    ):
        for seq in append(journal, *facts, sync=sync):
            print(seq, flush=True)
"""


def start_writer(path: Path, tag: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), tag],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )


def test_killed_in_a_loop_loses_nothing_that_was_acknowledged(tmp_path: Path):
    path = tmp_path / "journal.db"
    acknowledged = 0
    for round_ in range(8):
        with start_writer(path, f"r{round_}") as writer:
            assert writer.stdout is not None
            opened = writer.stdout.readline().split()
            # no acknowledged entry was lost by the kill before; one that nobody was told of may be there
            assert opened[0] == "open"
            assert int(opened[1]) >= acknowledged
            for _ in range(10 + round_ * 37):
                acknowledged = int(writer.stdout.readline())
            with JournalReader.open(path) as reader:
                assert reader.head() >= acknowledged
            writer.send_signal(signal.SIGKILL)
            # what it said before it died counts too; the last line may be cut
            for line in writer.stdout.read().splitlines()[:-1]:
                acknowledged = int(line)
        with JournalReader.open(path) as reader:
            assert reader.head() >= acknowledged
            tail = reader.entries(acknowledged - 5)
            assert [entry.seq for entry in tail] == list(range(acknowledged - 4, reader.head() + 1))
    report = verify(path)
    assert report.ok, report.problems
    assert report.entries >= acknowledged
    with Journal.open(path) as journal:
        append(journal, printed(None, "and on it goes"), sync=True)
    assert verify(path).ok


def test_a_living_writer_is_named(tmp_path: Path):
    path = tmp_path / "journal.db"
    with start_writer(path, "w") as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(JournalBusy) as caught:
            Journal.open(path)
        assert caught.value.fields["pid"] == writer.pid
        assert f"process {writer.pid}" in caught.value.message
        assert f"ps -p {writer.pid}" in caught.value.hint
        assert eventually(lambda: verify(path).ok, what="verify beside a living writer")
        writer.kill()


STRANGER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
sys.stdin.readline()
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_locked_by_a_process_that_knows_nothing_of_us(tmp_path: Path):
    path = tmp_path / "journal.db"
    Journal.create(path).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", STRANGER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder, Journal.open(path, busy_timeout=0.05) as journal:
        assert holder.stdin is not None
        assert holder.stdout is not None
        append(journal, queued("a"))
        holder.stdin.write("lock\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "locked\n"
        for sync in (True, False):
            with pytest.raises(JournalBusy, match="another process holds") as caught:
                append(journal, started("a"), sync=sync)
            assert "fuser" in caught.value.hint
        assert journal.head == 1
        with JournalReader.open(path) as reader:
            assert reader.head() == 1
        holder.communicate("")
        assert append(journal, started("a"), sync=True) == [2]
    assert verify(path).ok


VISIT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT 1 FROM cells")
connection.close()
"""


def test_a_stranger_that_comes_and_goes_takes_nothing_away(tmp_path: Path):
    """The last connection to leave moves the log into the file and removes it.

    A process that has the journal open and closes any descriptor of its main file loses SQLite's
    locks on it (POSIX), and the next stranger then takes itself for the last. So nothing of ours opens
    that file by other means, not even to look at its header.
    """
    path = tmp_path / "journal.db"
    log = path.with_name("journal.db-wal")
    with Journal.create(path) as journal:
        append(journal, queued("a"))
        inode = log.stat().st_ino
        journal.reader().close()
        assert verify(path).ok
        with pytest.raises(JournalBusy):
            Journal.open(path)
        subprocess.run([sys.executable, "-c", VISIT, str(path)], check=True)
        assert log.stat().st_ino == inode
        append(journal, started("a"), sync=True)
        with JournalReader.open(path) as reader:
            assert reader.head() == 2
    assert verify(path).ok
