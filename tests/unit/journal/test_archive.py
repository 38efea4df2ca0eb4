"""Old entries move into a sealed file: everything reads as before, and both are verified together."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kernel_runtime.errors import JournalCorrupt, StorageFault, UsageError
from kernel_runtime.journal import Journal, JournalReader, verify
from kernel_runtime.journal.archive import Archived, archive
from kernel_runtime.journal.forms import Forms
from kernel_runtime.journal.redact import Wanted, redact
from kernel_runtime.journal.segments import remove_strays
from kernel_runtime.model import facts as f
from tests.unit.journal.support import append, finished, plain_sqlite, printed, queued, run, started

SECRET = "hunter2-zwölf"
WHO = "human:kim"
MUCH = Random(5).randbytes(300_000).hex()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "alice"
    place.mkdir()
    return place / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    """Ten executions, one of which printed much and the secret, and one that has not ended."""
    with Journal.create(path) as journal:
        for n in range(10):
            run(journal, f"x{n}")
            append(journal, f.ExecutionObserved(execution_id=f"x{n}", names={f"n{n}": {"how": "bound"}}))
        append(journal, printed("x9", MUCH + SECRET), queued("live"), started("live"))
        yield journal


def sealed(journal: Journal, **options: object) -> Archived:
    done = archive(journal, WHO, 1, **options)  # type: ignore[arg-type]
    journal.compact()
    return done


def log(path: Path) -> list[tuple[object, ...]]:
    with JournalReader.open(path) as reader:
        return [(entry.seq, entry.kind, entry.hash, f.encode(entry.fact)) for entry in reader.entries()]


def test_everything_reads_as_before(journal: Journal, path: Path):
    journal.compact()
    before, size = log(path), path.stat().st_size
    done = sealed(journal)
    assert (done.first, done.last) == (1, 51)
    assert log(path)[: len(before)] == before
    assert path.stat().st_size < size / 2
    report = verify(path)
    assert report.ok, report.problems
    assert (report.projections, report.chain) == ("match", "whole")
    assert [(one.first, one.last, one.state) for one in report.archive] == [(1, 51, "whole")]
    journal.rebuild()
    assert verify(path).ok


def test_a_segment_can_be_read_by_any_sqlite(journal: Journal, path: Path):
    done = sealed(journal, before=20)
    with plain_sqlite(Path(done.file)) as plain:
        assert plain.execute("SELECT count(*), min(seq), max(seq) FROM entries").fetchone() == (19, 1, 19)
    assert Path(done.file).stat().st_mode & 0o777 == 0o400


def test_one_after_the_other(journal: Journal, path: Path, tmp_path: Path):
    before = log(path)
    assert sealed(journal, before=11).last == 10
    assert sealed(journal, before=31, directory=tmp_path / "elsewhere").first == 11
    assert log(path)[: len(before)] == before
    assert [one.file for one in verify(path).archive] == [
        str(path.parent / "archive" / "alice-1-10.db"),
        str(tmp_path / "elsewhere" / "alice-11-30.db"),
    ]
    assert verify(path).ok
    for wrong in (11, 31, 52, 99):
        with pytest.raises(UsageError, match="nothing to seal"):
            archive(journal, WHO, 1, before=wrong if wrong != 52 else 53)
    append(journal, finished("live"))
    assert sealed(journal).first == 31


def test_a_segment_that_is_not_there(journal: Journal, path: Path):
    """Its error names it; chain, sources and outcomes stand without it, and nothing else claims to."""
    done = sealed(journal)
    hidden = Path(done.file).rename(path.parent / "hidden.db")
    with journal.reader() as reader:
        assert reader.source("x3") == "x = 1"
        assert len(reader.executions()) == 11
        with pytest.raises(StorageFault, match=r"alice-1-51\.db is not there") as caught:
            reader.entries(kinds=["OutputRecorded"])
        assert done.file in caught.value.hint
        report = verify(path)
        assert not report.ok
        assert (report.chain, report.projections, report.entries) == ("whole", "unknown", journal.head)
        assert [problem.where for problem in report.problems] == ["archive"]
        assert report.archive[0].state == "missing"
        append(journal, finished("live"))
        hidden.rename(done.file)
        assert reader.entries(kinds=["OutputRecorded"])
    assert verify(path).ok


def test_a_segment_that_is_another_one(journal: Journal, path: Path):
    done = Path(sealed(journal).file)
    data = bytearray(done.read_bytes())
    at = data.index(b'x4\\n"')
    data[at + 1] ^= 1
    done.chmod(0o600)
    done.write_bytes(data)
    report = verify(path)
    assert not report.ok
    assert report.archive[0].state == "differs"
    assert any(problem.what == "payload does not fit its digest" for problem in report.problems)
    done.write_bytes(b"SQLite format 3\0" + bytes(200))
    assert not verify(path).ok
    with journal.reader() as reader, pytest.raises(JournalCorrupt):
        reader.entries(kinds=["OutputRecorded"])


def test_a_text_is_taken_out_of_segments_too(journal: Journal, path: Path):
    first = sealed(journal, before=11)
    done = sealed(journal)
    taken = redact(journal, Wanted(reason="it was printed", forms=Forms(SECRET)), WHO, 1)
    journal.compact()
    assert taken.segments == [str(path.parent / "archive" / "alice-11-51.2.db")]
    assert Path(first.file).exists()
    assert not Path(done.file).exists()
    assert not any(
        Forms(SECRET).is_in(file.read_bytes()) for file in path.parent.rglob("*") if file.is_file()
    )
    report = verify(path)
    assert report.ok, report.problems
    assert report.redacted == 1


def test_what_a_killed_process_left_is_removed(journal: Journal, path: Path):
    """A segment that the journal does not know of may hold what is taken out of the journal later."""
    stray = path.parent / "archive" / "alice-1-3.db"
    done = sealed(journal, before=11)
    shutil.copy(done.file, stray)
    with journal.reader() as reader:
        assert remove_strays(reader.connection, path) == [stray]
        assert remove_strays(reader.connection, path) == []
    assert verify(path).ok


def test_another_file_of_that_name_is_left_alone(journal: Journal, tmp_path: Path):
    other = tmp_path / "to" / "alice-1-10.db"
    other.parent.mkdir()
    other.write_text("a picture")
    with pytest.raises(UsageError, match="is there already"):
        sealed(journal, before=11, directory=other.parent)
    assert other.read_text() == "a picture"


def test_the_same_large_output_after_its_like_was_sealed(journal: Journal, path: Path):
    sealed(journal)
    append(journal, printed("x9", MUCH + SECRET))
    before = log(path)
    append(journal, finished("live"))
    sealed(journal)
    assert log(path)[: len(before)] == before
    assert verify(path).ok


def test_no_room_changes_nothing(journal: Journal, path: Path, tmp_path: Path):
    before = log(path)
    (tmp_path / "to").write_text("no directory")
    with pytest.raises(StorageFault):
        sealed(journal, directory=tmp_path / "to")
    assert log(path) == before
    assert verify(path).ok
    assert sealed(journal).first == 1
