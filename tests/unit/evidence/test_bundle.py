"""Bundles: what is in them, that they are of one moment, and that half of one is never left."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from kernel_runtime.errors import DiskFull, IntegrityFault, JournalCorrupt, NotFound, Refused, StorageFault
from kernel_runtime.evidence import bundle, check, restore, standalone
from kernel_runtime.journal import Journal, JournalReader, verify
from kernel_runtime.journal.archive import archive
from kernel_runtime.journal.forms import Forms
from kernel_runtime.journal.redact import Wanted, redact
from kernel_runtime.model.facts import OutputRecorded
from kernel_runtime.notebook.render import NotebookBuilder
from tests.unit.evidence.support import (
    ENVIRONMENT,
    container,
    create,
    journal_of_everything,
    make_key,
    members_of,
    redacted,
    repaired,
    rows_of,
    with_manifest,
    write,
)
from tests.unit.journal.support import append, in_own_mounts, printed, queued, run, without_triggers
from tests.unit.notebook.sessions import load, source_of


def test_any_zip_reader_opens_it(tmp_path: Path):
    path = write(tmp_path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert tuple(archive.namelist()) == standalone.MEMBERS
        manifest = json.loads(archive.read("manifest.json"))
        notebook = load(archive.read("notebook.ipynb"))
        environments = [json.loads(line) for line in archive.read("environment.json").splitlines()]
    assert [source_of(cell) for cell in notebook["cells"]][1:3] == ["x = 1", "x = 1"]
    told = msgspec.to_builtins(ENVIRONMENT)
    assert [one["environment"]["fingerprint"] for one in environments] == [told["fingerprint"]] * 2
    assert [(one["seq"], one["incarnation"]) for one in environments] == [(3, 1), (13, 2)]
    assert manifest["session"] == {"session_id": "5e55-10", "name": "alice", "kernel": "python3", "cwd": "/"}
    assert manifest["gaps"] == {"entries": 1, "messages": 2, "bytes": 70}
    assert [one["kind"] for one in manifest["notable"]] == [
        "HeadAnchored",
        "HeadWitnessed",
        "PayloadRedacted",
    ]


def test_the_entries_are_those_of_the_journal(tmp_path: Path):
    path = write(tmp_path)
    rows = rows_of(members_of(path))
    with JournalReader.open(tmp_path / "journal.db") as reader:
        there = [[*row[:7], *row[8:], payload.decode()] for row, payload in reader.rows()]
    assert rows == there


def test_the_same_journal_gives_the_same_bytes(tmp_path: Path):
    path = write(tmp_path)
    before = path.read_bytes()
    made = bundle.write(tmp_path / "journal.db", tmp_path / "other.zip")
    assert (tmp_path / "other.zip").read_bytes() == before
    assert (made.sha256, made.bytes) == (standalone.sha256(before), len(before))
    assert made.head_hash == standalone.verify(str(path))["head_hash"]


# -- the verifier


def test_the_verifier_in_it_is_the_one_here_and_needs_nothing(tmp_path: Path):
    path = write(tmp_path)
    copy = members_of(path)["krt_verify.py"]
    assert copy == Path(standalone.__file__).read_bytes()
    program = tmp_path / "krt_verify.py"
    program.write_bytes(copy)
    # -I -S: no site-packages, nothing of ours
    argv = [sys.executable, "-I", "-S", str(program), str(path)]
    done = subprocess.run([*argv, "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (0, standalone.verify(str(path)))
    told = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    assert told.startswith("session alice: ")
    assert told.endswith("nothing was changed\n")
    anchors = tmp_path / "anchors"
    anchors.write_text('{"session_id":"5e55-10","seq":99,"hash":"x"}\n')
    done = subprocess.run([*argv, "--anchor", str(anchors)], capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert "DAMAGED anchor 99: was anchored, and the chain ends at" in done.stdout
    for missing in ([*argv, "--allowed-signers", "/none"], [*argv[:-1], "/none"]):
        done = subprocess.run(missing, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr[:14]) == (2, "cannot be read")


def test_the_verifier_can_be_read_in_one_sitting():
    """Python 3.8 compiles it, it imports the standard library alone, and has less than 400 lines of code."""
    text = Path(standalone.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    blank = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    assert len(code) < 400


def test_what_people_read_cannot_drive_their_terminal(tmp_path: Path):
    members = members_of(write(tmp_path))
    rows = rows_of(members)
    rows[0][10] = rows[0][10].replace("alice", "\\u001b[2J\\u202e")
    (tmp_path / "forged.zip").write_bytes(repaired(members, rows))
    told = "\n".join(standalone.in_words(standalone.verify(str(tmp_path / "forged.zip"))))
    assert "\x1b" not in told
    assert "\u202e" not in told


# -- one moment


def test_a_session_that_works_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """All members are of one state: what is written while the entries pass through is not in any."""
    with create(tmp_path / "journal.db") as journal:
        run(journal, "a")
        head = journal.head
        rows = JournalReader.rows

        def busy(reader: JournalReader, after: int = 0) -> Iterator[tuple[Sequence[Any], bytes]]:
            for number, row in enumerate(rows(reader, after)):
                run(journal, f"b{number}", "ok")
                yield row
            append(journal, ENVIRONMENT)

        monkeypatch.setattr(JournalReader, "rows", busy)
        made = bundle.write(tmp_path / "journal.db", tmp_path / "alice.zip")
        assert journal.head > head
    assert (made.head, made.entries) == (head, head)
    found = check.check_bundle(tmp_path / "alice.zip", None, None)
    assert (found["ok"], found["head"], found["notebook"]) == (True, head, "match")
    members = members_of(tmp_path / "alice.zip")
    assert len(load(members["notebook.ipynb"])["cells"]) == 1
    assert len(members["environment.json"].splitlines()) == 1


@pytest.mark.slow
def test_outputs_of_twenty_megabytes(tmp_path: Path):
    text = "".join(f"line {number} é{'.' * 2000}\n" for number in range(10_000))
    with create(tmp_path / "journal.db") as journal:
        run(journal, "a")
        append(journal, printed("a", text))
        png = {
            "type": "display_data",
            "content": {"data": {"image/png": "iVBOR" * 1_000_000}, "metadata": {}},
        }
        append(journal, OutputRecorded(messages=[msgspec.Raw(msgspec.json.encode(png))], execution_id="a"))
    made = bundle.write(tmp_path / "journal.db", tmp_path / "alice.zip")
    found = check.check_bundle(tmp_path / "alice.zip", None, None)
    assert (found["ok"], found["notebook"]) == (True, "match")
    rows = rows_of(members_of(tmp_path / "alice.zip"))
    assert len(rows[-2][10]) > 20_000_000
    assert json.loads(rows[-2][10])["messages"][0]["content"]["text"] == text
    assert made.bytes < len(text) / 2


# -- what is refused


def test_a_file_that_is_there(tmp_path: Path):
    path = write(tmp_path)
    path.write_text("mine")
    with pytest.raises(Refused, match=r"alice\.zip is there already"):
        bundle.write(tmp_path / "journal.db", path)
    assert path.read_text() == "mine"
    bundle.write(tmp_path / "journal.db", path, force=True)
    assert standalone.verify(str(path))["ok"]
    assert sorted(one.name for one in tmp_path.iterdir() if not one.name.startswith("journal")) == [
        "alice.zip"
    ]


def test_no_journal(tmp_path: Path):
    with pytest.raises(NotFound, match="no journal"):
        bundle.write(tmp_path / "journal.db", tmp_path / "alice.zip")


def test_a_journal_that_was_changed(tmp_path: Path):
    journal = journal_of_everything(tmp_path / "journal.db")
    with without_triggers(journal) as plain:
        plain.execute("UPDATE entries SET principal = 'agent:b' WHERE seq = 5")
    with pytest.raises(JournalCorrupt, match=r"entry 5 of .* is not what was written: hash does not fit"):
        bundle.write(journal, tmp_path / "alice.zip")
    assert not (tmp_path / "alice.zip").exists()
    with without_triggers(journal) as plain:
        plain.execute("UPDATE entries SET principal = 'agent:a', payload = x'ff' WHERE seq = 5")
    with pytest.raises(JournalCorrupt, match="entry 5 of"):
        bundle.write(journal, tmp_path / "alice.zip")
    assert not [one for one in tmp_path.iterdir() if not one.name.startswith("journal")]


_FULL = """
import os, subprocess, sys
from pathlib import Path
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.evidence import anchors, bundle

