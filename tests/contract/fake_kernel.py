"""A kernel that misbehaves as told: `python fake_kernel.py CONNECTION_FILE [OPTION…]`.

The source of a cell is a list of steps, one a line. Between them the kernel does what the protocol
asks for nowhere: it leaves out, repeats, reorders. `status: busy` goes out first and nothing else by
itself.

    say TEXT          stream on stdout
    error NAME        error on iopub
    reply [STATUS]    execute_reply (ok)
    raw-reply JSON    execute_reply with that content
    idle              status: idle
    sleep SECONDS
    wait PATH         until the file is there
    touch PATH
    ask PROMPT        input_request; says what is answered
    late TEXT         stream of the cell before this one
    bad               an iopub message that is none
    await-interrupt   until SIGINT
    die SIGNAL

`--mute`: nothing on iopub. `--handover`: its sockets let a peer come back under its old name at once,
as ipykernel's do. `--eager`: answers kernel_info on shell while a cell waits, as ipymini does.
`--deaf`: loses what comes first on shell.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session


class FakeKernel:
    """One thread for shell, one for control."""

    def __init__(self, path: str, *, mute: bool, handover: bool, eager: bool, deaf: bool) -> None:
        info = json.loads(Path(path).read_text())
        self.mute = mute
        self.eager = eager
        self.deaf = deaf
        self.session = Session(key=info["key"].encode(), username="fake")
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        for name in ("shell", "control", "stdin", "iopub", "hb"):
            kind = {"iopub": zmq.PUB, "hb": zmq.REP}.get(name, zmq.ROUTER)
            socket = self.context.socket(kind)
            if handover and kind == zmq.ROUTER:
                socket.router_handover = 1
            socket.bind(f"tcp://{info['ip']}:{info[name + '_port']}")
            self.sockets[name] = socket
        self.lock = threading.Lock()
        self.interrupted = threading.Event()
        self.count = 0
        self.before: dict[str, Any] | None = None
        self.later: list[tuple[list[bytes], dict[str, Any]]] = []

    def publish(self, kind: str, content: dict[str, Any], parent: dict[str, Any] | None) -> None:
        if not self.mute:
            with self.lock:
                self.session.send(self.sockets["iopub"], kind, content, parent=parent, ident=kind.encode())

    def serve(self, channel: str) -> None:
        while True:
            if channel == "shell" and self.later:
                self.execute(*self.later.pop(0))
            else:
                self.answer_one(channel)

    def answer_one(self, channel: str) -> None:
        socket = self.sockets[channel]
        idents, message = self.session.recv(socket, mode=0)
        if message is None or idents is None:
            return
        if self.deaf and channel == "shell":
            self.deaf = False
            return
        kind = message["msg_type"]
        if kind == "execute_request":
            self.later.append((idents, message))
            return
        self.publish("status", {"execution_state": "busy"}, message)
        if kind == "kernel_info_request":
            content = {
                "status": "ok",
                "protocol_version": "5.3",
                "implementation": "fake",
                "implementation_version": "1",
                "language_info": {"name": "steps", "version": "1"},
                "banner": "fake",
            }
            self.session.send(socket, "kernel_info_reply", content, parent=message, ident=idents)
        if kind == "shutdown_request":
            self.session.send(socket, "shutdown_reply", {"status": "ok"}, parent=message, ident=idents)
            os._exit(0)
        self.publish("status", {"execution_state": "idle"}, message)

    def execute(self, idents: list[bytes], message: dict[str, Any]) -> None:
        self.interrupted.clear()
        self.count += 1
        self.publish("status", {"execution_state": "busy"}, message)
        if message["content"]["silent"]:
            self.step("reply", "", idents, message)
            self.step("idle", "", idents, message)
            return
        for line in message["content"]["code"].splitlines():
            step, _, rest = line.partition(" ")
            self.step(step, rest, idents, message)
        self.before = message

    def step(self, step: str, rest: str, idents: list[bytes], message: dict[str, Any]) -> None:
        """One line of a cell."""

        def reply(content: dict[str, Any]) -> None:
            self.session.send(self.sockets["shell"], "execute_reply", content, parent=message, ident=idents)

        def say(text: str, parent: dict[str, Any] | None = message) -> None:
            self.publish("stream", {"name": "stdout", "text": text + "\n"}, parent)

        steps: dict[str, Callable[[], object]] = {
            "say": lambda: say(rest),
            "late": lambda: say(rest, self.before),
            "error": lambda: self.publish(
                "error", {"ename": rest, "evalue": "", "traceback": [rest]}, message
            ),
            "reply": lambda: reply({"status": rest or "ok", "execution_count": self.count}),
            "raw-reply": lambda: reply(json.loads(rest)),
            "idle": lambda: self.publish("status", {"execution_state": "idle"}, message),
            "sleep": lambda: time.sleep(float(rest)),
            "wait": lambda: self.wait_for(Path(rest)),
            "touch": Path(rest).touch,
            "await-interrupt": self.interrupted.wait,
            "die": lambda: os.kill(os.getpid(), int(rest)),
            "bad": self.publish_nonsense,
            "ask": lambda: say("answered " + self.ask(rest, idents, message)),
        }
        steps[step]()

    def wait_for(self, path: Path) -> None:
        while not path.exists():
            time.sleep(0.01)
            if self.eager and self.sockets["shell"].poll(0):
                self.answer_one("shell")

    def publish_nonsense(self) -> None:
        frames = [b"bad", b"<IDS|MSG>", b"", b"{}", b"[]", b"{}", b"no JSON"]
        frames[2] = self.session.sign(frames[3:])
        with self.lock:
            self.sockets["iopub"].send_multipart(frames)

    def ask(self, prompt: str, idents: list[bytes], message: dict[str, Any]) -> str:
        stdin = self.sockets["stdin"]
        content = {"prompt": prompt, "password": False}
        self.session.send(stdin, "input_request", content, parent=message, ident=idents)
        _, answer = self.session.recv(stdin, mode=0)
        assert answer is not None
        return str(answer["content"]["value"])

    def run(self) -> None:
        signal.signal(signal.SIGINT, lambda *_: self.interrupted.set())
        for channel in ("shell", "control"):
            threading.Thread(target=self.serve, args=(channel,), daemon=True).start()
        heart = self.sockets["hb"]
        while True:
            heart.send(heart.recv())


if __name__ == "__main__":
    FakeKernel(
        sys.argv[1],
        mute="--mute" in sys.argv,
        handover="--handover" in sys.argv,
        eager="--eager" in sys.argv,
        deaf="--deaf" in sys.argv,
    ).run()
