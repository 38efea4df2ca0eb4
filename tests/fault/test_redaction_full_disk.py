"""A real file system that runs full in the middle of a redaction or an archiving."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.journal.support import in_own_mounts

FULL = """
import json, os, subprocess, sys
from pathlib import Path
directory, what = Path(sys.argv[1]), sys.argv[2]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(directory)], check=True)
from kernel_runtime.errors import DiskFull
from kernel_runtime.journal import Journal, JournalReader, verify
from kernel_runtime.journal.archive import archive
from kernel_runtime.journal.forms import Forms
from kernel_runtime.journal.redact import Wanted, redact
from tests.unit.journal.support import append, printed

path = directory / "journal.db"
secret = "hunter2-battery"
ballast = directory / "ballast"
ballast.write_bytes(b"x" * 900_000)
journal = Journal.create(path)
for n in range(20):
    append(journal, printed(None, os.urandom(3000).hex() + secret + str(n)))
journal.empty_log()

def payloads():
    with JournalReader.open(path) as reader:
        return [payload for row, payload in reader.rows()]

def do():
    if what == "archive":
        return archive(journal, "human:kim", 1)
    return redact(journal, Wanted(reason="x", forms=Forms(secret)), "human:kim", 1)

def left():
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file())

before, files = payloads(), left()
full = directory / "full"
filler = os.open(full, os.O_WRONLY | os.O_CREAT)
try:
    while os.write(filler, b"y" * 4096):
        pass
except OSError:
    os.close(filler)
try:
    do()
    result = {"refused": None}
except DiskFull as error:
    result = {"refused": error.message}
result["same"] = payloads()[: len(before)] == before
result["verified"] = verify(path).ok
full.unlink()
result["files"] = left() == files
ballast.unlink()
do()
journal.compact()
result["done"] = verify(path).ok
held = [file for file in left() if Forms(secret).is_in((directory / file).read_bytes())]
result["gone"] = what == "archive" or held == []
journal.close()
print(json.dumps(result))
"""


@pytest.mark.parametrize("what", ["redact", "archive"])
def test_nothing_is_changed_and_it_can_be_done_when_there_is_room(what: str, tmp_path: Path):
    (line,) = in_own_mounts(FULL, str(tmp_path), what)
    result = json.loads(line)
    assert "no space left" in (result.pop("refused") or "it was done")
    assert result == {"same": True, "verified": True, "files": True, "done": True, "gone": True}
