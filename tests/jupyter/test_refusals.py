"""Whatever is wrong with a request, the page is told in a sentence that it can show."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from kernel_runtime.client import session_files
from tests.contract.stock import executions, kernel_of, kill, running_session, supervisor_of
from tests.jupyter.server import TOKEN, Server
from tests.support import eventually


def _kernel(server: Server, session: kr.Session) -> str:
    kernel_id = server.kernel_of(session.name)
    eventually(lambda: kernel_id in server.kernels(), what="the session is one of the kernels")
    return kernel_id


def _refused(found: tuple[int, Any], status: int, kind: str, *words: str) -> Any:
    """Told as it is to be: in words, with what to do next, and where stock's pages look, too."""
    assert found[0] == status, found
    error = found[1]["error"]
    assert error["type"] == kind, error
    assert error["hint"], error
    assert found[1]["message"] == error["message"]
    assert "Traceback" not in str(found[1])
    for word in words:
        assert word in error["message"] + error["hint"], error
    return error


def _raw(server: Server, path: str, body: bytes) -> tuple[int, Any]:
    """POST of these bytes."""
    import json

    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data=body, method="POST")
    request.add_header("Authorization", f"token {TOKEN}")
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def test_each_refusal_of_a_cell(server: Server, session: kr.Session) -> None:
    _kernel(server, session)
    path = server.api(session.name, "execute")

    def run(source: str = "x = 1", **how: Any) -> tuple[int, Any]:
        return server.ask("POST", path, {"source": source, **how})

    first = run("1 / 0", key="k")
    assert first[0] == 202
    server.get(server.api(session.name, f"executions/{first[1]['execution_id']}?wait=30"))
    _refused(run("2", key="k"), 409, "KeyConflict", session.name)
    _refused(run(expect_incarnation=7), 409, "IncarnationMismatch", session.name)
    _refused(run(after=first[1]["execution_id"]), 409, "Refused", "ended in error")
    _refused(run(after="no-such-execution"), 404, "NoSuchExecution", "no-such-execution")
    _refused(run(source="\ud800"), 400, "InvalidSource")
    kill(kernel_of(session))
    eventually(lambda: session.row()["state"] == "dead", what="it is dead")
    lost = _refused(run(), 409, "HeapLost", session.name)
    assert lost["report"]["counts"]["lost"] == 1
    # none of them left anything behind
    assert len(executions(session)) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b"[]",
        b'"x = 1"',
        b"{}",
        b'{"source": 1}',
        b'{"source": null}',
        b'{"source": "1", "key": 5}',
        b'{"source": "1", "accept": "yes"}',
        b'{"source": "1", "expect_incarnation": "two"}',
        b'{"source": "1", "stop_on_error": null}',
        b'{"source": "1", "client": {}}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
def test_a_body_that_cannot_be_read(server: Server, session: kr.Session, body: bytes) -> None:
    _kernel(server, session)
    _refused(_raw(server, server.api(session.name, "execute"), body), 400, "UsageError", "body")
    assert executions(session) == []


def test_what_an_answer_and_an_interrupt_must_be(server: Server, session: kr.Session) -> None:
    _kernel(server, session)
    answer, interrupt = server.api(session.name, "answer"), server.api(session.name, "interrupt")
    wrong: Any
    for wrong in ({}, {"text": "a", "eof": True}, {"text": 5}, {"eof": "yes"}):
        _refused(server.ask("POST", answer, wrong), 400, "UsageError")
    _refused(server.ask("POST", answer, {"text": "a"}), 409, "NotBlocked", session.name)
    _refused(server.ask("POST", interrupt, {"execution_id": 5}), 400, "UsageError")


def test_numbers_that_are_none(server: Server, session: kr.Session) -> None:
    _kernel(server, session)
    for query in ("after=x", "after=1&wait=soon"):
        _refused(
            server.ask("GET", server.api(session.name, f"overview?{query}")), 400, "UsageError", "number"
        )


