"""`krt lab`: one JupyterLab, found or started, and ended without a session noticing."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
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


def _refused(exit_code: int, kind: str, *args: str, home: Path | None = None) -> dict[str, Any]:
    """What `krt lab` says when it starts nothing: words and a next step, and no traceback."""
    done = krt("lab", "--no-browser", "--json", *args, KRT_HOME=str(home or places.home()))
    assert done.returncode == exit_code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    assert (error["type"], bool(error["hint"])) == (kind, True)
    assert not (places.runtime_dir() / "lab.json").exists()
    return error


def test_a_wrong_name_starts_nothing(root: Path) -> None:
    assert "no session nobody" in _refused(3, "NoSuchSession", "nobody")["message"]
    full_width = "".join(chr(ord(letter) + 0xFEE0) for letter in "alice")
    assert full_width in _refused(2, "InvalidName", full_width)["message"]


def test_a_wrong_directory_starts_nothing(root: Path) -> None:
    missing, file = root / "missing", root / "file"
    file.write_text("")
    for wrong in (missing, file):
        assert str(wrong) in _refused(2, "UsageError", "--root", str(wrong))["message"]


def test_a_wrong_address_starts_nothing(root: Path) -> None:
    error = _refused(2, "UsageError", "--root", str(root), "--ip", "192.0.2.1")
    assert "192.0.2.1 is no address of this machine" in error["message"]


def test_a_place_of_its_own_that_cannot_be_made(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = _refused(4, "LabFault", "--root", str(root), home=tmp_path / "file" / "home")
    assert "KRT_HOME" in error["hint"]


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
    assert (error["type"], error["message"]) == ("LabFault", f"port {port} is taken on 127.0.0.1")
    assert "--port 0" in error["hint"]


def test_two_at_once_start_one(root: Path) -> None:
    with ThreadPoolExecutor(2) as two:
        calls = [
            two.submit(krt_json, "lab", "--no-browser", "--root", str(root), timeout=120) for _ in range(2)
        ]
        found = [call.result() for call in calls]
    try:
        assert sorted(one["started"] for one in found) == [False, True]
        assert found[0]["pid"] == found[1]["pid"]
        # what was asked for and is not so is told; the server that runs goes on
        (root / "other").mkdir()
        other = krt("lab", "--no-browser", "--root", str(root / "other"), "--port", "1")
        assert f"serves {root}" in other.stderr
        assert "listens at port" in other.stderr
        # a session made a moment ago is known when its address is asked for
        with running_session("new", cwd=root):
            assert krt_json("lab", "new", "--no-browser")["path"] == "krt-sessions/new.ipynb"
            # one that hangs is told of as that, and ended all the same
            who = process.identify(found[0]["pid"])
            assert who is not None
            process.signal_process(who, signal.SIGSTOP)
            hangs = krt_json("lab", "new", "--no-browser", exit_code=4)["error"]
            assert f"pid {who.pid}) and does not answer" in hangs["message"]
            assert "krt lab --stop" in hangs["hint"]
    finally:
        krt_json("lab", "--stop")
