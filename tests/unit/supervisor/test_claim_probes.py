"""Looking at this machine: ports, processes, files, HTTP. Every socket and process here is the test's own."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.core.claims import File, Http, Pid, Port
from kernel_runtime.supervisor import claim_probes, launch
from kernel_runtime.supervisor.reactor import Reactor
from tests.support import eventually


@contextmanager
def listening(
    kind: int = socket.SOCK_STREAM, address: str = "127.0.0.1"
) -> Iterator[tuple[socket.socket, int]]:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as sock:
        sock.bind((address, 0))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        yield sock, sock.getsockname()[1]


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_port_that_listens_is_found_with_its_process(address: str) -> None:
    with listening(address=address) as (_, number):
        (found,) = claim_probes.port(Port(number), "s")["listening"]
        assert (found["address"], found["port"], found["pid"]) == (address, number, os.getpid())
        assert found["command"]
        assert found["of_session"] is False
    assert claim_probes.port(Port(number), "s") == {"listening": []}


def test_a_host_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(address="127.0.0.2") as (_, number):
        assert claim_probes.port(Port(number), "s")["listening"]
        assert claim_probes.port(Port(number, "127.0.0.2"), "s")["listening"]
        assert not claim_probes.port(Port(number, "127.0.0.1"), "s")["listening"]
        assert not claim_probes.port(Port(number, "999"), "s")["listening"]


def test_a_udp_port_that_is_bound_is_found_and_a_connected_one_is_not() -> None:
    with listening(socket.SOCK_DGRAM) as (_, number):
        assert claim_probes.port(Port(number, protocol="udp"), "s")["listening"]
        assert not claim_probes.port(Port(number), "s")["listening"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.connect(("127.0.0.1", number))
            assert not claim_probes.port(Port(other.getsockname()[1], protocol="udp"), "s")["listening"]


def test_a_process_of_the_session_is_told_from_others() -> None:
    program = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    env = {**os.environ, launch.MARK: "s"}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        number = int(child.stdout.readline())
        (found,) = claim_probes.port(Port(number), "s")["listening"]
        assert (found["pid"], found["of_session"]) == (child.pid, True)
        assert claim_probes.port(Port(number), "other")["listening"][0]["of_session"] is False
        child.communicate()


def test_a_pid_is_a_process_and_not_a_number() -> None:
    mine = claim_probes.identity(os.getpid())
    assert mine is not None
    assert mine["command"]
    assert claim_probes.pid(Pid(os.getpid(), "runs"), {"start_time": 1}) == {
        "process": mine,
        "meant": {"start_time": 1},
    }
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert claim_probes.identity(child.pid) is None


def test_a_file_is_looked_at_relative_to_the_session(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_bytes(b"a,b\n")
    digest = hashlib.sha256(b"a,b\n").hexdigest()
    seen = claim_probes.file(File("out.csv", sha256=digest), str(tmp_path), soon())
    assert (seen["exists"], seen["kind"], seen["bytes"], seen["sha256"]) == (True, "file", 4, digest)
    assert "sha256" not in claim_probes.file(File("out.csv"), str(tmp_path), soon())
    assert claim_probes.file(File("no"), str(tmp_path), soon())["exists"] is False
    assert claim_probes.file(File("out.csv/x"), str(tmp_path), soon())["exists"] is False
    assert claim_probes.file(File("."), str(tmp_path), soon())["kind"] == "directory"


def test_what_has_no_content_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    seen = claim_probes.file(File("fifo", sha256="0" * 64), str(tmp_path), soon())
    assert "no regular file" in seen["unknown"]


def test_a_file_that_takes_too_long_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 10)
    seen = claim_probes.file(File("big", sha256="0" * 64), str(tmp_path), soon(-1))
    assert "time limit" in seen["unknown"]


@contextmanager
def serving(answer: bytes, *, drip: float | None = None) -> Iterator[tuple[int, list[bytes]]]:
    """A server of one answer: its port, and each request it heard.

    With `drip` it sends one byte every so many seconds, and notes the answer after the last of them.
    """
    asked: list[bytes] = []
    over = threading.Event()

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(4096))
                try:
                    if drip is None:
                        connection.sendall(answer)
                        continue
                    for byte in answer:
                        connection.sendall(bytes([byte]))
                        if over.wait(drip):
                            break
                    else:
                        asked.append(answer)
                except OSError:
                    continue

    with listening() as (server, number):
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield number, asked
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_http_asks_once_and_follows_nothing() -> None:
    with serving(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n") as (number, asked):
        seen = claim_probes.http(Http(f"http://localhost:{number}/a?b=c"), [], soon())
    assert (seen["status"], seen["location"]) == (302, "http://192.0.2.1/")
    assert asked[0].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: localhost")


def test_what_is_not_http_and_who_is_not_there() -> None:
    with serving(b"SSH-2.0\r\n") as (number, _):
        assert "not HTTP" in claim_probes.http(Http(f"http://127.0.0.1:{number}"), [], soon())["error"]
    with serving(b"") as (number, _):
        assert claim_probes.http(Http(f"http://127.0.0.1:{number}"), [], soon())["error"]
    seen = claim_probes.http(Http(f"http://127.0.0.1:{number}"), [], soon())
    assert seen["error"] == "connection refused"


@pytest.mark.parametrize("drip", [60.0, 0.05])
def test_a_server_that_takes_its_time_does_not_take_ours(drip: float) -> None:
    """Mechanism: a timer shuts the socket down, so that no drip of bytes keeps a read alive."""
    answer = b"HTTP/1.1 200 OK" + b" " * 4000
    with serving(answer, drip=drip) as (number, done):
        seen = claim_probes.http(Http(f"http://127.0.0.1:{number}"), [], soon(0.3))
        assert answer not in done
    assert "time limit" in seen["unknown"]


def test_other_machines_are_asked_only_if_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every address counts: a name with one of loopback and one that is not is not this machine."""
    answers: dict[str, list[str]] = {"both.test": ["127.0.0.1", "192.0.2.1"], "one.test": ["127.0.0.1"]}

    monkeypatch.setattr(claim_probes, "resolve", lambda host, _number: answers[host])
    seen = claim_probes.http(Http("http://both.test"), ["other.test"], soon())
    assert "not this machine" in seen["unknown"]
    assert "--allow both.test" in seen["unknown"]
    with serving(b"HTTP/1.1 200 OK\r\n\r\n") as (number, asked):
        assert claim_probes.http(Http(f"http://one.test:{number}"), [], soon())["status"] == 200
        for allowed in ("both.test", claim_probes.ANY_HOST):
            assert claim_probes.http(Http(f"http://both.test:{number}"), [allowed], soon())["status"] == 200
    assert len(asked) == 3


