"""Managed processes and terminals, on real processes: `krt spawn`, `krt term`, and the SDK's part of it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.blocking import Session
from kernel_runtime.client.terminals import TerminalLine
from kernel_runtime.errors import NoSuchProcess, SessionBusy, SpawnFailed, StillRunning, UsageError
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import ProcessEnded, ProcessSpawned
from tests.e2e.written import contents
from tests.support import eventually, krt, krt_json

FULL_SCREEN = """
import sys, termios, tty
tty.setraw(0)
sys.stdout.write('\\x1b[?1049h\\x1b[2J\\x1b[2;4H\\x1b[1mTitle\\x1b[0m\\x1b[4;1H> ')
sys.stdout.flush()
while (key := sys.stdin.read(1)) != 'q':
    sys.stdout.write(f'\\x1b[5;1Hkey {key!r}   \\x1b[4;3H')
    sys.stdout.flush()
sys.stdout.write('\\x1b[?1049l')
"""


@pytest.fixture
def alice(krt_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session that has no kernel and needs none."""
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PS1", "ready> ")
    with kr.attach("alice", create=True, principal="human:alice") as session:
        yield session
        session.stop()


@pytest.fixture
def terminals() -> Iterator[list[pexpect.spawn]]:
    opened: list[pexpect.spawn] = []
    yield opened
    for terminal in opened:
        terminal.close(force=True)


def term(
    terminals: list[pexpect.spawn], *args: str, dimensions: tuple[int, int] = (24, 100)
) -> pexpect.spawn:
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "kernel_runtime.cli", "term", "alice", *args],
        encoding="utf-8",
        timeout=30,
        dimensions=dimensions,
    )
    terminals.append(terminal)
    return terminal


def status_of(terminal: pexpect.spawn) -> int:
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus is not None, terminal.signalstatus
    return int(terminal.exitstatus)


def holder_of(session: Session, process_id: str) -> process.ProcessId:
    path = session.coroutines.file.directory / "processes" / f"{process_id}.json"
    return process.ProcessId(**json.loads(path.read_bytes())["holder"])


def facts(session: Session) -> list[ProcessSpawned | ProcessEnded]:
    with JournalReader.open(session.coroutines.file.journal) as reader:
        entries = reader.entries(kinds=["ProcessSpawned", "ProcessEnded"])
    return [entry.fact for entry in entries if isinstance(entry.fact, ProcessSpawned | ProcessEnded)]


def test_what_is_typed_comes_back_and_the_exit_status_is_kept(alice: Session) -> None:
    spawned = alice.spawn(["sh", "-c", 'printf "name? "; read n; echo hello $n; exit 3'])
    assert spawned.process_id == "p1"
    eventually(lambda: "name?" in alice.tail("p1").text, what="it asks")
    assert alice.screen("p1").cursor.col == len("name? ")
    alice.type("p1", "bob\r")
    row = alice.wait_process("p1", timeout=30)
    assert (row["exit_status"], row["signal"], row["truth"]) == (3, None, "false")
    tail = alice.tail("p1")
    assert tail.text == "name? bob\r\nhello bob\r\n"
    assert tail.complete
    eventually(lambda: alice.screen("p1").text == "name? bob\nhello bob", what="its last screen is kept")
    began, ended = facts(alice)
    assert isinstance(began, ProcessSpawned)
    assert isinstance(ended, ProcessEnded)
    assert (began.process_id, began.pid) == ("p1", spawned.pid)
    assert (ended.process_id, ended.exit_status) == ("p1", 3)
    assert ended.evidence["output"]["lines"] == 2


def test_it_has_the_session_its_name_and_a_terminal_of_its_own(alice: Session, tmp_path: Path) -> None:
    script = "tty; echo $KRT_PROCESS $KRT_SESSION_ID $TERM $COLOUR; pwd; stty size; ps -o sid= -p $$; echo $$"
    alice.spawn(["sh", "-c", script], cwd=tmp_path, env={"COLOUR": "red"}, rows=30, cols=90)
    alice.wait_process("p1", timeout=30)
    terminal, names, cwd, size, leader, pid = alice.tail("p1").text.split("\r\n")[:6]
    assert terminal.startswith("/dev/pts/")
    assert names == f"p1 {alice.session_id} xterm-256color red"
    assert cwd == str(tmp_path)
    assert size == "30 90"
    assert leader.strip() == pid


