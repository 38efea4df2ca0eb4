"""Claims on real sessions: made, checked, withdrawn, and told apart from what was once true."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import process
from kernel_runtime.client.claims import Claim
from kernel_runtime.errors import BadProbe, NotFound, UsageError
from tests.support import eventually, krt, krt_json


@pytest.fixture
def session(krt_home: Path, tmp_path: Path) -> Iterator[kr.Session]:
    with kr.attach("alice", create=True, principal="agent:planner", cwd=str(tmp_path)) as attached:
        try:
            yield attached
        finally:
            attached.stop()


def test_a_note_says_that_a_server_listens_and_nothing_does(session: kr.Session) -> None:
    """The note was true when it was written. Whoever reads it next reads what is so now."""
    session.execute(
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])", timeout=60
    )
    number = session.execute("s.getsockname()[1]", timeout=60).text
    made = session.claim(f"server on :{number}", probe=f"port {number} listens")
    assert made.truth == "true"
    (found,) = made.evidence["listening"]
    assert (found["pid"], found["of_session"]) == (session.row()["kernel_pid"], True)
    session.execute("s.close()", timeout=60)
    (now,) = session.claims()
    assert (now.truth, now.evidence) == ("false", {"listening": []})
    assert (now.claim_id, now.principal, now.text) == ("c1", "agent:planner", f"server on :{number}")
    kinds = [entry.kind for entry in session.follow(timeout=0) if entry.kind.startswith("Claim")]
    assert kinds == ["ClaimMade", "ClaimChecked", "ClaimChecked"]
    assert len(now.entries) == 2


def test_only_a_change_of_truth_is_journaled_and_the_same_claim_is_one(session: kr.Session) -> None:
    for _ in range(3):
        assert session.claim("it is there", probe="file out.csv exists").truth == "false"
    session.claims()
    assert [claim.claim_id for claim in session.claims()] == ["c1"]
    kinds = [entry.kind for entry in session.follow(timeout=0) if entry.kind.startswith("Claim")]
    assert kinds == ["ClaimMade", "ClaimChecked"]


def test_a_file_is_relative_to_where_the_session_began(session: kr.Session, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("a\n")
    session.execute("import os; os.chdir('/')", timeout=60)
    digest = "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"
    assert session.claim("written", probe=f"file out.csv exists sha256 {digest} 2 bytes").holds
    (tmp_path / "out.csv").write_text("b\n")
    (now,) = session.claims()
    assert (now.truth, now.evidence["reason"]) == ("false", "its content has another sha256")


def test_a_process_that_ended_is_not_taken_for_the_next_one(session: kr.Session) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        probe = f'pid {child.pid} is "sleep 60"'
        assert session.claim("it sleeps", probe=probe).holds
        assert session.claim("it reads", probe=f'pid {child.pid} is "cat"').truth == "false"
        child.kill()
        child.wait()
        assert [claim.truth for claim in session.claims()] == ["false", "false"]


def test_http_on_this_machine(session: kr.Session) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
    made = session.claim("up", probe=f"http 200 at http://127.0.0.1:{number}/health", timeout=2)
    assert (made.truth, made.evidence["error"]) == ("false", "connection refused")


SERVER = """
import http.server as h
s = h.HTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler)
print(s.server_port, flush=True)
s.serve_forever()
"""


def test_a_server_that_a_cell_started_is_the_sessions(session: kr.Session, tmp_path: Path) -> None:
    """Started in a cell as a process of its own, and killed later."""
    (tmp_path / "serve.py").write_text(SERVER)
    started = session.execute(
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, 'serve.py'], stdout=-1, stderr=subprocess.DEVNULL)\n"
        "print(int(p.stdout.readline()))",
        timeout=60,
    )
    number = int(started.text)
    listens = session.claim("it listens", probe=f"port {number} listens")
    assert listens.holds
    (found,) = listens.evidence["listening"]
    assert (found["of_session"], found["started_by"]) == (True, started.execution_id)
    assert session.claim("it answers", probe=f"http 200 at http://localhost:{number}/", timeout=20).holds
    assert session.claim("it runs", probe=f"pid {found['pid']} contains serve.py").holds
    session.execute("p.kill(); p.wait(); p.stdout.close()", timeout=60)
    assert [claim.truth for claim in session.claims()] == ["false"] * 3


def test_a_process_of_the_session(session: kr.Session) -> None:
    assert krt("spawn", "alice", "--", "sleep", "60").returncode == 0
    made = session.claim("it sleeps", probe="process p1 runs")
    assert made.holds, made.evidence
    who = process.identify(made.evidence["pid"])
    assert who is not None
    assert process.signal_process(who, signal.SIGKILL)
    eventually(lambda: session.claims()[0].truth == "false", what="the claim is false")
    assert session.check("process p9 runs").evidence["reason"]


def test_what_hangs_keeps_nobody_waiting(session: kr.Session) -> None:
    """Slow probes have threads of their own, and a time limit for all is kept."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        hung = f"http 200 at http://127.0.0.1:{server.getsockname()[1]}"
        for i in range(6):
            assert session.claim(f"hangs {i}", probe=f"{hung}/{i}", timeout=0.5).truth == "unknown"
        quick = session.claim("nobody", probe="file x missing")
        found: dict[str, Claim] = {}

        def quick_is_told() -> bool:
            # a processor that others use may not come to it within the limit, and then says so
            found.update((claim.claim_id, claim) for claim in session.claims(timeout=0.2))
            return found[quick.claim_id].truth == "true"

        eventually(quick_is_told, timeout=30)
    assert [claim.truth for claim in found.values()].count("unknown") == 6
    assert all(claim.evidence["reason"] for claim in found.values() if claim.truth == "unknown")


