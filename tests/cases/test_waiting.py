"""Waiting for people: W25 W26."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import zstandard

import kernel_runtime as kr
from kernel_runtime.errors import NotBlocked
from tests.cases.conftest import Attach
from tests.cases.support import blocked, entries, stopped
from tests.support import eventually

SECRET = "correct-horse-battery-staple"


def test_w25_whoever_is_there_answers(shared: kr.Session, attach: Attach) -> None:
    """The client that ran `input()` leaves. The prompt is the session's, not a connection's: the next
    client sees it and answers once; a second answer is refused.
    """
    with kr.attach(shared.name, principal="agent:gone") as leaving:
        x = leaving.execute("name = input('your name? '); name")
        assert x.status == "blocked"
    other = attach(shared.name, principal="human:b")
    assert other.attached["state"] == "blocked"
    seen = other.execution(x.execution_id)
    assert seen.blocked is not None
    assert (seen.blocked["on"], seen.blocked["prompt"]) == ("input", "your name? ")
    assert other.truth.why["blocked"]["prompt"] == "your name? "
    assert other.answer("Ada") == x.execution_id
    with pytest.raises(NotBlocked):
        other.answer("Bob")
    done = other.wait(x.execution_id, timeout=30)
    assert (done.outcome, done.text) == ("ok", "'Ada'")
    answered = entries(shared, "InputAnswered", execution=x)
    assert [(e.principal, getattr(e.fact, "value", None)) for e in answered] == [("human:b", "Ada")]


def test_w25_end_of_input(shared: kr.Session) -> None:
    """EOF instead of an answer: the cell gets EOFError."""
    x = shared.execute("input()")
    shared.answer(eof=True)
    x.wait(timeout=30)
    assert x.error is not None
    assert (x.outcome, x.error.ename) == ("error", "EOFError")


def test_w25_client_that_may_not_answer(shared: kr.Session) -> None:
    """A client without stdin gets an error that says so, and nobody waits for ever."""
    x = shared.execute("input('? ')", allow_stdin=False, timeout=30)
    assert x.error is not None
    assert (x.outcome, x.error.ename) == ("error", "StdinNotImplementedError")
    assert "input" in x.error.evalue


def test_w26_password_is_in_no_file(krt_home: Path) -> None:
    """The answer to getpass passes through sockets and the kernel's memory only: no file of ours holds it
    while the session lives (WAL and outbox too), nor when it has stopped; nor what is packed in them.
    """
    with stopped("w26") as session:
        session.execute("1 / 0")  # loads what formats tracebacks, so that the interrupt need not wait for it
        session.execute("open_answer = input('open? ')")
        session.answer("visible-answer")
        x = session.execute("import getpass; secret = getpass.getpass('pw? ')")
        assert x.blocked is not None
        assert (x.blocked["on"], x.blocked["prompt"]) == ("password", "pw? ")
        session.answer(SECRET)
        assert x.wait(timeout=30).outcome == "ok"
        assert session.execute(f"len(secret) == {len(SECRET)}").text == "True"
        roots = [krt_home, Path(os.environ["KRT_RUNTIME_DIR"])]
        assert holding(roots, b"visible-answer"), "the search finds what is there"
        assert holding(roots, SECRET.encode()) == []
        # asked again and interrupted: no other path writes it either
        x = session.submit("getpass.getpass('again? ')")
        eventually(lambda: blocked(session, x), what="blocked")
        assert session.interrupt().ended
    assert holding(roots, SECRET.encode()) == []


def holding(roots: list[Path], needle: bytes) -> list[str]:
    """Files under `roots` that hold these bytes, as they are or in a zstd frame."""
    found = []
    for root in roots:
        for path in root.rglob("*"):
            data = b""
            with contextlib.suppress(FileNotFoundError):  # a draft that has become the file meanwhile
                data = path.read_bytes() if path.is_file() else b""
            if needle in data or any(needle in text for text in unpacked(data)):
                found.append(str(path))
    return found


def unpacked(data: bytes) -> list[bytes]:
    """What the zstd frames in `data` hold."""
    found = []
    at = data.find(zstandard.FRAME_HEADER)
    while at >= 0:
        with contextlib.suppress(zstandard.ZstdError):  # four bytes that happen to look like a frame
            found.append(zstandard.ZstdDecompressor().decompressobj().decompress(data[at:]))
        at = data.find(zstandard.FRAME_HEADER, at + 1)
    return found
