"""`/kernel-runtime/api/`: what the page asks of a session."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime import places
from kernel_runtime.client import session_files, spawn
from tests.contract.stock import executions, journal, kernel_of, kill
from tests.jupyter.server import TOKEN, Server
from tests.support import eventually


@pytest.fixture(autouse=True)
def _attached(server: Server, session: kr.Session) -> None:
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="the session is one of the kernels")


def _execute(server: Server, session: kr.Session, source: str, status: int = 202, **how: Any) -> Any:
    return server.post(server.api(session.name, "execute"), {"source": source, **how}, status)


def _settled(server: Server, session: kr.Session, execution_id: str, wait: float = 30) -> Any:
    return server.get(server.api(session.name, f"executions/{execution_id}?wait={wait}"))


def _overview(server: Server, session: kr.Session, query: str = "") -> Any:
    return server.get(server.api(session.name, "overview") + query)


def test_an_execution_from_intent_to_end(server: Server, session: kr.Session) -> None:
    accepted = _execute(server, session, "1 / 0", cell_id="c1", key="k1", client="page")
    assert accepted["cell_id"] == "c1"
    assert not accepted["recorded"]
    ended = _settled(server, session, accepted["execution_id"])
    assert (ended["status"], ended["outcome"], ended["error"]["ename"]) == (
        "done",
        "error",
        "ZeroDivisionError",
    )
    again = _execute(server, session, "1 / 0", cell_id="c1", key="k1", client="page")
    assert again["recorded"]
    assert again["execution_id"] == accepted["execution_id"]
    refused = _execute(server, session, "2", 409, cell_id="c1", key="k1")
    assert refused["error"]["type"] == "KeyConflict"
    (row,) = executions(session)
    assert (row.principal, row.key, row.cell_id) == (places.principal(), "k1", "c1")


def test_a_failing_cell_aborts_the_queue_of_its_own_page(
    server: Server, session: kr.Session, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = _execute(server, session, f"open({str(gate)!r}).read(); 1/0", client="one")
    mine = _execute(server, session, "1", client="one")
    other = _execute(server, session, "2", client="two")
    eventually(lambda: executions(session)[0].status == "running", what="it runs")
    gate.write_text("")
    outcomes = [_settled(server, session, each["execution_id"])["outcome"] for each in (first, mine, other)]
    assert outcomes == ["error", "aborted", "ok"]


def test_a_prompt_is_shown_and_the_first_answer_wins(server: Server, session: kr.Session) -> None:
    asks = _execute(server, session, "import getpass; s = getpass.getpass('pin: ')", cell_id="c1")
    blocked = _settled(server, session, asks["execution_id"])
    assert (blocked["status"], blocked["blocked"]["prompt"]) == ("blocked", "pin: ")
    shown = _overview(server, session)["blocked"]
    assert (shown["cell_id"], shown["prompt"], shown["password"]) == ("c1", "pin: ", True)
    answer = server.api(session.name, "answer")
    assert server.post(answer, {"text": "1234"})["execution_id"] == asks["execution_id"]
    assert server.post(answer, {"text": "late"}, 409)["error"]["type"] == "NotBlocked"
    assert _settled(server, session, asks["execution_id"])["outcome"] == "ok"
    assert _overview(server, session)["blocked"] is None


def test_an_overview_waits_for_news(server: Server, session: kr.Session) -> None:
    head = _overview(server, session)["head"]
    timer = threading.Timer(0.5, lambda: session.submit("x = 1"))
    timer.start()
    found = _overview(server, session, f"?after={head}&wait=30")
    timer.join()
    assert found["head"] > head
    settled = eventually(
        lambda: (o := _overview(server, session))["counts"]["live"] == 1 and o, what="the cell is live"
    )
    assert settled["default_truth"] == "live"
    assert settled["cells"] == {}
    assert [name["name"] for name in settled["names"]] == ["x"]


def test_what_waits_or_runs_is_shown_as_that(server: Server, session: kr.Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = _execute(server, session, f"open({str(gate)!r}).read()", cell_id="c1")
    second = _execute(server, session, "y = 1", cell_id="c2")
    eventually(lambda: executions(session)[0].status == "running", what="it runs")
    shown = _overview(server, session)
    assert {name: cell["status"] for name, cell in shown["cells"].items()} == {
        "c1": "running",
        "c2": "queued",
    }
    assert (shown["counts"]["unknown"], shown["under_way"]["running"], shown["lost"]) == (0, 1, False)
    assert shown["running"] == first["execution_id"]
    gate.write_text("")
    assert _settled(server, session, second["execution_id"])["outcome"] == "ok"


def test_whose_heap_is_gone_over_losses_and_acceptance(server: Server, session: kr.Session) -> None:
    first = _execute(server, session, "x = 1")
    _settled(server, session, first["execution_id"])
    assert not _overview(server, session)["heap_lost"]
    session.restart()
    # it is another person's restart: who looks has lost the heap, and looking joins nothing
    for _ in range(3):
        found = _overview(server, session)
        assert (found["heap_lost"], found["lost"]) == (True, True)
    server.post(server.api(session.name, "accept"))
    assert not _overview(server, session)["heap_lost"]
    reader = journal(session)
    entries = reader.entries(kinds=("PrincipalAttached",))
    reader.close()
    # in the first they ran a cell; in the second they are because they looked
    assert [e.incarnation for e in entries if e.principal == places.principal()] == [2]
    # what was accepted is behind them, and the next loss is a loss again
    kill(kernel_of(session))
    eventually(lambda: _overview(server, session)["state"] == "dead", what="dead")
    assert _overview(server, session)["heap_lost"]


def test_heap_loss_is_shown_and_refused_until_accepted(server: Server, session: kr.Session) -> None:
    first = _execute(server, session, "x = 1", cell_id="c1")
    _settled(server, session, first["execution_id"])
    _overview(server, session)
    kill(kernel_of(session))
    eventually(lambda: _overview(server, session)["state"] == "dead", what="the overview says so")
    dead = _overview(server, session)
    assert dead["default_truth"] == "lost" or dead["cells"]["c1"]["truth"] == "lost"
    assert server.post(server.api(session.name, "start"))["incarnation"] == 2
    for _ in range(3):  # looking is not accepting
        assert _overview(server, session)["heap_lost"]
    refused = _execute(server, session, "x", 409, cell_id="c1")
    assert refused["error"]["type"] == "HeapLost"
    assert refused["error"]["report"]["counts"]["lost"] == 1
    assert server.post(server.api(session.name, "accept"))["incarnation"] == 2
    assert not _overview(server, session)["heap_lost"]
    _execute(server, session, "x = 2", cell_id="c1")


def test_a_stopped_sessions_overview_starts_nothing(server: Server, session: kr.Session) -> None:
    session.execute("x = 1")
    session.stop()
    found = _overview(server, session)
    assert (found["state"], found["default_truth"], found["counts"]["lost"]) == ("stopped", "lost", 1)
    rows = server.get("/kernel-runtime/api/sessions")
    assert next(row["supervisor_pid"] for row in rows if row["name"] == session.name) is None
    session.start()


def test_looking_at_a_session_that_is_being_stopped_lets_it_stop(server: Server, session: kr.Session) -> None:
    path = server.api(session.name, "overview")
    enough = threading.Event()

    def look() -> None:
        while not enough.is_set():
            server.get(path)
            server.get("/kernel-runtime/api/sessions")

    pages = [threading.Thread(target=look) for _ in range(3)]
    for page in pages:
        page.start()
    try:
        for _ in range(3):
            session.start()
            session.stop()
            eventually(lambda: server.get(path)["state"] == "stopped", what="it is stopped")
            assert not spawn.is_running(session_files.load(session.name))
    finally:
        enough.set()
        for page in pages:
            page.join()
    assert not spawn.is_running(session_files.load(session.name))
    session.start()


def test_claims_restart_interrupt_detach(server: Server, session: kr.Session) -> None:
    session.claim("there is an x", probe="name x exists")
    checked = server.post(server.api(session.name, "claims/check"))["claims"]
    assert [(claim["text"], claim["truth"]) for claim in checked] == [("there is an x", "false")]
    assert _overview(server, session)["claims"][0]["truth"] == "false"
    assert server.post(server.api(session.name, "interrupt"))["reached"] == "nothing-running"
    assert server.post(server.api(session.name, "restart"))["incarnation"] == 2
    assert server.post(server.api(session.name, "detach")) == {"detached": True}
    assert server.kernel_of(session.name) not in server.kernels()
    assert session.row()["incarnation"] == 2


def test_wrong_requests_say_what_is_wrong(server: Server, session: kr.Session) -> None:
    assert _execute(server, session, None, 400)["error"]["type"] == "UsageError"  # type: ignore[arg-type]
    assert server.post(server.api(session.name, "answer"), {}, 400)["error"]["hint"]
    api = "/kernel-runtime/api/kernels/00000000-0000-0000-0000-000000000000"
    assert server.post(f"{api}/execute", {"source": "1"}, 404)["error"]["type"] == "NotFound"
    status, document = server.ask("GET", server.api(session.name, "executions/none?wait=1"))
    assert (status, document["error"]["type"]) == (404, "NoSuchExecution")
    status, document = server.ask("GET", server.api(session.name, "overview?after=x"))
    assert (status, document["error"]["type"]) == (400, "UsageError")


def test_nothing_is_told_without_the_token(server: Server, session: kr.Session) -> None:
    for method, what in (
        ("GET", "overview"),
        ("POST", "execute"),
        ("POST", "answer"),
        ("GET", "executions/x"),
    ):
        path = server.api(session.name, what)
        assert server.ask(method, path, {} if method == "POST" else None, token="")[0] == 403
    assert server.ask("GET", "/kernel-runtime/api/sessions", token="")[0] == 403
    assert server.ask("GET", "/kernel-runtime/api/sessions", Host="evil.example")[0] == 403


def test_the_token_is_in_no_log(server: Server, session: kr.Session) -> None:
    server.ask("GET", f"/kernel-runtime/api/sessions?token={TOKEN}", token="")
    server.ask("GET", f"/kernel-runtime/api/nothing?token={TOKEN}", token="")
    assert TOKEN not in server.log.read_text()
