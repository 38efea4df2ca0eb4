"""A secret in a command line or an environment is shown nowhere and written nowhere by us.

What a cell's own source says is the user's, and stays: so here the secret comes from a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.session_files import load
from kernel_runtime.client.status import Status
from kernel_runtime.journal import JournalReader
from tests.cases.support import status_when
from tests.e2e.written import contents
from tests.support import eventually, krt

pytestmark = pytest.mark.slow

SECRET = "hunter2"
CODE = """
import os, subprocess, sys
secret = open({file!r}).read()
os.environ["API_TOKEN"] = secret
argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)", "--password", secret]
child = subprocess.Popen(argv, env={{**os.environ, "TOKEN": secret}}, stdout=subprocess.PIPE)
child.stdout.readline()
del secret, argv
child.pid
"""


@pytest.fixture
def alice(tmp_path: Path) -> Iterator[tuple[kr.Session, int, Path]]:
    """A session with a process in the background that was given the secret."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    with kr.attach("alice", create=True) as session:
        yield session, int(session.execute(CODE.format(file=str(file))).text), file
        session.stop()


def shown(*commands: list[str]) -> str:
    """What these say, for people and as JSON."""
    said = []
    for command in commands:
        for form in ([], ["--json"]):
            done = krt(*command, *form)
            assert done.returncode in (0, 8), (command, done.stderr)
            said.append(done.stdout + done.stderr)
    return "\n".join(said)


def written(session: kr.Session, home: Path) -> str:
    """Every fact of the journal, and every file of ours."""
    with JournalReader.open(load(session.name).journal) as reader:
        facts = [msgspec.json.encode(entry.fact) for entry in reader.entries(limit=100_000)]
    return b"\n".join([*facts, *contents(home).values()]).decode("latin-1")


def test_a_secret_is_shown_nowhere(alice: tuple[kr.Session, int, Path], krt_home: Path) -> None:
    session, pid, file = alice
    session.claim("it lives", probe=f"pid {pid} contains '--password'")
    session.spawn([sys.executable, "-c", "import time; time.sleep(600)", "--password", SECRET])
    argv = [sys.executable, "-c", "input('go on? ')", "--password", SECRET]
    file.with_name("argv").write_text(json.dumps(argv))
    given = f"json.load(open({str(file.with_name('argv'))!r}))"
    waits = f"import json, subprocess; subprocess.run({given}).returncode"
    session.submit(waits)
    eventually(lambda: session.row()["state"] == "blocked", what="it reads the terminal")
    commands = [[name, "alice"] for name in ("status", "ps", "brief", "claims", "handoff", "log")]
    assert krt("handoff", "alice", "--goal", "see").returncode == 0
    text = shown(*commands, ["doctor"])
    assert "--password" in text
    assert "***" in text
    assert f"pid {pid}" in text
    assert SECRET not in text
    assert SECRET not in written(session, krt_home)
    session.answer("yes")
    who = process.identify(pid)
    assert who is not None
    process.signal_process(who, signal.SIGKILL)
    eventually(lambda: not process.is_alive(who), what="it has ended")
    assert SECRET not in shown(["status", "alice"], ["ps", "alice"], ["claims", "alice"])
    assert SECRET not in written(session, krt_home)


def test_status_tells_of_environment_and_settings(alice: tuple[kr.Session, int, Path]) -> None:
    def told(status: Status) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in status.resources if row["kind"] == "env"}

    # a status leaves out what a kernel does not tell of its settings within a moment
    rows = told(status_when(alice[0], lambda now: "environment" in told(now), 30, "settings are told"))
    assert rows["environment"]["value"]["API_TOKEN"] == "***"
    assert {"cwd", "environment"} < set(rows)
    assert os.environ["PATH"] == rows["environment"]["value"]["PATH"]
