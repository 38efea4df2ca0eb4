"""`krt host`: supervisors that outlive the place their client ran in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from kernel_runtime import places, process
from kernel_runtime.client import host, session_files
from tests.support import krt, krt_json


@pytest.fixture
def hosting(krt_home) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [sys.executable, "-m", "kernel_runtime.cli", "host", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "WHERE": "host", "KRT_PRINCIPAL": "human:host"},
    )
    assert running.stdout is not None
    assert "socket" in msgspec.json.decode(running.stdout.readline())
    yield running
    for name in session_files.names():
        assert krt("stop", name).returncode == 0
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)


def parent_of_supervisor(name: str) -> int:
    holder = msgspec.json.decode((places.session_dir(name) / "supervisor.lock").read_bytes())
    fields = process.stat_fields(holder["pid"])
    assert fields is not None
    return int(fields[1])


def test_it_starts_what_a_client_asks_for_with_its_own_environment(hosting) -> None:
    assert krt("host", "--check").returncode == 0
    code = "import os; print(os.environ['WHERE'], os.environ.get('SECRET'))"
    done = krt_json("exec", "there", code, "--create", WHERE="client", SECRET="of the client")
    assert done["outputs"][0]["text"] == "host None\n"
    assert parent_of_supervisor("there") == hosting.pid
    assert msgspec.json.decode(hosting.stdout.readline()) == {"started": "there"}


def test_one_is_enough_and_its_end_ends_nothing(hosting) -> None:
    second = krt("host", timeout=20)
    assert second.returncode == 2
    assert "runs already" in second.stderr
    krt_json("exec", "kept", "x = 41", "--create")
    hosting.send_signal(signal.SIGTERM)
    assert hosting.wait(10) == 0
    assert krt("host", "--check").returncode == 3
    assert krt_json("exec", "kept", "print(x + 1)")["outputs"][0]["text"] == "42\n"


def test_a_host_that_was_killed_is_done_without(hosting) -> None:
    hosting.kill()
    hosting.wait(10)
    assert host.socket_path().exists()
    krt_json("exec", "alone", "1", "--create")
    assert session_files.lives(session_files.load("alone"))


def test_a_refusal_reaches_the_client(hosting, tmp_path) -> None:
    """Another KRT_HOME with a session of the same name is another session."""
    krt_json("new", "twin")
    refused = krt("exec", "twin", "1", "--create", KRT_HOME=str(tmp_path / "other"))
    assert refused.returncode != 0
    assert "has another session of that name" in refused.stderr
