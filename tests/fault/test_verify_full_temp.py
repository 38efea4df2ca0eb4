"""A journal is checked while the disk for temporary files is full."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.journal.support import in_own_mounts

CHECK = """
import json, os, subprocess, sys
from pathlib import Path
directory = Path(sys.argv[1])
journal_place, temporary = directory / "journal", directory / "temporary"
for place in (journal_place, temporary):
    place.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(temporary)], check=True)
os.environ["SQLITE_TMPDIR"] = str(temporary)
from kernel_runtime.errors import DiskFull
from kernel_runtime.journal import Journal, connection, verify
from tests.unit.journal.support import append, finished, queued, started

connection._SCRATCH_CACHE = 64  # KiB: what fits into memory needs no disk
path = journal_place / "journal.db"
with_many = Journal.create(path)
for n in range(3000):
    append(with_many, queued(f"e{n}", "x" * 200), started(f"e{n}"), finished(f"e{n}"))
with_many.close()
try:
    report = verify(path)
    result = {"refused": None, "ok": report.ok}
except DiskFull as error:
    result = {"refused": error.message}
os.environ["SQLITE_TMPDIR"] = str(journal_place)
result["with_space"] = verify(path).ok
print(json.dumps(result))
"""


def test_a_journal_is_not_called_damaged_because_the_temporary_disk_is_full(tmp_path: Path) -> None:
    """Checking folds the entries into a temporary database. When that finds no space, nothing is known of the
    journal, and least of all that it is damaged.
    """
    (line,) = in_own_mounts(CHECK, str(tmp_path))
    result = json.loads(line)
    assert "no temporary space left" in (result["refused"] or str(result))
    assert result["with_space"]
