"""Anchors: where they are written down, and what is found by them."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

from kernel_runtime.errors import MissingPackage, ReadOnlyStorage, StorageFault, UsageError
from kernel_runtime.evidence import anchors, standalone
from kernel_runtime.evidence.anchors import Head
from kernel_runtime.journal import Journal
from kernel_runtime.model.facts import HeadWitnessed
from tests.unit.evidence.support import SESSION, anchor_of, create, write
from tests.unit.journal.support import append

HEAD = Head(session_id=SESSION, name="alice", seq=3, hash="ab" * 32)


def told(text: str) -> list[tuple[str, int, str]]:
    chain = standalone.Chain()
    kept = standalone.read_anchors(text, chain)
    assert chain.problems == []
    return kept


def git(repository: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "repository"
    path.mkdir()
    for name, value in {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }.items():
        monkeypatch.setenv(name, value)
    git(path, "init", "-q")
    return path


def test_a_line_of_a_file(tmp_path: Path):
    path = tmp_path / "anchors"
    where = anchors.to_file(path, HEAD, "human:é\u2028")
    assert where == str(path)
    line = json.loads(path.read_text())
    assert (line["session_id"], line["name"], line["seq"], line["hash"]) == (SESSION, "alice", 3, "ab" * 32)
    assert line["by"] == "human:é\u2028"
    assert line["at"].endswith("+00:00")
    assert told(anchors.read(str(path))) == [(SESSION, 3, "ab" * 32)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_is_not_continued(tmp_path: Path):
    path = tmp_path / "anchors"
    path.write_text('{"session_id": "x", "se')
    anchors.to_file(path, HEAD, "human:a")
    chain = standalone.Chain()
    assert standalone.read_anchors(anchors.read(str(path)), chain) == [(SESSION, 3, "ab" * 32)]
    assert [one["what"] for one in chain.problems] == ["line 1 is no anchor"]


def test_many_at_once(tmp_path: Path):
    path = tmp_path / "anchors"
    heads = [Head(session_id="s" * 5000, name="n", seq=n, hash="h") for n in range(40)]
    threads = [threading.Thread(target=anchors.to_file, args=(path, head, "human:a")) for head in heads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seq for _session, seq, _hash in told(anchors.read(str(path)))) == list(range(40))


def test_places_that_take_no_line(tmp_path: Path):
    with pytest.raises(StorageFault, match="cannot write"):
        anchors.to_file(tmp_path / "none" / "anchors", HEAD, "human:a")
    with pytest.raises((ReadOnlyStorage, StorageFault), match="cannot write"):
        anchors.to_file(Path("/proc/version"), HEAD, "human:a")


def test_notes_of_a_repository(repository: Path):
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    where = anchors.to_git(repository, HEAD, "human:a")
    commit = git(repository, "rev-parse", "HEAD").strip()
    assert where == f"{commit} in {repository / '.git'}"
    anchors.to_git(repository, Head(session_id=SESSION, name="alice", seq=5, hash="cd" * 32), "human:a")
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    anchors.to_git(repository / ".git", Head(session_id="other", name="bob", seq=1, hash="x"), "human:a")
    found = told(anchors.read(str(repository)))
    assert sorted(found) == [(SESSION, 3, "ab" * 32), (SESSION, 5, "cd" * 32), ("other", 1, "x")]
    # what git itself shows is a file of anchors as well
    shown = git(repository, "notes", "--ref=kernel-runtime", "show", commit)
    assert [seq for _session, seq, _hash in told(shown)] == [3, 5]


def test_repositories_that_take_no_note(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UsageError, match=r"git rev-parse in .* failed"):
        anchors.to_git(repository, HEAD, "human:a")  # no commit
    with pytest.raises(UsageError, match="not a git repository"):
        anchors.to_git(tmp_path, HEAD, "human:a")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPackage, match="git is not installed"):
        anchors.to_git(repository, HEAD, "human:a")


def test_what_another_journal_witnessed(tmp_path: Path):
    with create(tmp_path / "journal.db") as journal:
        append(journal, *(HeadWitnessed(session_id="s", name="n", seq=n, hash=f"h{n}") for n in range(3)))
    found = told(anchors.read(str(tmp_path / "journal.db")))
    assert found == [("s", 0, "h0"), ("s", 1, "h1"), ("s", 2, "h2")]


@pytest.mark.parametrize("what", ["none", "binary", "long"])
def test_files_that_hold_none(tmp_path: Path, what: str):
    path = tmp_path / what
    if what != "none":
        path.write_bytes(b"\xff" if what == "binary" else bytes(17 << 20))
    with pytest.raises(UsageError):
        anchors.read(str(path))


@pytest.mark.parametrize(
    "line", ["x", "1", "[]", "{}", '{"session_id":"s","seq":[],"hash":""}', '{"seq":Infinity}', "[" * 100_000]
)
def test_lines_that_are_none_are_damage(tmp_path: Path, line: str):
    path = write(tmp_path)
    found = standalone.verify(str(path), line)
    assert found["problems"][0]["what"] == "line 1 is no anchor"


def test_a_bundle_is_held_against_its_anchors(tmp_path: Path):
    path = write(tmp_path)
    with Journal.open(tmp_path / "journal.db") as journal, journal.reader() as reader:
        all_of = [(entry.seq, entry.hash) for entry in reader.entries()]
    text = "\n".join(anchor_of(*one) for one in all_of)
    found = standalone.verify(str(path), text)
    assert found["ok"]
    assert found["notes"] == [f"{len(all_of)} anchors of this session, the last of entry {len(all_of)}"]
    for wrong, what in (
        (anchor_of(5, "0" * 64), "is another one than was anchored"),
        (anchor_of(0, "0" * 64), "is another one than was anchored"),
        (anchor_of(-1, "0" * 64), "is another one than was anchored"),
        (anchor_of(99, "0" * 64), f"was anchored, and the chain ends at {len(all_of)}: it was cut off"),
        ("", f"there is none of session {SESSION}"),
        (text.replace(SESSION, "other"), f"there is none of session {SESSION}"),
    ):
        assert [one["what"] for one in standalone.verify(str(path), wrong)["problems"]] == [what]
