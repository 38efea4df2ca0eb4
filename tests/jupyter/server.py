"""A Jupyter server with our extension as a process of its own, and what a page would say to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import websocket

from kernel_runtime import process
from tests.jupyter.installed import Installed
from tests.support import eventually

Message = dict[str, Any]

TOKEN = "a-token-of-a-test-server"
_START = 60.0
_PATIENCE = 60.0


class Server:
    """`jupyter server` on `root`. Killed and started again, it has the same port."""

    module = "jupyter_server"
    """what Python runs"""
    installed: Installed | None = None
    """where it runs, with nothing said of our extension; None: in the tests' own environment"""
    beside_theirs = False
    """its configuration is one of those that Jupyter finds, beside a person's; else it is the only one"""

    def __init__(self, root: Path, **config: dict[str, Any]) -> None:
        self.root = root
        self.log = root.parent / "server.log"
        self.port = 0
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, patience: float = _START) -> None:
        """Returns once its sessions are attached."""
        python, environment, named = sys.executable, dict[str, str](), {"kernel_runtime.jupyter": True}
        if self.installed is not None:
            python, environment, named = self.installed.python, self.installed.environment(), {}
        document = {
            "ServerApp": {
                **({"jpserver_extensions": named} if named else {}),
                "root_dir": str(self.root),
                "ip": "127.0.0.1",
                "port": self.port,
                "open_browser": False,
                "allow_root": True,
                **self._config.get("ServerApp", {}),
            },
            "IdentityProvider": {"token": TOKEN},
            **{name: traits for name, traits in self._config.items() if name != "ServerApp"},
        }
        argv = [python, "-m", self.module]
        if self.beside_theirs:
            config = self.root.parent / "server-config" / "jupyter_server_config.json"
            config.parent.mkdir(exist_ok=True)
            found = [str(config.parent), *filter(None, [environment.get("JUPYTER_CONFIG_PATH")])]
            environment["JUPYTER_CONFIG_PATH"] = os.pathsep.join(found)
        else:
            config = self.root.parent / "server.json"
            argv.append(f"--config={config}")
        config.write_text(json.dumps(document))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
            )
        try:
            self.port = eventually(self._listens, _START, "the server tells its port")
            eventually(lambda: self.answers("/kernel-runtime/api/sessions"), patience, "it answers")
        except AssertionError as late:
            self.kill()
            raise AssertionError(f"{late}\n{self.log.read_text()[-4000:]}") from late

    def _listens(self) -> int:
        from jupyter_core.paths import jupyter_runtime_dir

        assert self._process is not None
        assert self._process.poll() is None, "the server has ended"
        path = Path(jupyter_runtime_dir()) / f"jpserver-{self._process.pid}.json"
        try:
            return int(json.loads(path.read_text())["port"])
        except (FileNotFoundError, ValueError):
            return 0

    def stop(self) -> None:
        """As the terminal's Ctrl-C, confirmed."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=30)
        self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=30)
        self._process = None

    # HTTP

    def answers(self, path: str) -> bool:
        try:
            self.get(path)
        except OSError:
            return False
        return True

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        """Status and document."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        if token:
            request.add_header("Authorization", f"token {token}")
        try:
            with urllib.request.urlopen(request, timeout=90) as reply:
                return reply.status, _document(reply.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _document(refused.read())

    def get(self, path: str) -> Any:
        status, document = self.ask("GET", path)
        assert status == 200, (path, status, document)
        return document

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        found, document = self.ask("POST", path, {} if body is None else body)
        assert found == status, (path, found, document)
        return document

    def kernels(self) -> dict[str, Any]:
        """Models by id."""
        return {model["id"]: model for model in self.get("/api/kernels")}

    def rows(self) -> dict[str, Any]:
        """Jupyter's session models by path."""
        return {model["path"]: model for model in self.get("/api/sessions")}

    def row(self, path: str) -> Any:
        """That of a notebook's session, once it is there: a session's kernel is told a moment before."""
        return eventually(lambda: self.rows().get(path), 30, f"a row of {path}")

    def kernel_of(self, name: str) -> str:
        """The kernel id of a session."""
        rows = self.get("/kernel-runtime/api/sessions")
        return str(next(row["kernel_id"] for row in rows if row["name"] == name))

    def api(self, name: str, what: str) -> str:
        return f"/kernel-runtime/api/kernels/{self.kernel_of(name)}/{what}"

    @contextmanager
    def channels(self, kernel_id: str, *, v1: bool = False) -> Iterator[Channels]:
        """A websocket to a kernel, as a page opens one."""
        session = uuid.uuid4().hex
        socket = websocket.create_connection(
            f"ws://127.0.0.1:{self.port}/api/kernels/{kernel_id}/channels?session_id={session}&token={TOKEN}",
            subprotocols=["v1.kernel.websocket.jupyter.org"] if v1 else None,
            timeout=_START,
        )
        try:
            yield Channels(socket, session, v1=v1)
        finally:
            socket.close()


def _document(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode()


class Channels:
    """The four channels of one websocket."""

    def __init__(self, socket: websocket.WebSocket, session: str, *, v1: bool) -> None:
        self.socket = socket
        self.session = session
        self._v1 = v1

    def send(
        self,
        channel: str,
        msg_type: str,
        content: Any,
        *,
        username: str = "",
        parent: Any = None,
        **metadata: Any,
    ) -> str:
        """Its msg_id."""
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id,
            "msg_type": msg_type,
            "username": username,
            "session": self.session,
            "version": "5.3",
            "date": "2026-01-01T00:00:00Z",
        }
        if self._v1:
            parts = [json.dumps(part).encode() for part in (header, parent or {}, metadata, content)]
            self.socket.send_binary(_packed(channel.encode(), parts))
        else:
            message = {
                "channel": channel,
                "header": header,
                "parent_header": parent or {},
                "metadata": metadata,
                "content": content,
                "buffers": [],
            }
            self.socket.send(json.dumps(message))
        return msg_id

    def execute(self, code: str, **how: Any) -> str:
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
            "stop_on_error": True,
        }
        return self.send("shell", "execute_request", content, **how)

    def receive(self) -> Message:
        raw = self.socket.recv()
        if not self._v1:
            message: Message = json.loads(raw)
            message["msg_type"] = message["header"]["msg_type"]
            return message
        assert isinstance(raw, bytes)
        channel, parts = _unpacked(raw)
        header, parent, metadata, content = (json.loads(part) for part in parts[:4])
        return {
            "channel": channel,
            "header": header,
            "msg_type": header["msg_type"],
            "parent_header": parent,
            "metadata": metadata,
            "content": content,
        }

    def until(self, last: Callable[[Message], bool]) -> list[Message]:
        """What comes, up to the first that `last` is true of."""
        found: list[Message] = []
        deadline = time.monotonic() + _PATIENCE
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"not said within {_PATIENCE} s; what was: {found}"
            self.socket.settimeout(left)
            try:
                found.append(self.receive())
            except websocket.WebSocketTimeoutException:
                continue
            if last(found[-1]):
                return found

    def line(self) -> str:
        """What is printed, up to the end of a line, in however many messages."""
        said: list[str] = []

        def ended(message: Message) -> bool:
            if message["msg_type"] == "stream":
                said.append(message["content"]["text"])
            return "".join(said).endswith("\n")

        self.until(ended)
        return "".join(said)

    def connected(self) -> None:
        """As a page does that connects: ask what kernel it is, until what is published is heard too.

        The server subscribes to that for it, which takes a moment, and stock waits for it only where the
        kernel is idle. What a cell prints meanwhile is in the journal and the document, not on this socket.
        """
        heard = False
        while not heard:
            self.send("control", "kernel_info_request", {})
            heard = any(m["channel"] == "iopub" for m in self.until(lambda m: m["channel"] == "control"))

    def reply(self, msg_id: str) -> Message:
        """The reply to one request."""
        return self.until(lambda m: _is_reply(m, msg_id))[-1]

    def run(self, code: str, **how: Any) -> tuple[Message, str]:
        """The reply to a cell, and its stdout."""
        msg_id = self.execute(code, **how)
        seen = {"reply": False, "idle": False}

        def ended(m: Message) -> bool:
            if m["parent_header"].get("msg_id") == msg_id:
                seen["reply"] |= _is_reply(m, msg_id)
                seen["idle"] |= m["content"].get("execution_state") == "idle"
            return all(seen.values())

        found = self.until(ended)
        reply = next(m for m in found if _is_reply(m, msg_id))
        return reply, "".join(m["content"]["text"] for m in found if m["msg_type"] == "stream")


def _is_reply(message: Message, msg_id: str) -> bool:
    return bool(
        message["channel"] in ("shell", "control") and message["parent_header"].get("msg_id") == msg_id
    )


def _packed(channel: bytes, parts: list[bytes]) -> bytes:
    offsets = [8 * (len(parts) + 3)]
    for part in (channel, *parts):
        offsets.append(offsets[-1] + len(part))
    head = [len(offsets), *offsets]
    return b"".join([*(n.to_bytes(8, "little") for n in head), channel, *parts])


def _unpacked(raw: bytes) -> tuple[str, list[bytes]]:
    count = int.from_bytes(raw[:8], "little")
    offsets = [int.from_bytes(raw[8 * n : 8 * n + 8], "little") for n in range(1, count + 1)]
    parts = [raw[a:b] for a, b in pairwise(offsets)]
    return parts[0].decode(), parts[1:]


def is_running(pid: int) -> bool:
    return process.identify(pid) is not None
