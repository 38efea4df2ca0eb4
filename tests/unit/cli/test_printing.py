"""What a reader of stdout gets: everything into a terminal, the last state into a pipe."""

from __future__ import annotations

import os
import pty
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from kernel_runtime.cli.printing import Printer
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import ExecutionStarted, Fact, GapRecorded, OutputRecorded

Message = dict[str, Any]


def stream(text: str, name: str = "stdout") -> Message:
    return {"type": "stream", "content": {"name": name, "text": text}}


def display(text: str, display_id: str | None = None, kind: str = "display_data") -> Message:
    transient = {"display_id": display_id} if display_id else {}
    return {"type": kind, "content": {"data": {"text/plain": text}, "metadata": {}, "transient": transient}}


def clear(*, wait: bool) -> Message:
    return {"type": "clear_output", "content": {"wait": wait}}


def error(*traceback: str) -> Message:
    return {"type": "error", "content": {"ename": "E", "evalue": "v", "traceback": list(traceback)}}


def entry(fact: Fact) -> Entry:
    return Entry(
        seq=1, at=0, mono=0, incarnation=1, principal="system", kind=type(fact).__name__,
        fact=fact, execution_id="e", prev_hash="", hash="",
    )  # fmt: skip


def outputs(*messages: Message) -> Entry:
    return entry(OutputRecorded(messages=[msgspec.Raw(msgspec.json.encode(m)) for m in messages]))


@contextmanager
def collected(fd: int) -> Iterator[list[bytes]]:
    """What is read from a descriptor until its other end is closed."""
    parts: list[bytes] = []

    def read() -> None:
        while True:
            try:
                part = os.read(fd, 65536)
            except OSError:  # how the master of a pty learns that the other side is closed
                return
            if not part:
                return
            parts.append(part)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield parts
    finally:
        thread.join()
        os.close(fd)


def shown(*entries: Entry, opener: Callable[[], tuple[int, int]] = os.pipe) -> tuple[str, str]:
    """stdout and stderr that a reader sees of those entries, to their end."""
    out_read, out_write = opener()
    err_read, err_write = opener()
    with collected(out_read) as out, collected(err_read) as err:
        printer = Printer(out_fd=out_write, err_fd=err_write)
        for one in entries:
            printer.entry(one)
        printer.end()
        os.close(out_write)
        os.close(err_write)
    return b"".join(out).decode(), b"".join(err).decode()


def raw_pty() -> tuple[int, int]:
    import tty

    master, slave = pty.openpty()
    tty.setraw(slave)
    return master, slave


def test_streams_go_where_they_belong() -> None:
    assert shown(outputs(stream("a"), stream("b", "stderr"), stream("c\n"))) == ("ac\n", "b")


def test_other_entries_print_nothing() -> None:
    assert shown(entry(ExecutionStarted(execution_id="e"))) == ("", "")


def test_values_and_displays_are_lines_of_their_own() -> None:
    assert shown(outputs(stream("no newline"), display("42"), display("43")))[0] == "no newline\n42\n43\n"


def test_a_display_without_text_says_what_it_is() -> None:
    message = {"type": "display_data", "content": {"data": {"image/png": "…"}}}
    assert shown(outputs(message))[0] == "<image/png>\n"


def test_a_traceback_goes_to_stderr_without_colours_in_a_pipe() -> None:
    assert shown(outputs(error("\x1b[31mE\x1b[0m", "v"))) == ("", "E\nv\n")


def test_an_error_without_traceback_is_told_by_name() -> None:
    assert shown(outputs(error()))[1] == "E: v\n"


def test_a_gap_is_told_with_its_counts() -> None:
    told = shown(entry(GapRecorded(reason="disk", messages=1200, bytes=5000)))[1]
    assert told == "[krt: 1200 messages, 5000 bytes were not recorded: disk]\n"