@pytest.mark.parametrize(
    "kernel_id", ["00000000-0000-0000-0000-000000000000", "alice", "%EF%BD%81", "..%2F.."]
)
def test_a_kernel_that_is_no_sessions(server: Server, kernel_id: str) -> None:
    api = f"/kernel-runtime/api/kernels/{kernel_id}"
    for method, what in (
        ("GET", "overview"),
        ("POST", "execute"),
        ("POST", "restart"),
        ("GET", "executions/x"),
    ):
        body = {"source": "1"} if method == "POST" else None
        _refused(server.ask(method, f"{api}/{what}", body), 404, "NotFound", "krt ls")


def test_an_address_that_is_none(server: Server, session: kr.Session) -> None:
    kernel_id = _kernel(server, session)
    api = "/kernel-runtime/api"
    for path in (api, f"{api}/nothing", f"{api}/kernels/{kernel_id}", f"{api}/kernels/{kernel_id}/dance"):
        _refused(server.ask("GET", path), 404, "NotFound", path)
    _refused(server.ask("POST", f"{api}/nothing", {}), 404, "NotFound")
    _refused(server.ask("GET", f"{api}/kernels/{kernel_id}/execute"), 405, "UsageError", "GET")


def test_without_a_token_it_says_how_to_get_in(server: Server, session: kr.Session) -> None:
    kernel_id = _kernel(server, session)
    api = f"/kernel-runtime/api/kernels/{kernel_id}"
    for method, what in (("GET", "overview"), ("POST", "execute"), ("GET", "no-such")):
        body: Any = {} if method == "POST" else None
        for token in ("", "wrong"):
            _refused(server.ask(method, f"{api}/{what}", body, token=token), 403, "NotAllowed", "krt lab")


def test_a_session_that_was_removed_meanwhile(server: Server) -> None:
    """Told by its name until the server has seen that it is gone, by its kernel afterwards."""
    with running_session("gone", cwd=server.root, notebook=server.root / "gone.ipynb") as session:
        kernel_id = _kernel(server, session)
    api = f"/kernel-runtime/api/kernels/{kernel_id}"
    session_files.remove("gone")
    for method, what in (("GET", "overview"), ("POST", "execute"), ("POST", "interrupt"), ("POST", "start")):
        body = {"source": "1"} if method == "POST" else None
        status, told = server.ask(method, f"{api}/{what}", body)
        assert (status, told["error"]["type"]) in ((404, "NoSuchSession"), (404, "NotFound")), told
    eventually(
        lambda: server.ask("GET", f"{api}/overview")[1]["error"]["type"] == "NotFound",
        what="the server has seen it",
    )
    _refused(server.ask("GET", f"{api}/overview"), 404, "NotFound", "krt ls")


def test_a_supervisor_that_was_killed_is_no_error(server: Server, session: kr.Session) -> None:
    _kernel(server, session)
    session.execute("x = 1")
    kill(supervisor_of(session))
    assert server.get(server.api(session.name, "overview"))["state"] in ("idle", "busy")
    ran = server.post(server.api(session.name, "execute"), {"source": "x", "accept": True}, 202)
    ended = server.get(server.api(session.name, f"executions/{ran['execution_id']}?wait=30"))
    assert ended["outcome"] == "ok"


def test_the_servers_own_routes_say_it_too(server: Server, session: kr.Session) -> None:
    """Where jupyter_server words the answer: our sentence, and nothing of HTTP around it."""
    _kernel(server, session)
    path = Path(session_files.load(session.name).notebook).name
    server.ask("DELETE", f"/api/kernels/{server.kernel_of(session.name)}")
    asked = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "bash"}}
    status, told = server.ask("POST", "/api/sessions", asked)
    assert status == 500
    assert told["message"].startswith(f"{path} is the notebook of session {session.name}")
    assert "krt new" in told["message"]
