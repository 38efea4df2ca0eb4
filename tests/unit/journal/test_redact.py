"""What was said can be taken out of a journal; the chain stays, and says so."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel_runtime.errors import NoSuchExecution, NotFound, UsageError
from kernel_runtime.journal import Journal, JournalReader, verify
from kernel_runtime.journal.forms import MARK, Forms
from kernel_runtime.journal.redact import Redacted, Wanted, redact
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Draft
from tests.unit.journal.support import (
    append,
    finished,
    plain_sqlite,
    printed,
    queued,
    started,
    without_triggers,
)

SECRET = "hunter2-zwölf"
WHO = "human:kim"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def told(journal: Journal, text: str = SECRET) -> Redacted:
    done = redact(journal, Wanted(reason="it was printed", forms=Forms(text)), WHO, 1)
    journal.compact()
    return done


def everywhere(journal: Journal) -> None:
    """An execution with the text in each thing that is said of one."""
    append(
        journal,
        queued("a", f"login({SECRET!r})", request=msgspec.json.encode({"source": SECRET}).decode()),
        started("a"),
        printed("a", f"using {SECRET}\n"),
        printed("a", "x" * 5000 + SECRET),
        f.InputRequested(execution_id="a", prompt=f"is it {SECRET}?", password=False),
        f.InputAnswered(execution_id="a", value=SECRET),
        finished(
            "a", "error", error={"ename": "E", "evalue": SECRET, "traceback": [f"\x1b[31m{SECRET}\x1b[0m"]}
        ),
        f.ExecutionObserved(
            execution_id="a",
            names={SECRET: {"how": "bound", "type": "str"}},
            effects=[{"kind": "process", "argv": ["curl", "-u", SECRET]}],
        ),
        f.ClaimMade(claim_id="k", text=f"{SECRET} works", probe="port 1 listens"),
        f.HandoffWritten(version=1, document={"goal": f"log in with {SECRET}"}),
        queued("b", "2 + 2"),
    )


def payloads(path: Path) -> dict[int, bytes]:
    with JournalReader.open(path) as reader:
        return {row[0]: payload for row, payload in reader.rows()}


def files(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.rglob("*") if file.is_file())


def test_it_is_taken_out_wherever_it_stands(path: Path):
    with Journal.create(path) as journal:
        everywhere(journal)
        before = payloads(path)
        chain = [entry.hash for entry in journal.reader().entries()]
        done = told(journal)
        with journal.reader() as reader:
            entries = reader.entries()
            assert [entry.hash for entry in entries[:-1]] == chain
            row = reader.execution("a")
            assert row is not None
            assert row.error == {"ename": "E", "evalue": MARK, "traceback": [f"\x1b[31m{MARK}\x1b[0m"]}
            assert reader.source("a") == f"login('{MARK}')"
            assert [name.name for name in reader.names()] == [MARK]
        assert not Forms(SECRET).is_in(files(path)), "also in the log and in free pages"
    last = entries[-1]
    assert isinstance(last.fact, f.PayloadRedacted)
    assert (last.principal, last.fact.reason, last.fact.how) == (WHO, "it was printed", "text")
    assert last.fact.characters == len(SECRET)
    assert last.fact.seqs == done.seqs == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    after = payloads(path)
    assert {seq for seq in before if before[seq] != after[seq]} == set(done.seqs)
    assert all(SECRET.encode() not in payload for payload in after.values())
    report = verify(path)
    assert report.ok, report.problems
    assert (report.redacted, report.projections, report.chain) == (9, "match", "whole")
    assert [(one.seq, one.principal, one.entries) for one in report.redactions] == [(12, WHO, 9)]


@pytest.mark.parametrize("named", [False, True])
def test_projections_are_what_the_entries_amount_to(path: Path, named: bool):
    """Rows of single executions, where the text is in nothing that others go by; else all of them."""
    with Journal.create(path) as journal:
        for n in range(5):
            fields = {"key": SECRET} if n == 3 else {}
            append(
                journal,
                queued(f"x{n}", f"f({SECRET!r}, {n})", cell_id=f"c{n % 2}", **fields),
                started(f"x{n}"),
            )
            append(
                journal, finished(f"x{n}", "error", error={"ename": "E", "evalue": SECRET, "traceback": []})
            )
            names = {SECRET if named else "df": {"how": "bound", "type": "int", "digest": f"d:{n}"}}
            effects = [{"kind": "process", "argv": [SECRET]}]
            append(journal, f.ExecutionObserved(execution_id=f"x{n}", names=names, effects=effects))
        append(journal, queued("asks"), started("asks"))
        append(journal, f.InputRequested(execution_id="asks", prompt=f"{SECRET}?", password=False))
        told(journal)
        assert verify(path).ok, verify(path).problems
        append(journal, f.InputAnswered(execution_id="asks", value="y"), finished("asks"))
        with journal.reader() as reader:
            assert reader.by_key(SECRET) is None
            row = reader.by_key(MARK)
        assert row is not None
        assert row.execution_id == "x3"
    report = verify(path)
    assert report.ok, report.problems
    assert not Forms(SECRET).is_in(files(path))


def test_every_kind_still_reads_as_what_it_was(path: Path):
    with Journal.create(path) as journal:
        everywhere(journal)
        kinds = [entry.kind for entry in journal.reader().entries()]
        told(journal)
        assert [entry.kind for entry in journal.reader().entries()][:-1] == kinds


def test_the_session_goes_on(path: Path):
    with Journal.create(path) as journal:
        everywhere(journal)
        told(journal)
        append(journal, started("b"), printed("b", SECRET), finished("b"))
        assert told(journal).seqs == [14]
    with Journal.open(path) as journal:
        append(journal, f.PrincipalAttached())
    assert verify(path).ok


def test_the_same_output_again_is_kept_as_it_was_printed(path: Path):
    """Large payloads are kept by their digest. What was redacted must not stand for what is written later."""
    text = "y" * 5000 + SECRET
    with Journal.create(path) as journal:
        append(journal, printed(None, text), printed(None, text))
        assert told(journal).seqs == [1, 2]
        (again,) = append(journal, printed(None, text))
        assert SECRET.encode() in payloads(path)[again]
        assert verify(path).ok
        assert told(journal).seqs == [again]
    assert verify(path).redacted == 3


def test_nothing_found_writes_nothing(path: Path):
    with Journal.create(path) as journal:
        everywhere(journal)
        head = journal.head
        done = told(journal, "somebody else's")
        assert (done.entry, done.seqs) == (None, [])
        assert journal.head == head


def test_two_texts_in_one_entry(path: Path):
    with Journal.create(path) as journal:
        append(journal, printed("a", f"{SECRET} and xyzzy"))
        assert told(journal).seqs == [1]
        assert told(journal, "xyzzy").seqs == [1]
        assert b"[redacted] and [redacted]" in payloads(path)[1]
    report = verify(path)
    assert report.ok
    assert report.redacted == 1


@pytest.mark.parametrize("cuts", [(1,), (5,), (3, 6), (1, 2, 3, 4, 5, 6, 7, 8)])
@pytest.mark.parametrize("together", [True, False])
def test_a_text_that_messages_share(path: Path, cuts: tuple[int, ...], together: bool):
    """Stream text is cut by when somebody looked: a secret may begin in one message and end in another."""
    text = f"a {SECRET} b"
    places = [0, *(2 + cut for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(places)]
    with Journal.create(path) as journal:
        if together:
            messages = [raw for part in parts for raw in printed("a", part).messages]
            append(journal, f.OutputRecorded(execution_id="a", messages=messages))
        else:
            append(journal, *(fact for part in parts for fact in (printed("a", part), printed("b", "other"))))
        done = told(journal)
        said = "".join(
            msgspec.json.decode(raw)["content"]["text"]
            for entry in journal.reader().entries(execution_id="a")
            if isinstance(entry.fact, f.OutputRecorded)
            for raw in entry.fact.messages
        )
    assert said == f"a {MARK} b"
    assert done.shared == 1
    assert verify(path).ok


def test_one_execution_as_a_whole(path: Path):
    with Journal.create(path) as journal:
        everywhere(journal)
        done = redact(journal, Wanted(reason="customer data", execution_id="a"), WHO, 1)
        assert done.seqs == [1, 3, 4, 5, 6, 7]
        with journal.reader() as reader:
            said = reader.entries(execution_id="a")
            row = reader.execution("a")
        assert row is not None
        assert row.outcome == "error"
        assert row.error == {"ename": "E", "evalue": MARK, "traceback": [MARK]}
        shown = [entry.fact for entry in said if isinstance(entry.fact, f.OutputRecorded)]
        assert [msgspec.json.decode(fact.messages[0])["content"] for fact in shown] == [
            {"name": "stdout", "text": MARK}
        ] * 2
    report = verify(path)
    assert report.ok
    assert report.redactions[0].how == "execution a"


def test_one_entry(path: Path):
    data = {
        "type": "display_data",
        "content": {"data": {"image/png": "iVBOR", "text/plain": "x"}, "metadata": {}},
    }
    with Journal.create(path) as journal:
        append(
            journal,
            f.OutputRecorded(messages=[msgspec.Raw(msgspec.json.encode(data))]),
            f.HeapLossTold(lost=1, how="status"),
        )
        redact(journal, Wanted(reason="a face", entry=1), WHO, 1)
        (entry,) = journal.reader().entries(limit=1)
        assert isinstance(entry.fact, f.OutputRecorded)
        assert msgspec.json.decode(entry.fact.messages[0])["content"]["data"] == {"text/plain": MARK}
        with pytest.raises(UsageError, match="entry 2 is a HeapLossTold"):
            redact(journal, Wanted(reason="?", entry=2), WHO, 1)
        with pytest.raises(NotFound, match="no entry 99"):
            redact(journal, Wanted(reason="?", entry=99), WHO, 1)
        with pytest.raises(NoSuchExecution, match="no execution z"):
            redact(journal, Wanted(reason="?", execution_id="z"), WHO, 1)
        assert journal.head == 3
    assert verify(path).ok


def test_what_cannot_be_taken_out_is_told(path: Path):
    with Journal.create(path) as journal:
        created = f.SessionCreated(
            session_id="s", name="n", kernel="python3", cwd=f"/{SECRET}", notebook="n.ipynb", version="1"
        )
        journal.append([Draft(created, f"agent:{SECRET}", 0)], sync=False)
        done = told(journal)
    assert done.entry is None
    assert any("SessionCreated" in what for what in done.left)
    assert any("principal" in what for what in done.left)


def test_a_redaction_that_nobody_wrote_down_is_found(path: Path):
    """Whoever changes a payload and says nothing is no redaction."""
    with Journal.create(path) as journal:
        everywhere(journal)
        told(journal)
    with without_triggers(path) as plain:
        plain.execute('UPDATE entries SET payload = CAST(\'{"execution_id":"a"}\' AS BLOB) WHERE seq = 2')
        plain.execute(
            "UPDATE entries SET payload = CAST(replace(payload, '[redacted]', 'nothing bad') AS BLOB) "
            "WHERE seq = 6"
        )
    report = verify(path)
    assert not report.ok
    assert [problem.seq for problem in report.problems] == [6]
    assert report.problems[0].what == "payload does not fit its digest"


def test_the_triggers_are_back(path: Path):
    with Journal.create(path) as journal:
        everywhere(journal)
        told(journal)
    with plain_sqlite(path) as plain, pytest.raises(Exception, match="never changed"):
        plain.execute("UPDATE entries SET payload = NULL WHERE seq = 1")


def test_a_full_disk_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    with Journal.create(path) as journal:
        everywhere(journal)
        before = payloads(path)

        def no_space(*_args: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as full:
            full.setattr("kernel_runtime.journal.writer.reach", no_space)
            with pytest.raises(OSError, match="No space"):
                told(journal)
        assert payloads(path) == before
        assert verify(path).ok
        assert told(journal).entry is not None
    assert verify(path).ok
