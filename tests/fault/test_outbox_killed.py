"""SIGKILL and KeyboardInterrupt anywhere in a real writer: what is read is well-formed and complete."""

from __future__ import annotations

import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernel_runtime.kernel.outbox import OutboxWriter
from kernel_runtime.kernel.outbox_reader import OutboxReader, StreamText, WireMessage
from tests.support import eventually

_WRITER = """
import sys
from kernel_runtime.kernel.outbox import OutboxWriter
w = OutboxWriter(sys.argv[1], segment=16384)
n = 0
while True:
    w.stream("stdout", b"{}", f"{n}\\n")
    n += 1
    if n % 7 == 0:
        w.message("iopub", [b"t", str(n).encode(), b"x" * (n % 30000)])
        sys.stdout.write(f"{n}\\n"); sys.stdout.flush()   # n lines are in, says the writer
"""

_INTERRUPTED = """
import signal, sys
from kernel_runtime.kernel import outbox
w = outbox.OutboxWriter(sys.argv[1], segment=16384)
hits = prints = raised = 0
printing = False
def inside(frame):
    while frame is not None:
        if frame.f_code.co_filename == outbox.__file__:
            return True
        frame = frame.f_back
    return False
def handler(signum, frame):
    global hits, prints, raised, printing
    hits += 1
    if printing or not inside(frame):
        return
    if hits % 2:
        printing = True
        w.stream("stderr", b"{}", "h\\n")
        printing = False
        prints += 1
    else:
        raised += 1
        raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.00037)
n = 0
while hits < 4000:
    try:
        w.stream("stdout", b"{}", f"{n} {'y' * (n % 50)}\\n")
        n += 1
        if n % 5 == 0:
            w.message("iopub", [b"t", str(n).encode(), b"x" * (n % 3000)])
    except KeyboardInterrupt:
        n += 1   # that one is in, or not: never half
signal.setitimer(signal.ITIMER_REAL, 0)
w.stream("stdout", b"{}", "end\\n")
print(prints, raised)
"""


def _numbers(text: str) -> list[int]:
    return [int(line) for line in text.split("\n") if line]


@pytest.mark.parametrize("after", [20, 137, 500, 1111, 2503, 4000])
def test_a_killed_writers_lines_are_all_there(tmp_path: Path, after: int):
    box = tmp_path / "o"
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(box)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        said = 0
        while said < after:
            said = int(writer.stdout.readline())
    finally:
        writer.kill()
        writer.wait()
    rest, _ = writer.communicate()
    said = max([said, *_numbers(rest)])
    reader = OutboxReader(box)
    lines, marks = [], []
    while records := reader.read(50_000):
        for record in records:
            if isinstance(record, StreamText):
                lines.append(record.text.decode())
            else:
                assert isinstance(record, WireMessage)
                marks.append(int(record.frames[1]))
                assert len(record.frames[2]) == marks[-1] % 30000
        if len(lines) % 2:  # another reader goes on where this one stopped
            position = reader.position
            reader.close()
            reader = OutboxReader(box, position)
    numbers = _numbers("".join(lines))
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= said
    assert marks == list(range(7, 7 * len(marks) + 1, 7))
    assert len(marks) >= said // 7
    reader.close()


@pytest.mark.timeout(60)
def test_signals_between_any_two_calls_leave_it_well_formed(tmp_path: Path):
    box = tmp_path / "o"
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, str(box)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reader = OutboxReader(box)
    out: list[str] = []
    err: list[str] = []
    marks: list[int] = []
    for record in reader.read(1 << 30):
        if isinstance(record, StreamText):
            (out if record.name == "stdout" else err).append(record.text.decode())
        else:
            assert isinstance(record, WireMessage)
            marks.append(int(record.frames[1]))
            assert len(record.frames[2]) == marks[-1] % 3000
    reader.close()
    lines = "".join(out).splitlines()
    assert lines.pop() == "end"
    numbers = []
    for line in lines:
        number, _, rest = line.partition(" ")
        numbers.append(int(number))
        assert rest == "y" * (int(number) % 50)
    assert numbers == sorted(set(numbers)), "in order, none twice, none torn"
    assert marks == sorted(set(marks))
    prints, raised = map(int, done.stdout.split())
    assert prints > 100
    assert raised > 100
    assert set("".join(err).splitlines()) == {"h"}
    assert len("".join(err)) >= 2 * prints, "what a handler prints is never lost"


@pytest.mark.timeout(60)
def test_no_ring_is_lost_between_arming_and_waiting(tmp_path: Path):
    box = tmp_path / "o"
    writer = OutboxWriter(str(box))
    reader = OutboxReader(box)
    total = 3000
    ready = threading.Event()

    def write() -> None:
        for n in range(total):
            ready.wait()
            ready.clear()
            writer.message("iopub", [b"t", b"%d" % n])

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    while seen < total:
        ready.set()
        reader.arm(1)
        found, _, _ = select.select([reader], [], [], 5)
        assert found, f"no ring for message {seen}"
        reader.drain()
        eventually(lambda: reader.head > reader.position, 30, "the message that rang")
        seen += len(reader.read())
    thread.join()
    reader.close()
    writer.close()
