"""A real file system of 1 MB that runs full (case S49), and one that turns read-only."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.journal.support import in_own_mounts

FULL = """
import json, os, subprocess, sys
from pathlib import Path
directory = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(directory)], check=True)
from kernel_runtime.errors import DiskFull
from kernel_runtime.journal import Journal, JournalReader, verify
from tests.unit.journal.support import append, printed, queued, started, finished

path = directory / "journal.db"
result = {"acknowledged": [], "refused": [], "rounds": []}
ballast = directory / "ballast"
ballast.write_bytes(b"x" * 300_000)
journal = Journal.create(path)

def fill():
    while True:
        try:
            result["acknowledged"] += append(journal, printed(None, os.urandom(8000).hex()))
        except DiskFull as error:
            result["refused"].append([type(error).__name__, error.message, error.hint])
            return

def refused(sync):
    try:
        append(journal, queued("while-full", "x" * 9000), started("while-full"), sync=sync)
    except DiskFull as error:
        result["refused"].append([type(error).__name__, error.message, error.hint])

def state():
    with JournalReader.open(path) as reader:
        seqs = [entry.seq for entry in reader.entries()]
    return [journal.head, seqs == result["acknowledged"], verify(path).ok]

fill()
refused(sync=True)
refused(sync=False)
result["rounds"].append(state())
ballast.write_bytes(b"")
result["acknowledged"] += append(journal, queued("a"), started("a"), sync=True)
result["acknowledged"] += append(journal, printed("a", "space is back"), finished("a"), sync=True)
result["rounds"].append(state())
fill()
result["rounds"].append(state())
journal.close()
journal = Journal.open(path)
result["reopened"] = state()
journal.close()
result["closed"] = verify(path).ok
print(json.dumps(result))
"""


def test_a_full_disk_refuses_with_the_reason_and_loses_nothing(tmp_path: Path):
    (line,) = in_own_mounts(FULL, str(tmp_path))
    result = json.loads(line)
    assert len(result["refused"]) >= 4
    for kind, message, hint in result["refused"]:
        assert kind == "DiskFull"
        assert "no space left" in message
        assert "nothing of this was written" in message
        assert "free space" in hint
    count = len(result["acknowledged"])
    assert result["acknowledged"] == list(range(1, count + 1))
    assert [whole for _head, *whole in result["rounds"]] == [[True, True]] * len(result["rounds"])
    assert result["rounds"][-1][0] == count
    assert result["reopened"] == [count, True, True]
    assert result["closed"]


READ_ONLY = """
import json, subprocess, sys
from pathlib import Path
directory = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(directory)], check=True)
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.journal import Journal, JournalReader
from tests.unit.journal.support import append, queued, started

sub = directory / "sub"
sub.mkdir()
path = sub / "journal.db"
subprocess.run(["mount", "--bind", str(sub), str(sub)], check=True)
Journal.create(path).close()
subprocess.run(["mount", "-o", "remount,bind,ro", str(sub)], check=True)
errors = []
for use in (Journal.open, lambda path: Journal.create(path.with_name("other.db"))):
    try:
        use(path)
    except KernelRuntimeError as error:
        errors.append([type(error).__name__, error.message, error.hint])
with JournalReader.open(path) as reader:
    head = reader.head()
subprocess.run(["mount", "-o", "remount,bind,rw", str(sub)], check=True)
with Journal.open(path) as journal:
    append(journal, queued("a"), started("a"), sync=True)
    print(json.dumps([errors, head, journal.head]))
"""


def test_a_read_only_disk_is_named_and_can_be_read(tmp_path: Path):
    (line,) = in_own_mounts(READ_ONLY, str(tmp_path))
    errors, head, later = json.loads(line)
    assert [kind for kind, _message, _hint in errors] == ["ReadOnlyStorage", "ReadOnlyStorage"]
    for _kind, message, hint in errors:
        assert "cannot be written" in message
        assert "make" in hint
    assert (head, later) == (0, 2)
