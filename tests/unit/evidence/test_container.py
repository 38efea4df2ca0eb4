"""What ZIP files can do and bundles cannot: each trick is refused with a sentence, its digest repaired."""

from __future__ import annotations

import io
import json
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_runtime.evidence import standalone
from kernel_runtime.evidence.standalone import Member
from tests.unit.evidence.support import closed, container, members_of, repaired, rows_of, write


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("bundle"))


def problems(directory: Path, data: bytes) -> str:
    target = directory / "forged.zip"
    target.write_bytes(data)
    found = standalone.verify(str(target))
    assert not found["ok"]
    return "\n".join(f"{one['where']}: {one['what']}" for one in found["problems"])


def rezipped(members: dict[str, bytes], **how: int) -> bytes:
    """As the standard library writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = how.get("method", zipfile.ZIP_DEFLATED)
            info.external_attr = how.get("attributes", 0o100600 << 16)
            archive.writestr(info, content)
        archive.comment = b"x" * 71
    return closed(buffer.getvalue()[:-71])


def test_what_unzips_is_not_yet_a_bundle(bundle: Path, tmp_path: Path):
    members = members_of(bundle)
    for data in (
        rezipped(members),
        rezipped(members, method=zipfile.ZIP_STORED),
        rezipped(members, attributes=(stat.S_IFLNK | 0o777) << 16),
    ):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
        assert "its end is not exactly a bundle's" in problems(tmp_path, data)


def _named(members: dict[str, bytes], names: list[str]) -> bytes:
    """Members in this order, under these names."""
    contents = list(members.values())
    data, made = b"", []
    for number, name in enumerate(names):
        content = contents[number % len(contents)]
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = deflate.compress(content) + deflate.flush()
        made.append(Member(name, zlib.crc32(content), len(packed), len(content), len(data)))
        data += standalone.local_header(made[-1]) + packed
    return closed(data + standalone.directory(made, len(data)))


@pytest.mark.parametrize(
    "change",
    [
        lambda names: [*names, "manifest.json"],
        lambda names: [*names[:-1], names[0]],
        lambda names: names[:-1],
        lambda names: names[::-1],
        lambda names: ["../EVIL.md", *names[1:]],
        lambda names: ["/EADME.txt", *names[1:]],
        lambda names: [*names, "more.txt"],
        lambda names: [],
    ],
    ids=["doubled", "doubled-other", "missing", "order", "above", "absolute", "more", "none"],
)
def test_other_members(bundle: Path, tmp_path: Path, change: Callable[[list[str]], list[str]]):
    members = members_of(bundle)
    data = _named(members, change(list(members)))
    assert "with other or more members" in problems(tmp_path, data)


def test_bytes_that_belong_to_nothing(bundle: Path, tmp_path: Path):
    members = members_of(bundle)
    whole = container(members)
    end = whole.index(b"PK\1\2")
    with bundle.open("rb") as file:
        made = standalone.read_directory(file)
    before = closed(b"#!/bin/sh\n" + whole[:-71])
    moved = [one._replace(offset=one.offset + 10) for one in made]
    before_and_told = closed(b"#!/bin/sh\n" + whole[:end] + standalone.directory(moved, end + 10))
    between = closed(whole[:end] + b"hidden" + standalone.directory(made, end + 6))
    behind = closed(whole[:-71] + b"PK")
    twice = closed(whole + whole[:-71])
    assert "its end is not exactly" in problems(tmp_path, before)
    assert "stands before README.txt is not its header" in problems(tmp_path, before_and_told)
    assert "bytes that belong to no member" in problems(tmp_path, between)
    assert "its end is not exactly" in problems(tmp_path, behind)
    assert "its end is not exactly" in problems(tmp_path, twice)
    assert "its end is not exactly" in problems(tmp_path, b"")
    assert "its end is not exactly" in problems(tmp_path, whole[-71:])


@pytest.mark.parametrize(
    "at,layout,value",
    [
        (4, "<H", 0x0314),  # made by an older version
        (8, "<H", 1),  # encrypted, it says
        (8, "<H", 8),  # its sizes stand behind it
        (10, "<H", 0),  # stored
        (12, "<H", 1),  # a time
        (20, "<L", 5),  # sizes beside those of ZIP64
        (32, "<H", 1),  # a comment
        (38, "<L", (stat.S_IFLNK | 0o777) << 16),
        (42, "<L", 0),  # an offset beside that of ZIP64
    ],
)
def test_fields_of_the_table(bundle: Path, tmp_path: Path, at: int, layout: str, value: int):
    whole = bytearray(container(members_of(bundle))[:-71])
    struct.pack_into(layout, whole, whole.index(b"PK\1\2") + at, value)
    assert "its end is not exactly" in problems(tmp_path, closed(bytes(whole)))


@pytest.mark.parametrize("at", [4, 6, 8, 10, 14, 18, 26, 28, 40, 42, 50])
def test_fields_of_a_header(bundle: Path, tmp_path: Path, at: int):
    whole = bytearray(container(members_of(bundle))[:-71])
    whole[at] ^= 1
    assert "what stands before README.txt is not its header" in problems(tmp_path, closed(bytes(whole)))


def _with_member(members: dict[str, bytes], name: str, packed: bytes, size: int, crc: int) -> bytes:
    data, made = b"", []
    for one, content in members.items():
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        stream = packed if one == name else deflate.compress(content) + deflate.flush()
        member = Member(one, zlib.crc32(content), len(stream), len(content), len(data))
        made.append(member._replace(size=size, crc=crc) if one == name else member)
        data += standalone.local_header(made[-1]) + stream
    return closed(data + standalone.directory(made, len(data)))


@pytest.mark.parametrize("name", ["journal.jsonl", "notebook.ipynb", "manifest.json"])
def test_what_unpacks_to_more_than_it_says(bundle: Path, tmp_path: Path, name: str):
    """A bomb is given up at the size that it admits."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = deflate.compress(bytes(9 << 20)) + deflate.flush()
    told = problems(tmp_path, _with_member(members_of(bundle), name, bomb, 1000, 0))
    assert f"{name}: has not the 1000 bytes that it says" in told