def test_c29_a_bar_of_carriage_returns_is_its_last_state_in_a_pipe() -> None:
    bar = [outputs(stream(f"\r{n:5d}/20000")) for n in range(20001)]
    assert shown(*bar, outputs(stream("\ndone\n")))[0] == "20000/20000\ndone\n"


def test_c29_a_bar_that_never_ends_its_line_is_shown_at_the_end() -> None:
    assert shown(outputs(stream("load ")), outputs(stream("\rload 50%")), outputs(stream("\rload 99%")))[
        0
    ] == ("load \rload 99%")


def test_text_after_a_bar_flows_again() -> None:
    assert shown(outputs(stream("\r1\r2\nx\ny\rz\n"), stream("end")))[0] == "2\nx\nz\nend"


def test_windows_line_ends_are_lines() -> None:
    assert shown(outputs(stream("a\r\nb\r\n")))[0] in ("a\nb\n", "a\r\nb\r\n")


def test_c29_of_cleared_outputs_a_pipe_gets_the_last() -> None:
    loop = [outputs(clear(wait=True), stream(f"step {n}\n")) for n in range(1000)]
    assert shown(outputs(stream("start\n")), *loop)[0] == "start\nstep 999\n"


def test_what_follows_a_clear_and_is_long_is_not_held_back_for_ever() -> None:
    text = "x" * 99 + "\n"
    long = [outputs(stream(text)) for _ in range(1000)]
    assert shown(outputs(clear(wait=False)), *long)[0] == text * 1000


def test_an_updated_display_shows_its_last_state_in_a_pipe() -> None:
    updates = [outputs(display(f"{n}%", "bar", "update_display_data")) for n in range(101)]
    assert shown(outputs(display("0%", "bar")), *updates)[0] == "0%\n100%\n"


def test_a_terminal_gets_the_bar_as_it_is() -> None:
    assert shown(outputs(stream("\r1%"), stream("\r2%\n")), opener=raw_pty)[0] == "\r1%\r2%\n"


def test_c29_a_terminal_gets_cleared_outputs_wiped() -> None:
    got = shown(outputs(stream("a\nb\n"), clear(wait=True), stream("c\n")), opener=raw_pty)[0]
    assert got == "a\nb\n\r\x1b[2A\x1b[Jc\n"


def test_a_terminal_gets_an_updated_display_redrawn() -> None:
    got = shown(outputs(display("0%", "bar"), display("9%", "bar", "update_display_data")), opener=raw_pty)[0]
    assert got == "0%\n\r\x1b[1A\x1b[J9%\n"


def test_a_terminal_gets_the_colours() -> None:
    assert shown(outputs(error("\x1b[31mE\x1b[0m")), opener=raw_pty)[1] == "\x1b[31mE\x1b[0m\n"


def test_c30_a_line_of_100_mb_passes_through() -> None:
    piece = outputs(stream("x" * 1_000_000))
    assert len(shown(*[piece] * 100)[0]) == 100_000_000


def test_c30_a_million_lines_pass_through() -> None:
    piece = outputs(stream("".join(f"{n}\n" for n in range(10_000))))
    assert shown(*[piece] * 100)[0].count("\n") == 1_000_000


def test_surrogates_are_escaped_and_never_stop_the_rest() -> None:
    raw = msgspec.Raw(b'{"type":"stream","content":{"name":"stdout","text":"a\\\\ud800b"}}')
    assert shown(entry(OutputRecorded(messages=[raw])), outputs(stream("c")))[0] == "a\\ud800bc"


def test_a_message_that_cannot_be_read_is_said_and_the_rest_shown() -> None:
    broken = entry(OutputRecorded(messages=[msgspec.Raw(b'{"type":"stream","content":{"text":7}}')]))
    out, err = shown(broken, outputs(stream("c")))
    assert (out, "cannot be shown" in err) in (("c", True), ("7c", False))


def test_a_reader_that_left_is_told_to_the_caller() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        with pytest.raises(BrokenPipeError):
            Printer(out_fd=write, err_fd=write).entry(outputs(stream("x")))
    finally:
        os.close(write)