def test_end_of_file_and_signals(alice: Session) -> None:
    alice.spawn(["cat"])
    alice.type_eof("p1")
    assert alice.wait_process("p1", timeout=30)["exit_status"] == 0
    alice.spawn([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"])
    eventually(lambda: "up" in alice.tail("p2").text, what="it runs")
    alice.signal("p2", signal.SIGINT)
    row = alice.wait_process("p2", timeout=30)
    assert "KeyboardInterrupt" in alice.tail("p2").text
    assert row["evidence"]["signalled"] == signal.SIGINT
    assert row["evidence"]["by"] == "human:alice"
    alice.spawn(["sleep", "60"])
    alice.signal("p3", signal.SIGKILL)
    assert alice.wait_process("p3", timeout=30)["signal"] == signal.SIGKILL
    with pytest.raises(SpawnFailed, match="it has ended"):
        alice.type("p3", "x")


def test_what_cannot_be_started_is_refused_and_uses_no_name(alice: Session, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "broken").write_bytes(b"#!/no/such/interpreter\n")
    (tmp_path / "broken").chmod(0o700)
    for argv in (["no-such-program"], ["./text"], ["./missing"]):
        with pytest.raises(SpawnFailed):
            alice.spawn(argv, cwd=tmp_path)
    with pytest.raises(SpawnFailed, match="is no directory"):
        alice.spawn(["true"], cwd=tmp_path / "nowhere")
    with pytest.raises(SpawnFailed, match="could not be started"):
        alice.spawn(["./broken"], cwd=tmp_path)
    for name in ("p7", "a/b", "", "x" * 33):
        with pytest.raises(UsageError):
            alice.spawn(["true"], name=name)
    with pytest.raises(UsageError):
        alice.spawn([])
    with pytest.raises(NoSuchProcess):
        alice.screen("p1")
    assert facts(alice) == []
    assert alice.processes() == []


def test_a_name_of_ones_own_starts_one_and_not_two(alice: Session) -> None:
    first = alice.spawn(["sleep", "60"], name="web")
    with pytest.raises(SpawnFailed, match="lives already"):
        alice.spawn(["sleep", "60"], name="web")
    alice.signal("web")
    alice.wait_process("web", timeout=30)
    second = alice.spawn(["sh", "-c", "echo again; sleep 60"], name="web")
    assert second.pid != first.pid
    eventually(lambda: alice.tail("web").text == "again\r\n", what="the log is the new one's")
    assert [row["pid"] for row in alice.processes()] == [second.pid]
    with pytest.raises(StillRunning):
        alice.wait_process("web", timeout=0)


def test_a_full_screen_program(alice: Session) -> None:
    alice.spawn([sys.executable, "-c", FULL_SCREEN], rows=8, cols=40)
    eventually(lambda: "Title" in alice.screen("p1").text, what="it has drawn")
    alice.type("p1", "x")
    eventually(lambda: "key 'x'" in alice.screen("p1").text, what="it has the key")
    screen = alice.screen("p1")
    assert screen.lines == ["", "   Title", "", ">", "key 'x'", "", "", ""]
    assert (screen.cursor.row, screen.cursor.col, screen.since) == (3, 2, "start")
    alice.type("p1", "q")
    alice.wait_process("p1", timeout=30)
    eventually(lambda: alice.screen("p1").text == "", what="it gave the screen back")


def test_a_hundred_megabytes(alice: Session) -> None:
    """The log keeps its bound, what is missing is counted, and the holder stays small."""
    program = (
        "import os\nline = b'%07d' + b'x' * 91 + b'\\n'\n"
        "for i in range(0, 1000000, 100): os.write(1, b''.join(line % n for n in range(i, i + 100)))"
    )
    (alice.coroutines.file.directory / "bounds.json").write_text('{"process_log": 1048576}')
    _restart_supervisor(alice)
    alice.spawn([sys.executable, "-c", program])
    eventually(lambda: alice.screen("p1").since == "cut", timeout=30, what="its screen in the flood")
    rss = int(Path(f"/proc/{holder_of(alice, 'p1').pid}/statm").read_text().split()[1]) * 4096
    assert rss < 40 << 20
    row = alice.wait_process("p1", timeout=90)
    output = row["evidence"]["output"]
    # the terminal makes \r\n of \n
    assert (output["bytes"], output["lines"]) == (100_000_000, 1_000_000)
    tail = alice.tail("p1", 200)
    assert tail.text.endswith("0999999" + "x" * 91 + "\r\n")
    assert not tail.complete
    assert (tail.dropped_bytes, tail.dropped_lines) == (output["dropped_bytes"], output["dropped_lines"])
    log = Path(tail.log).read_bytes()
    assert len(log) <= 1_048_576
    header, _, kept = log.partition(b"\n")
    assert header == b"[krt: %d bytes, %d lines are not kept: bound]" % (
        tail.dropped_bytes,
        tail.dropped_lines,
    )
    assert len(kept) + tail.dropped_bytes == 100_000_000
    assert kept.startswith(b"%07d" % tail.dropped_lines)


def _restart_supervisor(session: Session) -> None:
    who = process.identify(int(session.row()["supervisor_pid"]))
    assert who is not None
    process.signal_process(who, signal.SIGTERM)
    eventually(lambda: not process.is_alive(who), what="the supervisor left")


def test_stop_ends_them_and_says_how(alice: Session, krt_home: Path) -> None:
    alice.spawn(["sleep", "1000"])
    alice.spawn(["sh", "-c", 'trap "" TERM HUP; echo trapped; while :; do sleep 1; done'])
    alice.spawn(interactive=True)
    eventually(lambda: "trapped" in alice.tail("p2").text, what="it ignores SIGTERM")
    pids = [process.identify(row["pid"]) for row in alice.processes()]
    holders = [holder_of(alice, row["process_id"]) for row in alice.processes()]
    assert krt("rm", "alice", "--yes").returncode == 4
    assert alice.stop() == []
    assert not [who for who in [*pids, *holders] if who is not None and process.is_alive(who)]
    ended = {fact.process_id: fact for fact in facts(alice) if isinstance(fact, ProcessEnded)}
    assert ended["p1"].signal == signal.SIGTERM
    assert ended["p2"].signal == signal.SIGKILL
    assert ended["t1"].signal in (signal.SIGHUP, signal.SIGTERM) or ended["t1"].exit_status is not None
    assert (krt_home / "sessions" / "alice" / "processes" / "p1.log").exists()
    assert krt("rm", "alice", "--yes").returncode == 0
    assert not (krt_home / "sessions" / "alice").exists()


def test_stop_finds_them_though_nothing_else_of_the_session_lives(alice: Session) -> None:
    spawned = alice.spawn(["sleep", "1000"])
    who = process.identify(spawned.pid)
    assert who is not None
    _restart_supervisor(alice)
    assert process.is_alive(who)
    assert krt("rm", "alice", "--yes").returncode == 4
    krt_json("stop", "alice")
    assert not process.is_alive(who)


def test_the_kernel_may_die_or_be_restarted(alice: Session) -> None:
    spawned = alice.spawn(["sh", "-c", "read x; echo still $x"])
    alice.execute("import os; os._exit(1)")
    alice.restart()
    alice.execute("1")
    assert [row["pid"] for row in alice.processes() if not row["ended"]] == [spawned.pid]
    alice.type("p1", "here\r")
    assert alice.wait_process("p1", timeout=30)["exit_status"] == 0
    assert "still here" in alice.tail("p1").text


def test_a_background_process_keeps_the_terminal_and_the_status_is_told_at_once(alice: Session) -> None:
    alice.spawn(["sh", "-c", "(read line; echo late) & trap '' HUP; exit 5"])
    assert alice.wait_process("p1", timeout=30)["exit_status"] == 5


def test_the_world_lists_them_and_not_their_holders(alice: Session) -> None:
    spawned = alice.spawn(["sleep", "1000"])
    rows = [row for row in alice.resources() if row["kind"] == "process"]
    assert [(row["process_id"], row["pid"]) for row in rows] == [("p1", spawned.pid)]
    alice.signal("p1", signal.SIGKILL)
    alice.wait_process("p1", timeout=30)
    rows = [row for row in alice.resources() if row["kind"] == "process"]
    assert [(row["truth"], row["signal"]) for row in rows] == [("false", signal.SIGKILL)]


def test_secrets_in_a_command_line_are_in_no_file(alice: Session, krt_home: Path) -> None:
    alice.spawn(["sleep", "0.01"], env={"API_TOKEN": "correct-horse-1"})
    alice.spawn(["true", "--password", "correct-horse-2"])
    alice.wait_process("p2", timeout=30)
    alice.wait_process("p1", timeout=30)
    files = contents(krt_home)
    assert "p1.log" in {path.name for path in files}
    assert [path for path, content in files.items() if b"correct-horse" in content] == []


# the command line


def test_spawn_and_answer(alice: Session) -> None:
    spawned = krt("spawn", "alice", "--", "sh", "-c", "read a; echo got $a; exit 2")
    assert spawned.stdout.startswith("p1 pid "), spawned.stderr
    assert krt("answer", "alice", "yes", "--process", "p1").returncode == 0
    alice.wait_process("p1", timeout=30)
    assert krt("term", "alice", "p1", "--tail", "1").stdout == "got yes\n"
    assert krt_json("term", "alice", "p1", "--tail", "9")["text"] == "yes\ngot yes\n"
    eventually(lambda: krt_json("term", "alice", "p1", "--screen")["lines"][1] == "got yes", what="screen")
    named = ("--name", "web", "--env", "A=b", "--json")
    document = json.loads(krt("spawn", "alice", *named, "--", "sh", "-c", "echo $A; cat").stdout)
    assert document == {"session": "alice", "process_id": "web", "pid": document["pid"]}
    krt("answer", "alice", "--eof", "--process", "web")
    assert alice.wait_process("web", timeout=30)["exit_status"] == 0
    assert alice.tail("web").text.startswith("b\r\n")


def test_exit_statuses(alice: Session) -> None:
    assert krt("spawn", "alice", "--wait", "--", "true").returncode == 0
    failed = krt("spawn", "alice", "--wait", "--", "sh", "-c", "exit 9")
    assert (failed.returncode, failed.stdout) == (1, "p2 ended with exit status 9\n")
    assert krt("spawn", "alice", "--wait", "--timeout", "0.1", "--", "sleep", "60").returncode == 6
    missing = krt("spawn", "alice", "--", "no-such-program")
    assert missing.returncode == 4
    assert "no such program" in missing.stderr
    assert krt("spawn", "alice", "--").returncode == 2
    assert krt("term", "alice", "p9", "--screen").returncode == 3
    assert krt("term", "alice", "p3").returncode == 2
    assert "--screen" in krt("term", "alice", "p3").stderr
    assert krt("term", "alice", "p3", "--signal", "NOPE").returncode == 2
    assert krt("term", "alice", "p3", "--signal", "term").returncode == 0
    assert alice.wait_process("p3", timeout=30)["signal"] == signal.SIGTERM


def test_a_terminal_is_left_and_found_again(alice: Session, terminals: list[pexpect.spawn]) -> None:
    terminal = term(terminals, dimensions=(31, 97))
    terminal.expect_exact("ready>")
    terminal.sendline("kept=42; stty size")
    terminal.expect_exact("31 97")
    terminal.send("\x1cd")
    terminal.expect_exact("t1 goes on")
    assert status_of(terminal) == 0
    again = term(terminals, dimensions=(20, 60))
    again.expect_exact("31 97")  # the screen as it was
    again.sendline("echo $kept; stty size")
    again.expect_exact("42\r\n20 60")
    again.setwinsize(25, 70)
    eventually(lambda: (alice.screen("t1").rows, alice.screen("t1").cols) == (25, 70), what="resized")
    again.sendline("stty size")
    again.expect_exact("25 70")
    again.sendline("exit 7")
    again.expect_exact("t1 ended with exit status 7")
    assert status_of(again) == 1
    assert alice.wait_process("t1", timeout=30)["exit_status"] == 7


def test_two_at_one_terminal_see_the_same(alice: Session, terminals: list[pexpect.spawn]) -> None:
    one = term(terminals, "--new")
    one.expect_exact("ready>")
    other = term(terminals, "t1", "--read-only", dimensions=(10, 40))
    other.expect_exact("ready>")
    one.sendline("echo seen-by-$((20 + 22)); stty size")
    one.expect_exact("seen-by-42")
    other.expect_exact("seen-by-42")
    other.expect_exact("24 100")  # who only watches does not change the size
    other.send("echo not-typed\r")
    other.send("\x1cd")
    assert status_of(other) == 0
    one.send("\x1c\x1c")  # one Ctrl-\, which an interactive shell ignores
    one.sendline("echo end")
    one.expect_exact("end\r\n")
    assert "not-typed" not in alice.tail("t1").text
    one.send("\x1cd")
    assert status_of(one) == 0


def test_a_client_killed_at_a_terminal_takes_nothing_with_it(
    alice: Session, terminals: list[pexpect.spawn]
) -> None:
    terminal = term(terminals)
    terminal.expect_exact("ready>")
    terminal.sendline("mine=1; cat")
    terminal.expect_exact("cat\r\n")
    terminal.kill(signal.SIGKILL)
    terminal.wait()
    assert not alice.processes()[0]["ended"]
    alice.type("t1", "echoed\r\x04")
    alice.type("t1", "echo $mine-$mine\r")
    eventually(lambda: "1-1" in alice.tail("t1").text, what="the shell goes on")


def test_a_slow_reader_holds_nobody_up_and_is_shown_the_screen_again(alice: Session) -> None:
    alice.spawn(["sh", "-c", "read go; seq 1 600000; echo done; read end"])
    line = TerminalLine(alice.session_id, "p1", "alice")
    line.ask("subscribe")
    alice.type("p1", "\r")
    eventually(
        lambda: alice.tail("p1", 100).text.endswith("done\r\n"), timeout=60, what="nobody is waited for"
    )
    gap, heard = 0, b""
    while b"done" not in heard[-4000:]:
        received = line.receive()
        assert received is not None
        for piece in received:
            if isinstance(piece, bytes):
                heard += piece
            elif piece.get("event") == "gap":
                gap += piece["bytes"]
    line.close()
    assert gap > 0
    assert alice.screen("p1").text.endswith("600000\ndone")


def test_garbage_at_the_socket_harms_nobody(alice: Session) -> None:
    alice.spawn(["cat"])
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\2\0[]",
        b"\0\0\0\1\0{",
        b"\0\0\0\x0b\0" + b'{"op": "x"}',
    ):
        line = TerminalLine(alice.session_id, "p1", "alice")
        line.sock.sendall(garbage)
        while (received := line.receive()) is not None:
            assert all(isinstance(piece, dict) and not piece["ok"] for piece in received)
            if garbage.endswith(b'"x"}'):
                break
        line.close()
    alice.type("p1", "alive\r")
    eventually(lambda: "alive\r\nalive" in alice.tail("p1").text, what="it is served")


def test_input_that_nobody_reads_is_bounded(alice: Session) -> None:
    alice.spawn(
        [sys.executable, "-c", "import tty,time; tty.setraw(0); print('raw', flush=True); time.sleep(60)"]
    )
    eventually(lambda: "raw" in alice.tail("p1").text, what="it does not read")
    alice.type("p1", "x" * 60_000)
    with pytest.raises(SpawnFailed, match="does not read"):
        alice.type("p1", "x" * 60_000)


def test_a_stopping_session_starts_nothing(alice: Session) -> None:
    alice.spawn(["sh", "-c", 'trap "" TERM HUP; echo trapped; while :; do sleep 1; done'])
    eventually(lambda: "trapped" in alice.tail("p1").text, what="it ignores SIGTERM")
    with kr.attach("alice", principal="agent:other") as other:
        stopping = other.loop
        asked = asyncio.run_coroutine_threadsafe(other.coroutines.stop(), stopping)

        def refused() -> bool:
            try:
                alice.spawn(["sleep", "1000"])
            except SessionBusy:
                return True
            return False

        eventually(refused, what="refused while it stops")
        asked.result(timeout=30)
    assert alice.coroutines.file.directory.exists()