def test_what_admits_to_be_too_long(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    members = members_of(bundle)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = deflate.compress(bytes(9 << 20)) + deflate.flush()
    told = problems(tmp_path, _with_member(members, "manifest.json", bomb, 1 << 40, 0))
    assert "manifest.json: is longer than any" in told
    monkeypatch.setattr(standalone, "_LONGEST", 4 << 20)
    told = problems(tmp_path, _with_member(members, "journal.jsonl", bomb, 9 << 20, 0))
    assert "journal.jsonl: has a line that is longer than any entry" in told


def test_streams_that_end_wrongly(bundle: Path, tmp_path: Path):
    members = members_of(bundle)
    content = members["notebook.ipynb"]
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    stream = deflate.compress(content) + deflate.flush()
    size, crc = len(content), zlib.crc32(content)
    for packed, told in (
        (stream[:-1], "bytes that it says"),
        (stream + b"\0", "not what its size and checksum say"),
        (b"\xff" + stream[1:], "cannot be unpacked"),
        (b"", "bytes that it says"),
    ):
        assert told in problems(tmp_path, _with_member(members, "notebook.ipynb", packed, size, crc))
    assert "not what its size" in problems(
        tmp_path, _with_member(members, "notebook.ipynb", stream, size, crc ^ 1)
    )
    assert "not what its size" in problems(
        tmp_path, _with_member(members, "notebook.ipynb", stream, size + 1, crc)
    )


@pytest.mark.parametrize(
    "line,told",
    [
        (b"[]\n", "line 1 is not written as an entry is"),
        (b"{}\n", "line 1 is not written as an entry is"),
        (b"1\n", "line 1 is no entry"),
        (b"\n", "line 1 is no entry"),
        (b"\xff\n", "line 1 is no entry"),
        (b"[" * 100_000 + b"\n", "line 1 is no entry"),
        (b"9" * 5000 + b"\n", "line 1 is no entry"),
        (b'[1,1,1,1,"p","K",null,"d","p","h","x",0]\n', "line 1 is not written"),
        (b'[true,1,1,1,"p","K",null,"d","p","h","x"]\n', "line 1 is not written"),
        (b'[1.0,1,1,1,"p","K",null,"d","p","h","x"]\n', "line 1 is not written"),
        (b'[1, 1,1,1,"p","K",null,"d","p","h","x"]\n', "line 1 is not written"),
        (b'[1,1,1,1,"\\u0070","K",null,"d","p","h","x"]\n', "line 1 is not written"),
        (b'[1,1,1,1,"\\ud800","K",null,"d","p","h","x"]\n', "line 1 is no entry"),
        (b'[1,1,1,1,"p","K",null,"d","p","h","x"]', "line 1 is no entry"),
    ],
)
def test_lines_that_are_no_entries(bundle: Path, tmp_path: Path, line: bytes, told: str):
    members = members_of(bundle)
    changed = container({**members, standalone.JOURNAL: line + members[standalone.JOURNAL]})
    assert told in problems(tmp_path, changed)


def test_a_chain_of_nothing(bundle: Path, tmp_path: Path):
    assert problems(tmp_path, repaired(members_of(bundle), [])) == "entries: there are none"


@pytest.mark.parametrize("kind", ["SessionCreated", "GapRecorded", *standalone.NOTABLE])
def test_payloads_that_are_not_of_their_kind(bundle: Path, tmp_path: Path, kind: str):
    """Whatever stands there, the verifier says so and goes on."""
    members = members_of(bundle)
    strange: list[object] = [None, [], {}, "x", 1, float("inf"), "\ud800\x1b", [[]], {"x": []}]
    fields = (
        "seq",
        "hash",
        "signature",
        "seqs",
        "digests",
        "replacements",
        "messages",
        "bytes",
        "session_id",
    )
    payloads = ["", "x", "[" * 10_000, *(json.dumps(value) for value in strange)]
    payloads += [json.dumps(dict.fromkeys(fields, value)) for value in strange]
    payloads += [json.dumps({**dict.fromkeys(fields, "x"), "seq": 1, "hash": value}) for value in strange]
    for payload in payloads:
        rows = rows_of(members)
        at = 0 if kind == "SessionCreated" else 9
        rows[at][5], rows[at][10] = kind, payload
        (tmp_path / "forged.zip").write_bytes(repaired(members, rows))
        found = standalone.verify(str(tmp_path / "forged.zip"), None, "x")
        assert not found["ok"]
        assert json.dumps(found)
        assert "\x1b" not in "".join(standalone.in_words(found))


@pytest.mark.parametrize(
    "manifest",
    [b"", b"[]", b"null", b'{"kernel_runtime":1,"notable":[{"kind":"HeadSigned","seq":[]}]}', b"[" * 10**5],
)
def test_manifests_that_are_none(bundle: Path, tmp_path: Path, manifest: bytes):
    changed = container({**members_of(bundle), standalone.MANIFEST: manifest})
    assert "manifest.json: is not what the bundle holds" in problems(tmp_path, changed)
