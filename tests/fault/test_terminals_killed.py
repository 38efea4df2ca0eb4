"""Managed processes while supervisors, clients and holders are killed."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from kernel_runtime import process
from kernel_runtime.client.blocking import Session
from kernel_runtime.client.terminals import TerminalLine
from kernel_runtime.errors import DiskFull, EnvironmentFault, SpawnFailed, SupervisorFault
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import ProcessEnded, ProcessSpawned
from tests.fault.rig import Rig
from tests.support import eventually

pytestmark = pytest.mark.slow


def facts(rig: Rig) -> list[ProcessSpawned | ProcessEnded]:
    with JournalReader.open(rig.file.journal) as reader:
        entries = reader.entries(kinds=["ProcessSpawned", "ProcessEnded"])
    return [entry.fact for entry in entries if isinstance(entry.fact, ProcessSpawned | ProcessEnded)]


def holder(rig: Rig, process_id: str) -> process.ProcessId:
    record = json.loads((rig.file.directory / "processes" / f"{process_id}.json").read_bytes())
    return process.ProcessId(**record["holder"])


def only(session: Session) -> dict[str, Any]:
    rows = session.processes()
    assert len(rows) == 1, rows
    return rows[0]


def test_the_next_supervisor_has_log_screen_input_and_status(rig: Rig) -> None:
    session = rig.attach()
    spawned = session.spawn(["sh", "-c", "echo begun; read x; echo got $x; exit 4"])
    eventually(lambda: "begun" in session.tail("p1").text, what="it runs")
    rig.kill(rig.supervisor_pid())
    other = rig.attach("agent:b")
    assert only(other)["pid"] == spawned.pid
    assert other.screen("p1").text == "begun"
    other.type("p1", "it\r")
    assert other.wait_process("p1", timeout=30)["exit_status"] == 4
    assert other.tail("p1").text == "begun\r\nit\r\ngot it\r\n"
    assert other.spawn(["true"]).process_id == "p2"
    assert [type(fact).__name__ for fact in facts(rig)[:2]] == ["ProcessSpawned", "ProcessEnded"]


def test_one_that_ended_while_no_supervisor_was_there(rig: Rig) -> None:
    session = rig.attach()
    spawned = session.spawn(["sh", "-c", "read x; echo alone; exit 6"])
    who = process.identify(spawned.pid)
    assert who is not None
    line = TerminalLine(session.session_id, "p1", "m")  # a client that stays at the terminal
    line.ask("subscribe")
    rig.kill(rig.supervisor_pid())
    line.type(b"\r")
    heard, ended = b"", None
    while ended is None:
        received = line.receive()
        assert received is not None
        for piece in received:
            if isinstance(piece, bytes):
                heard += piece
            elif piece.get("event") == "ended":
                ended = piece
    line.close()
    assert b"alone" in heard
    assert ended["exit_status"] == 6
    eventually(lambda: not process.is_alive(holder(rig, "p1")), what="its holder has nothing left to hold")
    assert len(facts(rig)) == 1
    row = only(rig.attach("agent:b"))
    assert (row["exit_status"], row["ended"]) == (6, True)
    last = facts(rig)[-1]
    assert isinstance(last, ProcessEnded)
    assert last.exit_status == 6


@pytest.mark.parametrize("point", ["before-spawned", "after-spawned"])
def test_a_supervisor_killed_over_a_spawn_leaves_no_process_that_nobody_knows(rig: Rig, point: str) -> None:
    rig.failpoint(point, "kill")
    session = rig.attach()
    rig.arm()
    with pytest.raises(SupervisorFault):
        session.spawn(["sleep", "1000"], name="web")
    rig.no_more_failpoints()
    other = rig.attach_anew()
    row = only(other)
    spawned = facts(rig)
    assert [fact.process_id for fact in spawned] == ["web"]
    assert isinstance(spawned[0], ProcessSpawned)
    assert (row["pid"], row["ended"]) == (spawned[0].pid, False)
    with pytest.raises(SpawnFailed, match="lives already"):
        other.spawn(["sleep", "1000"], name="web")
    other.signal("web", signal.SIGKILL)
    assert other.wait_process("web", timeout=30)["signal"] == signal.SIGKILL


def test_what_cannot_be_journaled_does_not_run(rig: Rig) -> None:
    rig.failpoint("before-spawned", "enospc")
    session = rig.attach()
    rig.arm()
    with pytest.raises((SpawnFailed, DiskFull)):
        session.spawn(["sleep", "1000"])
    assert session.processes() == []
    left = holder(rig, "p1")
    eventually(lambda: not process.is_alive(left), what="it was ended")
    assert facts(rig) == []


def test_a_holder_that_is_killed_takes_the_status_with_it_and_that_is_said(rig: Rig) -> None:
    session = rig.attach()
    session.spawn(["sleep", "1000"])
    rig.kill(holder(rig, "p1").pid)
    row = session.wait_process("p1", timeout=30)
    assert (row["exit_status"], row["signal"]) == (None, None)
    assert "its holder was gone" in row["evidence"]["found"]
    with pytest.raises(EnvironmentFault, match="nobody has kept the screen"):
        session.screen("p1")


def test_one_that_survives_its_holder_is_watched_to_its_end(rig: Rig) -> None:
    session = rig.attach()
    spawned = session.spawn(["sh", "-c", 'trap "" HUP; echo trapped; exec sleep 1000'])
    who = process.identify(spawned.pid)
    assert who is not None
    eventually(lambda: "trapped" in session.tail("p1").text, what="it ignores SIGHUP")
    rig.kill(holder(rig, "p1").pid)
    with pytest.raises(SpawnFailed, match="cannot be reached"):
        session.type("p1", "x")
    assert not only(session)["ended"]
    rig.kill(rig.supervisor_pid())
    other = rig.attach("agent:b")
    assert not only(other)["ended"]
    process.signal_process(who, signal.SIGKILL)
    assert other.wait_process("p1", timeout=30)["ended"]


def test_sigterm_to_a_holder_ends_its_process_properly(rig: Rig) -> None:
    session = rig.attach()
    session.spawn(["sh", "-c", 'trap "echo bye; exit 3" TERM; echo ready; while :; do sleep 0.05; done'])
    eventually(lambda: "ready" in session.tail("p1").text, what="it runs")
    process.signal_process(holder(rig, "p1"), signal.SIGTERM)
    assert session.wait_process("p1", timeout=30)["exit_status"] == 3
    assert session.tail("p1").text.endswith("bye\r\n")


def test_a_record_of_another_boot_is_no_process_of_this_one(rig: Rig) -> None:
    """The pid may belong to anybody by now: nobody is signalled, and the end is told as what it was."""
    session = rig.attach()
    session.execute("1")
    session.spawn(["sleep", "1000"], name="web")
    path = rig.file.directory / "processes" / "web.json"
    record = json.loads(path.read_bytes())
    session.signal("web", signal.SIGKILL)
    session.wait_process("web", timeout=30)
    eventually(lambda: not process.is_alive(process.ProcessId(**record["holder"])), what="its holder left")
    rig.kill(rig.supervisor_pid())
    stranger = process.identify(rig.kernel_pid()) or pytest.fail("no kernel")
    boot = "00000000-0000-0000-0000-000000000000"
    record |= {"pid": stranger.pid, "start_time": stranger.start_time, "boot_id": boot}
    record["holder"] = {"pid": stranger.pid, "start_time": stranger.start_time, "boot_id": boot}
    path.write_text(json.dumps(record))
    (rig.file.directory / "processes" / "web.status").unlink()
    row = only(rig.attach("agent:b"))
    assert (row["ended"], row["exit_status"], row["signal"]) == (True, None, None)
    assert row["evidence"]["found"] == "the machine was started anew"
    assert process.is_alive(stranger)


def test_supervisors_killed_again_and_again_under_one_that_talks(rig: Rig) -> None:
    """Nothing of the log is lost, and its end is journaled once."""
    session = rig.attach()
    session.spawn(["sh", "-c", "for i in $(seq 1 400); do echo line $i; sleep 0.005; done; exit 9"])
    for _ in range(3):
        rig.kill(rig.supervisor_pid())
        session = rig.attach_anew()
    assert session.wait_process("p1", timeout=30)["exit_status"] == 9
    assert session.tail("p1").text == "".join(f"line {i}\r\n" for i in range(1, 401))
    assert [type(fact).__name__ for fact in facts(rig)] == ["ProcessSpawned", "ProcessEnded"]