def test_a_kernel_that_does_not_tell_of_names(
    krt_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"argv": [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"], "language": "bash"}
    directory = tmp_path / "data" / "kernels" / "bash"
    directory.mkdir(parents=True)
    (directory / "kernel.json").write_text(json.dumps({"display_name": "bash", **spec}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    with kr.attach("shell", create=True, kernel="bash") as other:
        try:
            other.execute("x=1", timeout=60)
            said = other.check("name x exists")
            assert (said.truth, "not one that tells" in said.evidence["reason"]) == ("unknown", True)
            assert other.check("expr x == 1").truth == "unknown"
            assert other.check("file x missing").truth == "true"
        finally:
            other.stop()


def test_who_attaches_is_told_which_claims_hold(session: kr.Session, tmp_path: Path) -> None:
    """The cheap ones are checked; of the others it is said what was found last, and when."""
    (tmp_path / "out.csv").write_text("a")
    session.execute("x = 1", timeout=60)
    session.claim("written", probe="file out.csv exists")
    session.claim("x is one", probe="name x == 1")
    (tmp_path / "out.csv").unlink()

    def told() -> list[dict[str, Any]]:
        with kr.attach("alice", principal="agent:next") as other:
            found: list[dict[str, Any]] = other.truth.claims
        # what was not looked at within the few milliseconds that an attach gives it is `unknown`
        return found if found[0]["truth"] != "unknown" else []

    cheap, dear = eventually(told, timeout=30)
    assert (cheap["text"], cheap["truth"]) == ("written", "false")
    assert (dear["truth"], dear["evidence"]["reason"]) == ("unknown", "not checked yet")
    assert dear["evidence"]["last"]["truth"] == "true"
    changed = [entry for entry in session.follow(timeout=0) if entry.kind == "ClaimChecked"][-1]
    assert changed.principal == "agent:next"


def test_a_claim_can_be_taken_back_and_survives_its_supervisor(session: kr.Session) -> None:
    session.claim("one", probe="file a missing")
    session.claim("two", probe="file b missing")
    session.withdraw_claim("c1", "no longer of interest")
    session.stop()
    unchecked = session.claims(check=False)
    assert [(claim.claim_id, claim.truth) for claim in unchecked] == [("c2", "unknown")]
    assert unchecked[0].evidence["reason"] == "not checked yet"
    assert unchecked[0].evidence["last"]["truth"] == "true"
    assert [claim.truth for claim in session.claims()] == ["true"]
    assert session.claim("three", probe="file c missing").claim_id == "c3"
    with pytest.raises(NotFound, match="no claim c1"):
        session.withdraw_claim("c1")


def test_what_cannot_be_a_claim_is_refused(session: kr.Session) -> None:
    with pytest.raises(BadProbe, match="at column 6"):
        session.claim("x", probe="port abc listens")
    with pytest.raises(UsageError, match="sentence"):
        session.claim(" ", probe="port 1 listens")
    with pytest.raises(UsageError, match="time limit"):
        session.claim("x", probe="port 1 listens", timeout=3600)
    assert session.claims() == []


def test_a_probe_can_be_asked_once(session: kr.Session) -> None:
    assert session.check("file x missing").truth == "true"
    assert session.claims() == []


def test_from_the_command_line(session: kr.Session) -> None:
    made = krt("claim", "alice", "nobody on :1", "--probe", "port 1 listens", "--as", "human:ann")
    assert made.returncode == 8
    assert "nothing listens" in made.stdout
    assert krt_json("claim", "alice", "no lock", "--probe", "file lock missing")["truth"] == "true"
    listed = krt_json("claims", "alice", exit_code=8)["claims"]
    assert [(claim["claim_id"], claim["truth"]) for claim in listed] == [("c1", "false"), ("c2", "true")]
    assert krt("claim", "alice", "--withdraw", "c1").returncode == 0
    assert krt("claims", "alice").returncode == 0
    assert krt("claim", "alice", "--withdraw", "c1").returncode == 3
    assert krt("claim", "alice", "text alone").returncode == 2
    assert krt("claim", "alice", "--withdraw", "c2", "--probe", "x").returncode == 2
    wrong = krt_json("claim", "alice", "x", "--probe", "prot 1", exit_code=2)["error"]
    assert (wrong["type"], wrong["column"]) == ("BadProbe", 1)


def test_what_a_name_stands_for_also_while_a_cell_runs(session: kr.Session) -> None:
    session.execute("rows = list(range(336776)); limit = 0.5", timeout=60)
    assert session.claim("loaded", probe="name rows has 336,776 rows").holds
    assert session.claim("its type", probe="name rows is list").holds
    assert session.claim("limit", probe="name limit == 0.5").holds
    assert session.check("name gone exists").truth == "false"
    assert session.check("expr len(rows) == 336776 and limit < 1").truth == "true"
    assert session.check("expr limit > 1").truth == "false"
    running = session.submit("import time\nwhile limit < 1: time.sleep(0.01)")
    try:
        assert [claim.truth for claim in session.claims()] == ["true"] * 3
        assert session.check("expr sum(rows) > 0").truth == "true"
    finally:
        session.interrupt()
        running.wait(timeout=60)


def test_what_an_expression_does_not_say_is_unknown(session: kr.Session) -> None:
    session.execute("import time, os; os.environ['STAGE'] = 'production'", timeout=60)
    raised = session.check("expr nowhere == 1")
    assert (raised.truth, "NameError" in raised.evidence["reason"]) == ("unknown", True)
    assert "neither True nor False" in session.check("expr [1]").evidence["reason"]
    slow = session.check("expr time.sleep(30) is None", timeout=0.3)
    assert (slow.truth, "within" in slow.evidence["reason"]) == ("unknown", True)
    stage = session.check("env STAGE is production")
    assert (stage.truth, stage.evidence) == ("true", {"value": True})
    assert session.check("env STAGE is testing").truth == "false"
    assert session.check("env NO_SUCH_THING exists").truth == "false"


def test_when_the_kernel_is_dead_no_name_is_there(session: kr.Session) -> None:
    session.execute("x = 1", timeout=60)
    session.claim("x is one", probe="name x == 1")
    session.claim("x is odd", probe="expr x % 2 == 1")
    session.execute("import os; os.kill(os.getpid(), 9)", timeout=60)
    name, expression = session.claims()
    assert (name.truth, expression.truth) == ("false", "unknown")
    assert "the kernel is dead" in name.evidence["reason"]
    assert "the kernel is dead" in expression.evidence["reason"]