def test_results_come_back_on_the_reactor_and_a_fault_is_one() -> None:
    reactor = Reactor()
    observers = claim_probes.Observers(reactor)
    found: list[Any] = []

    def done(seen: dict[str, Any]) -> None:
        found.append((threading.current_thread(), seen))
        if len(found) == 21:
            reactor.stop()

    def broken() -> dict[str, Any]:
        raise ValueError("broken")

    observers.submit(broken, done)
    for number in range(20):
        observers.submit(lambda number=number: {"number": number}, done)  # type: ignore[misc]
    reactor.after(10.0, reactor.stop)
    reactor.run()
    assert {thread for thread, _ in found} == {threading.current_thread()}
    assert sorted(seen["number"] for _, seen in found if "number" in seen) == list(range(20))
    assert [seen for _, seen in found if "unknown" in seen] == [
        {"unknown": "looking failed: ValueError: broken"}
    ]


HANGING = """
import os, threading
from kernel_runtime.supervisor.claim_probes import Observers
from kernel_runtime.supervisor.reactor import Reactor
from tests.support import eventually
observers, begun = Observers(Reactor()), threading.Event()
def hang():  # as a resolver that does not come back
    begun.set()
    os.read(os.pipe()[0], 1)
observers.submit(hang, print)
begun.wait()
observers.close()
print("closed")
"""


def test_an_exit_waits_for_no_look_that_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == ("closed\n", "")


def test_closed_observers_leave_no_thread() -> None:
    reactor = Reactor()
    before = set(threading.enumerate())
    observers = claim_probes.Observers(reactor)
    observers.submit(dict, lambda _: reactor.stop())
    reactor.after(10.0, reactor.stop)
    reactor.run()
    assert set(threading.enumerate()) > before
    observers.close()
    eventually(lambda: set(threading.enumerate()) <= before, what="its threads have ended")
