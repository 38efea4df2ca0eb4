"""`krt status`, `krt ps` and the like answer in every state a session can be in."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client import blocking, session_files
from tests.support import eventually, krt_json

pytestmark = pytest.mark.slow


@pytest.fixture
def alice() -> Iterator[kr.Session]:
    session_files.create("alice")
    with blocking.observe("alice") as session:
        yield session
        session.stop()


def told(state: str) -> dict[str, object]:
    """What everybody says of a session that is in this state."""
    status = krt_json("status", "alice")
    assert status["state"] == state
    assert isinstance(krt_json("ps", "alice"), list)
    krt_json("claims", "alice")
    assert krt_json("ls")[0]["state"] == state
    return dict(status)


def kernel(session: kr.Session) -> process.ProcessId:
    found = process.identify(session.row()["kernel_pid"])
    assert found is not None
    return found


def new_supervisor(session: kr.Session) -> None:
    """Have another one supervise the session, freshly started."""
    who = process.identify(session.row()["supervisor_pid"])
    assert who is not None
    process.signal_process(who, signal.SIGTERM)
    eventually(lambda: not process.is_alive(who), what="the supervisor has left")


def test_a_session_without_a_kernel_until_its_kernel_is_killed(alice: kr.Session) -> None:
    assert told("stopped")["cells"] == []
    new_supervisor(alice)
    told("stopped")
    alice.execute("x = 1")
    assert [row["name"] for row in told("idle")["names"]] == ["x"]  # type: ignore[attr-defined]
    process.signal_process(kernel(alice), signal.SIGSTOP)
    eventually(lambda: alice.row()["state"] == "unresponsive", what="it does not answer")
    told("unresponsive")
    new_supervisor(alice)
    told("unresponsive")
    process.signal_process(kernel(alice), signal.SIGKILL)
    eventually(lambda: alice.row()["state"] == "dead", what="it is dead")
    told("dead")
    new_supervisor(alice)
    told("dead")
    alice.stop()
    assert {row["truth"] for row in told("dead")["names"]} == {"lost"}  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_kernel_that_starts_and_a_supervisor_that_meets_one(alice: kr.Session) -> None:
    """Between the request and the kernel's first answer, and in the first instants of an adoption."""
    submitted = alice.submit("x = 1")
    assert krt_json("status", "alice")["state"] in ("starting", "busy", "idle")
    krt_json("ps", "alice")
    submitted.wait(60)
    new_supervisor(alice)
    told("idle")


@pytest.mark.slow
def test_a_kernel_of_an_older_version_is_told_of_by_its_cells(alice: kr.Session) -> None:
    alice.execute("x = 1", cell_id="before")
    new_supervisor(alice)
    record = session_files.load("alice").directory / "kernel.json"
    document = json.loads(record.read_text())
    assert document.pop("observes")
    record.write_text(json.dumps(document))
    alice.execute("y = 2", cell_id="after")
    status = told("idle")
    assert "older version" in str(status["why"])
    assert status["names"] == []
    assert {cell["cell_id"]: cell["truth"] for cell in status["cells"]} == {  # type: ignore[attr-defined]
        "before": "live",
        "after": "live",
    }
    alice.restart()
    assert "older version" not in str(told("idle")["why"])


@pytest.mark.slow
def test_a_foreign_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "kernels" / "stranger"
    directory.mkdir(parents=True)
    argv = [
        sys.executable,
        "-Xfrozen_modules=off",
        "-c",
        "from ipykernel.kernelapp import main; main()",
        "-f",
    ]
    spec = {"argv": [*argv, "{connection_file}"], "display_name": "stranger", "language": "python"}
    (directory / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    session_files.create("alice", kernel="stranger")
    with blocking.observe("alice") as session:
        try:
            session.execute("import subprocess; child = subprocess.Popen(['sleep', '600'])")
            status = told("idle")
            assert "not one that tells" in str(status["why"])
            assert ["sleep", "600"] in [row.get("command") for row in session.resources()]
        finally:
            session.stop()
