"""`krt lab NAME` at a JupyterLab that does not know the session's notebook: why not is told apart."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel_runtime import process
from kernel_runtime.cli import lab, lab_server
from kernel_runtime.client import session_files
from kernel_runtime.errors import LabFault, NoSuchNotebook


@contextmanager
def knows(rows: list[dict[str, Any]], root: Path) -> Iterator[lab_server.Lab]:
    """A server that tells of these sessions, and never of others."""

    class Told(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(rows).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    me = process.identify(os.getpid())
    assert me is not None
    with ThreadingHTTPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/"
            yield lab_server.Lab(process=me, url=url, token="t", root=str(root))
        finally:
            server.shutdown()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_KNOWN_WITHIN", 0.0)


def test_a_server_that_has_not_looked_is_not_told_as_one_that_serves_elsewhere(krt_home: Path) -> None:
    """Mechanism: a server under load lists a new session before it knows its notebook. Right: told as
    slow, with what to do; "lies outside" only of a notebook that does.
    """
    inside = krt_home.parent / "work"
    inside.mkdir()
    session_files.create("alice", notebook=inside / "alice.ipynb")
    with knows([{"name": "alice", "path": None}], inside) as running:
        with pytest.raises(LabFault, match="has not seen it within") as fault:
            lab._path_of(running, "alice")
        assert "try again" in (fault.value.hint or "")
        elsewhere = msgspec.structs.replace(running, root=str(krt_home))
        with pytest.raises(NoSuchNotebook, match="lies outside") as missing:
            lab._path_of(elsewhere, "alice")
        assert "--root DIR" in (missing.value.hint or "")


def test_a_server_of_another_home_is_told(krt_home: Path) -> None:
    session_files.create("bob")
    with knows([], krt_home) as running, pytest.raises(NoSuchNotebook, match="another KRT_HOME"):
        lab._path_of(running, "bob")