journal, disk, size = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
(disk / "anchors").write_bytes(b'{"begun')
try:
    bundle.write(journal, disk / "alice.zip")
    print("written")
except KernelRuntimeError as error:
    print(type(error).__name__, error.message.split(" ", 3)[:3])
print(sorted(os.listdir(disk)))
with open(disk / "fill", "wb", buffering=0) as fill:
    try:
        while fill.write(bytes(4096)):
            pass
    except OSError:
        pass
head = anchors.Head(session_id="s" * 9000, name="n", seq=1, hash="h")
try:
    anchors.to_file(disk / "anchors", head, "human:a")
    print("anchored")
except KernelRuntimeError as error:
    print(type(error).__name__)
print((disk / "anchors").read_bytes())
"""


def test_a_full_disk(tmp_path: Path):
    """An error that says so, and neither half a bundle nor half an anchor."""
    journal = tmp_path / "journal.db"
    with create(journal) as made:
        append(made, *(printed("a", Random(number).randbytes(2000).hex()) for number in range(100)))
    disk = tmp_path / "disk"
    disk.mkdir()
    assert in_own_mounts(_FULL, str(journal), str(disk), "64k") == [
        f"{DiskFull.__name__} ['no', 'space', 'left']",
        "['anchors']",
        "DiskFull",
        "b'{\"begun'",
    ]


# -- redactions


def test_a_text_that_was_taken_out(tmp_path: Path):
    path = write(tmp_path)
    path.write_bytes(redacted(path))
    found = standalone.verify(str(path))
    assert found["ok"]
    (told,) = [one for one in found["notable"] if one["kind"] == "PayloadRedacted"]
    assert (told["reason"], told["seqs"]) == ("a token", 1)
    assert "PayloadRedacted by agent:a" in "\n".join(standalone.in_words(found))


@pytest.mark.parametrize("change", ["more", "other-entry", "not-named"])
def test_what_was_taken_out_is_what_the_journal_says(tmp_path: Path, change: str):
    path = write(tmp_path)
    path.write_bytes(redacted(path))
    members = members_of(path)
    rows = rows_of(members)
    if change == "more":
        rows[5][10] = rows[5][10].replace("[redacted]", "[redacted] ")
    else:
        rows[4 if change == "other-entry" else 8][10] = rows[5][10]
    path.write_bytes(repaired(members, rows))
    found = standalone.verify(str(path))
    seq = {"more": 6, "other-entry": 5, "not-named": 9}[change]
    assert {"where": "payloads", "what": "payload does not fit its digest", "seq": seq} in found["problems"]


def test_a_journal_that_was_redacted_and_archived(tmp_path: Path):
    """A bundle needs no segment beside it, and holds nothing of what was taken out."""
    path = journal_of_everything(tmp_path / "journal.db")
    with Journal.open(path) as journal:
        run(journal, "secret", source="login('hunter2-zwölf')", incarnation=2)
        append(journal, printed("secret", "hunter2-zwölf " * 1000), incarnation=2)
        redact(journal, Wanted(reason="a password", forms=Forms("hunter2-zwölf")), "human:kim", 2)
        sealed = archive(journal, "human:kim", 2)
        run(journal, "later", incarnation=2)
    made = bundle.write(path, tmp_path / "alice.zip")
    found = check.check_bundle(tmp_path / "alice.zip", None, None)
    assert (found["ok"], found["notebook"], found["entries"]) == (True, "match", made.entries)
    assert "zwölf".encode() not in b"".join(members_of(tmp_path / "alice.zip").values())
    with restore.open_bundle(tmp_path / "alice.zip") as back, JournalReader.open(path) as reader:
        assert [entry.hash for entry in back.entries()] == [entry.hash for entry in reader.entries()]
        assert back.source("secret") == reader.source("secret")
    (tmp_path / sealed.file).unlink()
    with pytest.raises(StorageFault, match="archive"):
        bundle.write(path, tmp_path / "alice.zip", force=True)
    assert check.check_bundle(tmp_path / "alice.zip", None, None)["ok"]


# -- back to a journal


def test_a_journal_comes_back(tmp_path: Path):
    path = write(tmp_path)
    path.write_bytes(redacted(path))
    with restore.open_bundle(path) as reader:
        restored = reader.path
        rows = [[*row[:7], *row[8:], payload.decode()] for row, payload in reader.rows()]
        assert [row.execution_id for row in reader.executions()] == list("abcdefgh")
        report = verify(restored)
    assert rows == rows_of(members_of(path))
    assert report.projections == "match"
    assert not restored.exists()


def test_a_changed_bundle_does_not_come_back(tmp_path: Path):
    path = write(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(IntegrityFault, match="was changed"), restore.open_bundle(path):
        pytest.fail("it was opened")
    with pytest.raises(NotFound, match="no bundle"), restore.open_bundle(tmp_path / "none"):
        pytest.fail("it was opened")


# -- what the verifier alone does not see


@pytest.mark.parametrize("name", ["notebook.ipynb", "README.txt", "krt_verify.py"])
def test_members_under_a_manifest_made_anew(tmp_path: Path, name: str):
    """Without a signature only a kernel-runtime finds these: it renders, and has its own copies."""
    path = write(tmp_path)
    members = members_of(path)
    path.write_bytes(container(with_manifest({**members, name: members[name].replace(b"1", b"2", 1)})))
    assert standalone.verify(str(path))["ok"]
    found = check.check_bundle(path, None, None)
    assert (found["ok"], [one["where"] for one in found["problems"]]) == (False, [name])
    assert found["notebook"] == ("differs" if name == "notebook.ipynb" else "match")


def test_what_another_version_rendered_is_not_judged(tmp_path: Path):
    path = write(tmp_path)
    members = members_of(path)
    told = json.loads(members[standalone.MANIFEST])
    summary = {key: told[key] for key in ("session", "head", "entries", "incarnations", "gaps", "notable")}
    other = standalone.manifest_bytes("99.0", summary, told["members"])
    path.write_bytes(container({**members, standalone.MANIFEST: other}))
    found = check.check_bundle(path, None, None)
    assert (found["ok"], found["notebook"]) == (True, "unchecked")
    assert "made by kernel-runtime 99.0" in found["notes"][-1]


def test_a_long_journal_is_rendered_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path)
    monkeypatch.setattr(check, "RENDERED", 100)
    found = check.check_bundle(path, None, None)
    assert (found["ok"], found["notebook"]) == (True, "unchecked")
    assert "--notebook does so" in found["notes"][-1]
    assert check.check_bundle(path, None, None, notebook=True)["notebook"] == "match"


def test_a_signed_bundle(tmp_path: Path):
    """ssh-keygen alone checks it too, against the manifest that names every member's digest."""
    key = make_key(tmp_path)
    path = write(tmp_path, key=key)
    members = members_of(path)
    (tmp_path / "sig").write_bytes(members[standalone.SIGNATURE])
    kind, public, *_comment = key.with_name("key.pub").read_text().split()
    (tmp_path / "signers").write_text(f"a@b {kind} {public}\n")
    argv = ["ssh-keygen", "-Y", "verify", "-n", "kernel-runtime-bundle", "-I", "a@b"]
    argv += ["-f", str(tmp_path / "signers"), "-s", str(tmp_path / "sig")]
    done = subprocess.run(argv, input=members[standalone.MANIFEST], capture_output=True, check=False)
    assert done.returncode == 0
    with Journal.open(tmp_path / "journal.db") as journal:
        assert journal.head == json.loads(members[standalone.MANIFEST])["head"]["seq"]


def test_the_notebook_passes_through_cell_by_cell(tmp_path: Path):
    """And is byte for byte what a builder that keeps all cells makes."""
    path = journal_of_everything(tmp_path / "journal.db")
    with Journal.open(path) as journal:
        shown = {
            "type": "display_data",
            "content": {"data": {"text/plain": "1"}, "transient": {"display_id": "d"}},
        }
        updated = {**shown, "type": "update_display_data"}
        for name, message in (("i", shown), ("j", updated)):
            run(journal, name, incarnation=2)
            raw = msgspec.Raw(msgspec.json.encode(message))
            append(journal, OutputRecorded(messages=[raw], execution_id=name), incarnation=2)
        run(journal, "again", cell_id="c-a", incarnation=2)
        append(journal, queued("silent", silent=True), queued("waits"), incarnation=2)
    create(tmp_path / "empty.db").close()
    for journal_path in (path, tmp_path / "empty.db"):
        with JournalReader.open(journal_path) as reader:
            builder = NotebookBuilder(reader)
            builder.refresh()
            parts = list(NotebookBuilder(reader).stream())
            assert b"".join(parts) == builder.document()
            assert len(parts) == len(builder.cells) + 1
