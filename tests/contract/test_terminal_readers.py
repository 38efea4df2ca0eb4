"""Who waits for a terminal, and what it shows: real programs on a real pty, seen through /proc."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kernel_runtime.supervisor.tty import readers, screen
from tests.support import eventually

pytestmark = pytest.mark.slow

NOBODY = 0
NOBODY_UID = 65534

POLL = "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()"
SELECT = "import select; select.select([0], [], [])"
EPOLL = "import select; e = select.epoll(); e.register(0, select.EPOLLIN); e.poll()"
OTHER_END = "import os, select; r, w = os.pipe(); select.select([r], [], [])"
SERVER = """
import select, socket
s = socket.create_server(("127.0.0.1", 0))
select.select([0, s], [], [])
"""
UNIX = """
import select, socket
a, b = socket.socketpair()
select.select([0, a], [], [])
"""
DEV_TTY = "open('/dev/tty').readline()"
ASIDE = "import os; os.setsid(); os.read(0, 1)"
THREAD = """
import threading, time
threading.Thread(target=lambda: open('/dev/tty').readline()).start()
time.sleep(600)
"""


class Program(NamedTuple):
    pid: int
    terminal: str
    master: int
    """the other end"""
    foster: int
    """the leader of its session, and its parent"""

    def look(self, *, kernel: int = NOBODY) -> readers.Look:
        return readers.look(self.terminal, kernel=kernel, foster=self.foster)

    def seen(self) -> list[tuple[int, str]]:
        return [(r.pid, r.how) for r in self.look().readers]


@contextmanager
def program(*argv: str) -> Iterator[Program]:
    """A program in a session that has a terminal of its own, as a kernel is."""
    master, slave = os.openpty()
    terminal = os.ttyname(slave)
    told, tell = os.pipe()
    foster = os.fork()
    if foster == 0:
        try:
            os.login_tty(slave)
            pid = os.fork()
            if pid == 0:
                os.execv(argv[0], argv)
            os.write(tell, str(pid).encode())
            os.close(tell)
            os.waitpid(pid, 0)
        finally:
            os._exit(0)
    os.close(slave)
    os.close(tell)
    with open(told) as line:
        pid = int(line.read())
    try:
        yield Program(pid, terminal, master, foster)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(foster, 0)
        os.close(master)


def python(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source)


@pytest.mark.parametrize(
    "argv, how",
    [
        (("/bin/cat",), "reads"),
        (python(DEV_TTY), "reads"),
        (python(THREAD), "reads"),
        (python(POLL), "listens"),
        (python(SELECT), "listens"),
        (python(EPOLL), "listens"),
        (python(UNIX), "listens"),
    ],
    ids=["stdin", "dev-tty", "in-a-thread", "poll", "select", "epoll", "with-a-local-socket"],
)
def test_who_waits_is_seen(argv: tuple[str, ...], how: str) -> None:
    with program(*argv) as at:
        eventually(lambda: at.seen() == [(at.pid, how)], what=f"{at.pid} {how}")


def test_a_process_that_left_the_session_and_kept_the_terminal_is_seen() -> None:
    parent = (
        f"import os, time\nif os.fork() == 0:\n    {ASIDE.replace('; ', chr(10) + '    ')}\ntime.sleep(600)"
    )
    with program(*python(parent)) as at:
        found = eventually(at.seen, what="the child")
        assert [how for _, how in found] == ["reads"]
        assert found[0][0] != at.pid
        os.kill(found[0][0], signal.SIGKILL)


@pytest.mark.parametrize("source", [OTHER_END, SERVER], ids=["another-pipe", "serves-a-network"])
def test_who_waits_for_something_else_is_not_blocked(source: str) -> None:
    with program(*python(source)) as at:
        eventually(
            lambda: Path(f"/proc/{at.pid}/wchan").read_text().startswith(("poll", "do_select")), what="waits"
        )
        assert at.seen() == []
        assert at.look().others == 1
        assert at.look(kernel=at.pid).others == 0


def test_who_may_not_be_looked_into_is_hidden() -> None:
    """`su` is another user's process while it asks: of it only the terminal's silence tells."""
    as_nobody = ("/usr/bin/setpriv", f"--reuid={NOBODY_UID}", "--clear-groups") if os.getuid() == 0 else ()
    with program(*as_nobody, "/usr/bin/su", "-c", "true") as at:
        eventually(lambda: not screen.settings(at.terminal).echo, what="asks for a password")
        eventually(lambda: seen_as_nobody(at) == [(at.pid, "hidden")], what="hidden")


def seen_as_nobody(at: Program) -> list[tuple[int, str]]:
    """As `Program.seen`, by a process that is not root's."""
    if os.getuid() != 0:
        return at.seen()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setresuid(NOBODY_UID, NOBODY_UID, NOBODY_UID)
        os.write(write, json.dumps(at.seen()).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as told:
        found = told.read()
    os.waitpid(pid, 0)
    return [(who, how) for who, how in json.loads(found)]


def test_who_was_answered_reads_no_longer() -> None:
    with program("/bin/sh", "-c", "read x; sleep 600") as at:
        eventually(lambda: at.seen() == [(at.pid, "reads")], what="reads")
        os.write(at.master, b"yes\n")
        eventually(lambda: at.seen() == [], what="reads no longer")


def test_settings_are_told_and_mended() -> None:
    with program("/bin/sh", "-c", "stty -echo; read x; stty raw; sleep 600") as (_, terminal, master, _):
        eventually(lambda: screen.settings(terminal) == screen.Settings(echo=False, canonical=True))
        os.write(master, b"secret\n")
        eventually(lambda: not screen.settings(terminal).canonical, what="raw")
        screen.make_sane(terminal)
        assert screen.settings(terminal).sane


@pytest.mark.parametrize(
    "shown, prompt",
    [
        (b"", ""),
        (b"one\r\ntwo: ", "two: "),
        (b"one\r\n", ""),
        (b"\x1b[1;32mcolour\x1b[0m? ", "colour? "),
        (b"10 %\r100 %\rReady? ", "Ready? "),
        ("Schlüssel: ".encode(), "Schlüssel: "),
        (b"x" * 5000, "x" * screen.PROMPT_MAX),
    ],
)
def test_the_prompt_is_the_line_that_has_no_end(tmp_path: Path, shown: bytes, prompt: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(shown)
    assert screen.prompt(str(log), canonical=True, since=0) == prompt
    assert screen.prompt(str(log), canonical=True, since=log.stat().st_mtime_ns + 1) == ""
    assert screen.prompt(str(tmp_path / "none"), canonical=True, since=0) == ""


def test_a_drawn_screen_is_told_as_it_looks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\r\n\x1b[2J\x1b[Htitle\x1b[24;1H-- INSERT --")
    assert screen.prompt(str(log), canonical=False, since=0) == "title\n-- INSERT --"


def test_sockets_of_the_network_are_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert readers.hears_a_network(os.getpid(), [server.fileno()])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not readers.hears_a_network(os.getpid(), [ours.fileno()])
