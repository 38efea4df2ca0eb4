"""Evidence from sessions as they are: at work, dead, set back; bundled, signed, anchored and verified."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.cli import root
from kernel_runtime.cli.frame import run
from kernel_runtime.client import session_files
from kernel_runtime.errors import CallerError
from kernel_runtime.journal import JournalReader
from tests.support import eventually, processes_of
from tests.unit.evidence.support import allowed, make_key
from tests.unit.journal.support import plain_sqlite


class Krt:
    """The command line in this process: a new one costs half a second, and says the same."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """What it prints, errors too; asserts its exit status."""
        self._capfd.readouterr()
        code = run(root, list(arguments))
        told = self._capfd.readouterr()
        assert code == status, (arguments, code, told)
        return told.out + told.err

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", status=status))


@pytest.fixture
def krt(capfd: pytest.CaptureFixture[str]) -> Krt:
    return Krt(capfd)


@pytest.fixture
def session(krt_home: Path, tmp_path: Path) -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:planner", cwd=str(tmp_path)) as attached:
        try:
            yield attached
        finally:
            attached.stop()


def test_a_session_at_work(krt: Krt, session: kr.Session, tmp_path: Path) -> None:
    """Its bundle is of one moment; what comes later is in the next one."""
    session.execute("print('first')", timeout=60)
    running = session.submit("import time\nfor n in range(10**6):\n    print(n)\n    time.sleep(0.001)")
    eventually(lambda: running.refresh().outputs, timeout=30, what="output")
    made = krt.json("bundle", "alice", str(tmp_path / "a.zip"))
    assert (made["session"], made["signed"]) == ("alice", None)
    found = krt.json("verify", str(tmp_path / "a.zip"))
    assert (found["ok"], found["head"], found["head_hash"]) == (True, made["head"], made["head_hash"])
    assert (found["notebook"], found["projections"]) == ("match", "none")
    assert "is there already" in krt("bundle", "alice", str(tmp_path / "a.zip"), status=4)
    later = krt.json("bundle", "alice", str(tmp_path / "a.zip"), "--force")
    assert later["head"] > made["head"]
    session.interrupt()
    running.wait(timeout=60)


def test_a_session_whose_processes_were_killed(krt: Krt, krt_home: Path, tmp_path: Path) -> None:
    """A bundle starts nothing, and tells of a death that nobody has written down as little as the journal."""
    with kr.attach("alice", create=True) as session:
        session.execute("x = 1", timeout=60)
    for who in processes_of(krt_home):
        process.signal_process(who, signal.SIGKILL)
    eventually(lambda: not processes_of(krt_home), what="all gone")
    krt("bundle", "alice", str(tmp_path / "a.zip"))
    assert processes_of(krt_home) == []
    told = krt("verify", str(tmp_path / "a.zip")).splitlines()
    assert told[-2:] == ["nothing was changed", "notebook: match"]
    assert processes_of(krt_home) == []


def test_signed_and_anchored(
    krt: Krt, session: kr.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"AUTHOR": "a", "COMMITTER": "a"}.items():
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    commit = ["git", "-C", str(repository), "commit", "-q", "--allow-empty", "-m", "m"]
    subprocess.run(commit, check=True)
    key, anchors, signers = make_key(tmp_path), str(tmp_path / "anchors"), tmp_path / "signers"
    signers.write_text(allowed(key))
    session.execute("x = 1", timeout=60)

    signed = krt.json("sign", "alice", "--key", str(key), "--as", "human:auditor")
    in_file = krt.json("anchor", "alice", "--file", anchors)
    in_git = krt.json("anchor", "alice", "--git", str(repository))
    with kr.attach("bob", create=True) as other:
        witnessed = krt.json("anchor", "alice", "--session", "bob")
        (entry,) = [entry for entry in other.follow(timeout=0) if entry.kind == "HeadWitnessed"]
        assert (entry.fact.session_id, entry.fact.seq) == (session.session_id, witnessed["seq"])  # type: ignore[attr-defined]
        other.stop()
    told = {entry.seq: entry for entry in session.follow(timeout=0) if entry.kind.startswith("Head")}
    assert {seq: entry.kind for seq, entry in told.items()} == {
        signed["entry"]: "HeadSigned",
        in_file["entry"]: "HeadAnchored",
        in_git["entry"]: "HeadAnchored",
        witnessed["entry"]: "HeadAnchored",
    }
    assert told[signed["entry"]].principal == "human:auditor"
    assert signed["seq"] < in_file["seq"] < in_git["seq"] < witnessed["seq"]

    made = krt.json("bundle", "alice", str(tmp_path / "a.zip"), "--key", str(key))
    assert made["signed"] == signed["key"]
    for source in (anchors, str(repository), "bob"):
        for what in ("alice", str(tmp_path / "a.zip")):
            found = krt.json("verify", what, "--anchor", source, "--allowed-signers", str(signers))
            assert found["ok"]
            assert found["signatures"][0]["signer"] == "alice@example.com"
    said = krt("verify", "alice", "--anchor", anchors)
    assert "1 anchors of this session" in said
    assert f"signed by somebody, key {signed['key']}" in said
    signers.write_text("")
    for what in ("alice", str(tmp_path / "a.zip")):
        found = krt.json("verify", what, "--allowed-signers", str(signers), status=9)
        assert [one["where"] for one in found["problems"]] == ["signature"]


def test_a_journal_that_was_set_back(krt: Krt, krt_home: Path, tmp_path: Path) -> None:
    """An older copy is a whole journal, and with the lock file gone only the anchor tells."""
    with kr.attach("alice", create=True) as session:
        session.execute("x = 1", timeout=60)
        session.stop()
    eventually(lambda: not processes_of(krt_home), what="its journal is closed")
    journal = session_files.load("alice").journal
    with plain_sqlite(journal) as plain, plain_sqlite(tmp_path / "older.db") as older:
        plain.backup(older)
    with kr.attach("alice") as session:
        session.execute("x = 2", accept=True, timeout=60)
        head = krt.json("anchor", "alice", "--file", str(tmp_path / "anchors"))["seq"]
        session.stop()
    eventually(lambda: not processes_of(krt_home), what="its journal is closed")
    assert krt.json("verify", "alice", "--anchor", str(tmp_path / "anchors"))["ok"]
    shutil.copy(tmp_path / "older.db", journal)
    for name in ("journal.lock", "journal.db-wal", "journal.db-shm"):
        journal.with_name(name).unlink(missing_ok=True)
    assert krt.json("verify", "alice")["ok"]
    krt.json("bundle", "alice", str(tmp_path / "a.zip"))
    for what in ("alice", str(tmp_path / "a.zip")):
        assert krt.json("verify", what)["ok"]
        found = krt.json("verify", what, "--anchor", str(tmp_path / "anchors"), status=9)
        assert [(one["where"], one["seq"]) for one in found["problems"]] == [("anchor", head)]
        assert "was cut off" in found["problems"][0]["what"]


def test_what_is_refused(krt: Krt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    krt("new", "alice")
    for arguments, status, told in (
        (("bundle", "none", "a.zip"), 3, "no session none"),
        (("bundle", "alice", "none/a.zip"), 4, "cannot write"),
        (("bundle", "alice", "a.zip", "--key", "none"), 2, "ssh-keygen did not sign"),
        (("verify", "none"), 3, "no session none"),
        (("verify", "./none"), 3, "no session and no bundle ./none"),
        (("verify", "."), 2, "cannot be read"),
        (("verify", "alice", "--anchor", "none"), 2, "anchors in none cannot be read"),
        (("verify", "alice", "--allowed-signers", "none"), 2, "signers in none cannot be read"),
        (("anchor", "alice"), 2, "an anchor has one place"),
        (("anchor", "alice", "--file", "f", "--session", "bob"), 2, "an anchor has one place"),
        (("anchor", "alice", "--session", "bob"), 3, "no session bob"),
        (("anchor", "alice", "--session", "alice"), 2, "cannot witness itself"),
        (("anchor", "alice", "--git", "."), 2, "git"),
        (("sign", "alice", "--key", "none"), 2, "ssh-keygen did not sign"),
    ):
        assert told in krt(*arguments, status=status)
    session_files.create("unused")
    Path("anchors").write_text("{}")
    assert "there is no journal" in krt("verify", "unused", "--anchor", "anchors", status=9)
    Path("anchors").unlink()
    assert [one.name for one in tmp_path.iterdir()] == []
    krt("bundle", "alice", "a.zip")
    data = bytearray(Path("a.zip").read_bytes())
    data[len(data) // 2] ^= 1
    Path("a.zip").write_bytes(bytes(data))
    assert "DAMAGED container: the file's digest" in krt("verify", "a.zip", status=9)
    Path("a.zip").write_text("text")
    assert krt.json("verify", "a.zip", status=9)["problems"][0]["where"] == "container"
    krt("stop", "alice")


def test_the_supervisor_journals_only_what_is_true(krt: Krt, session: kr.Session, tmp_path: Path) -> None:
    """A client that is wrong, or lies, cannot have it written down that an entry was signed or anchored."""
    key = make_key(tmp_path)
    signed = krt.json("sign", "alice", "--key", str(key))
    with JournalReader.open(session_files.load("alice").journal) as reader:
        (entry,) = reader.entries(kinds=("HeadSigned",))
        document = json.loads(next(reader.rows(entry.seq - 1))[1])
        head = reader.head()
    line = session.coroutines._line
    for op, change, told in (
        ("head_anchored", {"where": "file", "reference": "f", "hash": "0" * 64}, "no entry"),
        ("head_anchored", {"where": "file", "reference": "f", "seq": 10**6}, "no entry"),
        ("head_signed", {"hash": "0" * 64}, "no entry"),
        ("head_signed", {"seq": signed["seq"] - 1}, "no entry"),
        ("head_signed", {"signature": "x"}, "does not hold"),
        ("head_signed", {"key": "ssh-ed25519 AAAA"}, "another key"),
        ("head_signed", {"namespace": "git"}, "another key"),
        ("head_signed", {"seq": "x"}, "no HeadSigned"),
        ("head_witnessed", {"name": 1}, "no HeadWitnessed"),
    ):
        with pytest.raises(CallerError, match=told):
            session.run(line.request(op, {"document": {**document, **change}}))
    with JournalReader.open(session_files.load("alice").journal) as reader:
        assert reader.head() == head
