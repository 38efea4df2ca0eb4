"""A session's terminals among the server's: one screen for every client, and nobody's leaving ends it."""

from __future__ import annotations

import json

import websocket

import kernel_runtime as kr
from tests.jupyter.server import TOKEN, Server
from tests.support import eventually


def _names(server: Server) -> list[str]:
    return [model["name"] for model in server.get("/api/terminals")]


def _read_until(socket: websocket.WebSocket, text: str) -> str:
    said = ""
    while text not in said:
        kind, *rest = json.loads(socket.recv())
        said += rest[0] if kind == "stdout" else ""
    return said


def test_a_sessions_terminal_in_a_page(server: Server, session: kr.Session) -> None:
    process = session.spawn(
        ["sh", "-c", "echo begun; while read line; do echo said $line; done"], name="talk.er"
    )
    name = f"{session.name}_talk_er".replace("-", "_")
    assert name in _names(server)
    assert server.get(f"/api/terminals/{name}")["name"] == name
    address = f"ws://127.0.0.1:{server.port}/terminals/websocket/{name}?token={TOKEN}"
    socket = websocket.create_connection(address, timeout=20)
    _read_until(socket, "begun")
    socket.send(json.dumps(["stdin", "from the page\r"]))
    _read_until(socket, "said from the page")
    session.type(process.process_id, "from an agent\r")
    _read_until(socket, "said from an agent")
    socket.close()
    # shut down in the page: that detaches
    assert server.ask("DELETE", f"/api/terminals/{name}")[0] == 204
    assert [row["truth"] for row in session.processes() if row["process_id"] == "talk.er"] == ["true"]
    eventually(lambda: name in _names(server), what="it is still listed")
    session.signal(process.process_id)
    eventually(lambda: name not in _names(server), what="ended, it is not")


def test_other_terminals_are_stock(server: Server) -> None:
    made = server.post("/api/terminals")
    assert made["name"] in _names(server)
    assert server.ask("DELETE", f"/api/terminals/{made['name']}")[0] == 204
    assert made["name"] not in _names(server)
