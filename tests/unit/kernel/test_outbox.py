"""Writer and reader of the outbox against each other, in one process."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kernel_runtime.errors import IntegrityFault
from kernel_runtime.kernel import outbox_format as fmt
from kernel_runtime.kernel.outbox import OutboxWriter
from kernel_runtime.kernel.outbox_reader import Gap, OutboxReader, Record, StreamText, WireMessage


def texts(records: Sequence[Record]) -> list[bytes]:
    assert all(isinstance(r, StreamText) for r in records)
    return [r.text for r in records if isinstance(r, StreamText)]


def messages(records: Sequence[Record]) -> list[list[bytes]]:
    return [r.frames for r in records if isinstance(r, WireMessage)]


PARENT = b'{"msg_id":"a"}'
STATUS = b"kernel.x.status"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return tmp_path / "outbox"


@pytest.fixture
def writer(box: Path) -> Iterator[OutboxWriter]:
    writer = OutboxWriter(str(box))
    yield writer
    writer.close()


@pytest.fixture
def reader(box: Path, writer: OutboxWriter) -> Iterator[OutboxReader]:
    reader = OutboxReader(box)
    yield reader
    reader.close()


def rung(reader: OutboxReader) -> bool:
    found, _, _ = select.select([reader], [], [], 0)
    return bool(found)


def segments(box: Path) -> list[str]:
    return sorted(path.name for path in box.glob("*.seg"))


def test_consecutive_text_grows_one_record(writer, reader):
    writer.stream("stdout", PARENT, "a")
    writer.stream("stdout", PARENT, "b\n")
    assert [(r.name, r.parent, r.text) for r in reader.read()] == [("stdout", PARENT, b"ab\n")]


def test_reading_goes_on_inside_a_growing_record(writer, reader, box):
    writer.stream("stdout", PARENT, "one ")
    reader.read()
    writer.stream("stdout", PARENT, "two")
    resumed = OutboxReader(box, reader.position)
    assert texts(resumed.read()) == [b"two"] == texts(reader.read())
    resumed.close()


def test_another_stream_parent_or_message_ends_the_record(writer, reader):
    writer.stream("stdout", PARENT, "a")
    writer.stream("stderr", PARENT, "b")
    writer.stream("stderr", b"{}", "c")
    writer.message("shell", [b"me", b"", b"x"])
    writer.stream("stderr", b"{}", "d")
    records = reader.read()
    assert [type(r) for r in records] == [StreamText, StreamText, StreamText, WireMessage, StreamText]
    assert records[3].channel == "shell"
    assert records[3].frames == [b"me", b"", b"x"]


@pytest.mark.parametrize("size", [0, 1, 255 << 10, 256 << 10, 3 << 20])
def test_a_message_of_any_size(writer, reader, size):
    writer.message("iopub", [b"t", b"x" * size])
    writer.message("stdin", [b"after"])
    first, second = reader.read(1 << 30)
    assert first.frames[1] == b"x" * size
    assert second.frames == [b"after"]


def test_long_text_is_cut_between_characters(writer, reader):
    text = "é€😀" * 200_000
    writer.stream("stdout", PARENT, text)
    parts = texts(reader.read(1 << 30))
    assert len(parts) > 1
    assert "".join(part.decode() for part in parts) == text


def test_surrogates_and_nul_are_kept(writer, reader):
    writer.stream("stdout", PARENT, "a\ud800b\0")
    assert reader.read()[0].text == b"a\\ud800b\0"


def test_collected_segments_go_and_the_rest_stays(writer, reader, box):
    for _ in range(40):
        writer.message("iopub", [b"t", b"x" * 100_000])
    assert len(segments(box)) > 3
    reader.read(1 << 30)
    reader.collected(reader.position)
    assert len(segments(box)) == 1
    with pytest.raises(IntegrityFault, match="collected"):
        OutboxReader(box).read()
    writer.message("iopub", [b"t", b"more"])
    resumed = OutboxReader(box, reader.position)
    assert messages(resumed.read())[0][1] == b"more"
    resumed.close()


def test_collecting_never_passes_what_was_read(writer, reader, box):
    for _ in range(20):
        writer.message("iopub", [b"t", b"x" * 100_000])
    reader.collected(1 << 60)
    assert len(reader.read(1 << 30)) == 20


def test_the_bell_rings_once_per_arming(writer, reader):
    writer.stream("stdout", PARENT, "a")
    assert not rung(reader)
    reader.read()
    reader.arm(1)
    assert not rung(reader)
    writer.stream("stdout", PARENT, "b")
    assert rung(reader)
    reader.drain()
    writer.stream("stdout", PARENT, "c")
    assert not rung(reader)
    reader.arm(1)
    assert rung(reader), "what is there already rings at once"


def test_level_two_is_deaf_to_text_until_there_is_much(writer, reader):
    reader.arm(2)
    writer.stream("stdout", PARENT, "a")
    assert not rung(reader)
    writer.stream("stdout", PARENT, "x" * (2 << 20))
    assert rung(reader)
    reader.drain()
    reader.read(1 << 30)
    reader.arm(2)
    writer.message("iopub", [STATUS])
    assert rung(reader)


def test_over_the_bound_output_is_counted_and_what_is_vital_gets_in(box):
    writer = OutboxWriter(str(box), bound=1 << 20)
    reader = OutboxReader(box)
    text = "x" * 60_000
    kept = sum(writer.stream("stdout", PARENT, text) for _ in range(60))
    assert 0 < kept < 60
    assert writer.message("iopub", [STATUS, b"idle"])
    assert writer.message("shell", [b"reply" * 60_000])
    records = reader.read(1 << 30)
    gap = next(r for r in records if isinstance(r, Gap))
    assert gap.messages == 60 - kept == writer.dropped[0]
    assert sum(len(r.text) for r in records if isinstance(r, StreamText)) + gap.bytes == 60 * 60_000
    assert [r.frames[0] for r in records if isinstance(r, WireMessage)] == [STATUS, b"reply" * 60_000]
    reader.collected(reader.position)
    assert writer.stream("stdout", PARENT, "again")
    assert texts(reader.read())[-1] == b"again"
    reader.close()
    writer.close()


def test_a_slow_reader_that_goes_on_loses_nothing(box):
    writer = OutboxWriter(str(box), bound=1 << 20)
    reader = OutboxReader(box)
    got: list[int] = []
    done = threading.Event()

    def follow() -> None:
        while True:
            last = done.is_set()
            records = reader.read(200_000)
            got.extend(map(len, texts(records)))
            reader.collected(reader.position)
            if last and not records:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    for _ in range(200):
        assert writer.stream("stdout", PARENT, "x" * 60_000)
    done.set()
    thread.join(20)
    assert sum(got) == 200 * 60_000
    assert writer.dropped == (0, 0)
    reader.close()
    writer.close()


def test_a_full_disk_drops_output_keeps_what_is_vital_and_heals(writer, reader, monkeypatch):
    def full(path: str, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(writer, "_allocate", full)
    kept = sum(writer.stream("stdout", PARENT, "x" * 60_000) for _ in range(10))
    assert kept < 10
    for n in range(100):
        assert writer.message("iopub", [STATUS, b"%d" % n])
        assert writer.message("shell", [b"me", b"r" * 1000])
    monkeypatch.undo()
    writer._retry_at = 0.0
    assert writer.stream("stdout", PARENT, "again")
    records = reader.read(1 << 30)
    assert sum(r.messages for r in records if isinstance(r, Gap)) == 10 - kept
    assert len([r for r in records if isinstance(r, WireMessage)]) == 200
    assert texts(records[-1:]) == [b"again"]


def test_a_signal_handler_that_prints_inside_a_write(writer, reader, monkeypatch):
    place: Callable[..., bool] = writer._place

    def interrupted(*args: object, **kwargs: object) -> bool:
        monkeypatch.undo()
        writer.stream("stderr", PARENT, "from the handler")
        return bool(place(*args, **kwargs))

    monkeypatch.setattr(writer, "_place", interrupted)
    writer.stream("stdout", PARENT, "outer")
    assert [(r.name, r.text) for r in reader.read()] == [
        ("stdout", b"outer"),
        ("stderr", b"from the handler"),
    ]


def test_a_fork_child_writes_nothing(writer, reader):
    pid = os.fork()
    if pid == 0:
        wrote = writer.stream("stdout", PARENT, "child") or writer.message("shell", [b"child"])
        os._exit(int(wrote))
    assert os.waitpid(pid, 0)[1] == 0
    writer.stream("stdout", PARENT, "parent")
    assert texts(reader.read()) == [b"parent"]


def test_one_writer_per_directory(writer, box):
    with pytest.raises(ValueError, match="already has a writer"):
        OutboxWriter(str(box))


def test_a_reader_may_come_before_the_writer(box):
    fmt.create(str(box))
    reader = OutboxReader(box)
    assert reader.read() == []
    assert reader.writer_pid == 0
    reader.arm(1)
    writer = OutboxWriter(str(box))
    writer.stream("stdout", PARENT, "first")
    assert rung(reader)
    assert texts(reader.read()) == [b"first"]
    assert reader.writer_pid == os.getpid()
    reader.close()
    writer.close()


def test_no_outbox_is_not_damage(tmp_path):
    with pytest.raises(FileNotFoundError):
        OutboxReader(tmp_path)


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _damaged(box: Path, what: str) -> None:
    first = box / fmt.segment_name(0)
    if what == "control":
        _overwrite(box / "control", 0, b"\xff" * 8)
    elif what == "version":
        _overwrite(box / "control", 8, (99).to_bytes(8, "little"))
    elif what == "short control":
        (box / "control").write_bytes(b"x")
    elif what == "segment header":
        _overwrite(first, 0, b"\xff" * 32)
    elif what == "kind":
        _overwrite(first, fmt.SEGMENT_HEADER, (8 << 8 | 77).to_bytes(8, "little"))
    elif what == "length":
        _overwrite(first, fmt.SEGMENT_HEADER, (1 << 40 | fmt.MESSAGE).to_bytes(8, "little"))
    elif what == "frames":
        _overwrite(first, fmt.SEGMENT_HEADER + 8, (1 << 40).to_bytes(8, "little"))
    elif what == "truncated":
        os.truncate(first, 100)
    else:
        (box / segments(box)[1]).unlink()


@pytest.mark.parametrize(
    "what",
    [
        "control",
        "version",
        "short control",
        "segment header",
        "kind",
        "length",
        "frames",
        "truncated",
        "missing",
    ],
)
def test_damage_is_told_and_never_read_as_output(box, what):
    writer = OutboxWriter(str(box))
    for _ in range(5):
        writer.message("iopub", [b"t", b"x" * 100_000])
    writer.close()
    _damaged(box, what)
    with pytest.raises(IntegrityFault, match="damaged"):
        OutboxReader(box).read(1 << 30)


def test_a_position_that_is_none_is_refused(writer, box):
    writer.message("iopub", [b"t", b"x" * 100])
    with pytest.raises(IntegrityFault):
        OutboxReader(box, fmt.SEGMENT_HEADER + 24)


def test_what_must_stay_free_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mechanism: the supervisor is stopped, a cell prints, and nobody collects on a small disk.

    Right: past what must stay free the text is dropped and counted, and what ends the cell gets in.
    """
    writer = OutboxWriter(str(tmp_path / "outbox"), free=64 << 20)
    disk = os.statvfs(tmp_path)
    # a disk of 1 GiB, a twentieth of which is less than 64 MiB, with 52 MiB free
    fields = list(disk)
    fields[0] = fields[1] = 4096
    fields[2], fields[3], fields[4] = (1 << 30) // 4096, (52 << 20) // 4096, (52 << 20) // 4096
    monkeypatch.setattr("os.statvfs", lambda _: os.statvfs_result(fields))
    text = "x" * 100_000
    for _ in range(10):
        writer.stream("stdout", b"{}", text)
    assert writer.dropped == (0, 0)
    for _ in range(30):
        writer.stream("stdout", b"{}", text * 10)
    assert writer.dropped[0] > 0
    assert writer.message("shell", [b"execute_reply"])
    writer.close()
