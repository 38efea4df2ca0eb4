"""`krt lab` as a person starts it, and ways to end it that no person would choose.

It is a process of its own with this test module's KRT_HOME, and serves one directory. Its port and token
stay the same when it comes back under a page that is open.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from kernel_runtime import places, process
from tests.support import eventually, krt_json

COMMAND = [sys.executable, "-m", "kernel_runtime.cli", "lab"]
_START = 60.0
"""seconds for a JupyterLab on a busy machine"""


class LabServer:
    """A JupyterLab on `root`, with every session of this KRT_HOME."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root.parent / "lab.log"
        """what it and `krt lab` said on stdout and stderr, over all its lives"""
        self.url = ""
        """as `krt lab` prints it: with the token"""
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    # its life

    def start(self) -> None:
        """Start it; returns once it answers."""
        said = self.root.parent / "lab.json"
        with said.open("wb") as out, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "--no-browser", "--port", str(self.port), "--root", str(self.root), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=self.root,
            )
        try:
            self.url = eventually(lambda: self._printed(said), _START, "`krt lab` prints its URL")
            self.port = int(urlsplit(self.url).port or 0)
            eventually(self._answers, _START, "JupyterLab answers")
        except AssertionError as late:
            self.kill()
            raise AssertionError(f"{late}\n{self.log.read_text()[-4000:]}") from late

    def _printed(self, said: Path) -> str:
        try:
            document, _ = json.JSONDecoder().raw_decode(said.read_text())
        except ValueError:
            assert self._process is not None
            assert self._process.poll() in (None, 0), "`krt lab` has ended"
            return ""
        return str(document["url"])

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() in (None, 0), "`krt lab` has ended"
        return self.status("/api/status", self.token) == 200

    def kill(self) -> None:
        """SIGKILL, as the machine's out-of-memory killer would."""
        there = self._processes()
        for who in there:
            process.signal_process(who, 9)
        eventually(lambda: not any(map(process.is_alive, there)), what="JupyterLab is gone")
        self._reap()

    def stop(self) -> None:
        """`krt lab --stop`, and nothing of it is left."""
        if self._process is None:
            return
        there = self._processes()
        if there:
            krt_json("lab", "--stop")
        eventually(lambda: not any(map(process.is_alive, there)), 30, "JupyterLab stopped")
        self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=10)
        self._process = None

    def _processes(self) -> list[process.ProcessId]:
        """The server, and `krt lab` where that stays beside it."""
        assert self._process is not None
        pids = [self._process.pid]
        record = places.runtime_dir() / "lab.json"
        if record.exists():
            pids.append(int(json.loads(record.read_text())["pid"]))
        found = {pid: process.identify(pid) for pid in pids}
        return [who for who in found.values() if who is not None and process.is_alive(who)]

    # what it serves

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.url).query)["token"][0]

    @property
    def base(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def page_of(self, path: str, workspace: str = "default") -> str:
        """Where a browser finds that file, in a workspace of that name: what was open there opens again."""
        return f"{self.base}/lab/workspaces/{workspace}/tree/{quote(path)}?token={self.token}"

    def status(self, path: str, token: str = "", **headers: str) -> int:
        """The status of a plain GET; 0 where nobody answers."""
        request = urllib.request.Request(self.base + path, headers=dict(headers))
        if token:
            request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as refused:
            return int(refused.code)
        except OSError:
            return 0

    def get(self, path: str) -> Any:
        """What its API answers."""
        request = urllib.request.Request(self.base + path, headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(request, timeout=20) as reply:
            return json.load(reply)
