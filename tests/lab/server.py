"""`krt lab` as a person starts it, and ways to end it that no person would choose.

It is a process of its own with this test module's KRT_HOME, and serves one directory. Its port stays the same
when it comes back under a page that is open.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kernel_runtime import process
from tests.support import eventually, krt_json


class LabServer:
    """A JupyterLab on `root`, with every session of this KRT_HOME."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = ""
        """where it is, without a slash at the end"""
        self.token = ""
        self.log = Path()
        """what it says, over all its lives"""
        self._port = 0
        self._who: process.ProcessId | None = None

    # its life

    def start(self) -> None:
        """`krt lab`; returns once it answers."""
        said = krt_json(
            "lab", "--no-browser", "--port", str(self._port), "--root", str(self.root), timeout=120
        )
        assert said["started"], "another one runs"
        self.base, self.token = str(said["base_url"]).rstrip("/"), str(said["token"])
        self.log = Path(said["log"])
        self._port = int(self.base.rpartition(":")[2])
        self._who = process.identify(int(said["pid"]))

    @property
    def who(self) -> process.ProcessId:
        assert self._who is not None
        return self._who

    def kill(self) -> None:
        """SIGKILL, as the machine's out-of-memory killer would."""
        process.signal_process(self.who, 9)
        eventually(lambda: not process.is_alive(self.who), what="JupyterLab is gone")

    def stop(self) -> None:
        """`krt lab --stop`, and nothing of it is left."""
        if self._who is not None:
            krt_json("lab", "--stop")
            eventually(lambda: not process.is_alive(self.who), 30, "JupyterLab stopped")

    # what it serves

    @property
    def port(self) -> int:
        return self._port

    def page_of(self, path: str, workspace: str = "default", base: str = "") -> str:
        """Where a browser finds that file, in a workspace of that name: what was open there opens again.
        `base` is another way to the server.
        """
        return f"{base or self.base}/lab/workspaces/{workspace}/tree/{quote(path)}?token={self.token}"

    def status(self, path: str, token: str = "", **headers: str) -> int:
        """The status of a plain GET; 0 where nobody answers."""
        request = urllib.request.Request(self.base + path, headers=dict(headers))
        if token:
            request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
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
