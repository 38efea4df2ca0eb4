"""`krt lab`: one JupyterLab, found or started, and ended without a session noticing."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kernel_runtime import places, process
from tests.contract.stock import kernel_of, running_session
from tests.support import krt, krt_json


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def _get(document: dict[str, Any], path: str) -> Any:
    request = urllib.request.Request(
        document["base_url"] + path, headers={"Authorization": f"token {document['token']}"}
    )
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


def test_started_found_and_stopped(root: Path) -> None:
    with running_session("alice", cwd=root) as alice, running_session("bob", notebook=root / "bob.ipynb"):
        kernel = kernel_of(alice)
        started = krt_json("lab", "--no-browser", "--root", str(root), "--port", "0", timeout=120)
        try:
            assert started["started"]
            assert parse_qs(urlsplit(started["url"]).query) == {"token": [started["token"]]}
            # every session that ran is there when it returns
            rows = {row["path"]: row["kernel"]["id"] for row in _get(started, "api/sessions")}
            assert set(rows) == {"bob.ipynb", "krt-sessions/alice.ipynb"}
            found = krt_json("lab", "alice", "--no-browser")
            assert not found["started"]
            assert (found["pid"], found["token"]) == (started["pid"], started["token"])
            assert urlsplit(found["url"]).path == "/lab/tree/krt-sessions/alice.ipynb"
            plain = krt("lab", "bob", "--no-browser")
            assert plain.stdout.strip() == started["url"].replace("/lab?", "/lab/tree/bob.ipynb?")
            _keeps_its_token(started)
            assert sorted(path.name for path in root.iterdir()) == ["bob.ipynb"]
        finally:
            assert krt_json("lab", "--stop") == {"stopped": True}
        assert process.identify(started["pid"]) is None
        assert kernel_of(alice) == kernel
    assert krt_json("lab", "--stop") == {"stopped": False}


def _keeps_its_token(document: dict[str, Any]) -> None:
    """In files of its owner alone, and in nothing that others or programs read."""
    token, pid = document["token"], document["pid"]
    urllib.request.urlopen(document["url"], timeout=20).close()
    assert token not in Path(document["log"]).read_text()
    assert token not in " ".join(process.command_line(pid))
    assert token not in str(process.environment_of(pid))
    for path in (places.runtime_dir() / "lab.json", places.home() / "lab" / "token"):
        assert token in path.read_text()
        assert path.stat().st_mode & 0o077 == 0


def test_a_wrong_name_and_a_wrong_directory_start_nothing(root: Path) -> None:
    nobody = krt("lab", "nobody", "--no-browser")
    assert nobody.returncode == 3
    assert "no session nobody" in nobody.stderr
    assert krt("lab", "--no-browser", "--root", str(root / "missing")).returncode == 2
    assert not (places.runtime_dir() / "lab.json").exists()


def test_without_jupyterlab_it_says_what_to_install(tmp_path: Path) -> None:
    # a machine without it: its import system finds nothing of that name
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'jupyterlab' else find(name, *a)\n"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    error = krt_json("lab", "--no-browser", exit_code=4, PYTHONPATH=paths)["error"]
    assert error["type"] == "MissingPackage"
    assert "pip install kernel-runtime[lab]" in error["hint"]


def test_a_port_that_is_taken_is_told(root: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = krt("lab", "--no-browser", "--root", str(root), "--port", str(port), "--json", timeout=120)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "LabFault"
    assert str(port) in error["hint"]
