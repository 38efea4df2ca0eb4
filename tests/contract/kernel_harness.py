"""A real kernel of ours, driven over its own sockets and read through its outbox; no supervisor.

The process is ended through the handle that started it, and through nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from kernel_runtime import wire
from kernel_runtime.kernel.outbox_reader import Gap, OutboxReader, StreamText
from tests.support import eventually


@dataclass
class Seen:
    """One record of the outbox, decoded."""

    kind: str
    parent: str
    content: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)


class LiveKernel:
    """`python -m kernel_runtime.kernel` in `directory`."""

    def __init__(self, directory: Path, env: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.outbox = directory / "outbox"
        self.connection = wire.ipc_connection(directory / "k", uuid.uuid4().hex)
        self.file = directory / "connection.json"
        self.file.write_bytes(self.connection.dump())
        self.signer = wire.Signer(self.connection.key.encode())
        self.log = (directory / "log").open("wb")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kernel_runtime.kernel",
                "-f",
                str(self.file),
                "--outbox",
                str(self.outbox),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self.seen: list[Seen] = []
        self.context = zmq.Context()
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        try:
            eventually(self._outbox_is_there, 30, "the kernel's outbox")
            self.reader = OutboxReader(self.outbox)
            for channel in ("shell", "control", "stdin"):
                socket = self.context.socket(zmq.DEALER)
                socket.identity = b"harness"
                socket.linger = 0
                socket.connect(self.connection.endpoint(channel))
                self.sockets[channel] = socket
            self.request("kernel_info_request", {})
            assert self.sockets["shell"].poll(30_000), self.said()
            self.info = self.signer.split(self.sockets["shell"].recv_multipart()).content_dict()
        except BaseException:
            self.close()
            raise

    def _outbox_is_there(self) -> bool:
        assert self.process.poll() is None, self.said()
        return (self.outbox / "control").exists()

    def said(self) -> str:
        """The kernel's log."""
        return (self.directory / "log").read_text(errors="replace")

    def request(self, msg_type: str, content: Any, channel: str = "shell", msg_id: str | None = None) -> str:
        frames = self.signer.build(msg_type, content, session="harness", msg_id=msg_id)
        self.sockets[channel].send_multipart([wire.DELIMITER, *frames])
        return wire.decode_header(frames[1]).msg_id

    def submit(self, code: str, *, msg_id: str | None = None, **more: Any) -> str:
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True, **more}
        return self.request("execute_request", content, msg_id=msg_id)

    def run(self, code: str, timeout: float = 20, **more: Any) -> list[Seen]:
        """Execute, wait for its idle, and give what belongs to it."""
        return self.wait(self.submit(code, **more), timeout)

    def wait(self, msg_id: str, timeout: float = 20) -> list[Seen]:
        eventually(lambda: self.idle(msg_id), timeout, f"idle of {msg_id}; log: {self.said()[-2000:]}")
        return self.of(msg_id)

    def idle(self, msg_id: str) -> bool:
        self.collect()
        return any(s.content.get("execution_state") == "idle" for s in self.of(msg_id) if s.kind == "status")

    def of(self, msg_id: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.parent == msg_id]

    def collect(self) -> None:
        """Read what the outbox holds now."""
        for record in self.reader.read(1 << 30):
            if isinstance(record, StreamText):
                parent = json.loads(record.parent).get("msg_id", "")
                self.seen.append(Seen(record.name, parent, {"text": record.text.decode()}))
            elif isinstance(record, Gap):
                self.seen.append(Seen("gap", "", {"messages": record.messages, "bytes": record.bytes}))
            elif record.channel != "probe":
                message = self.signer.split(record.frames)
                json.loads(message.content)  # valid for a reader that is stricter than ours
                self.seen.append(
                    Seen(
                        message.header.msg_type,
                        message.parent().msg_id,
                        message.content_dict(),
                        message.metadata_dict(),
                        json.loads(message.frames[1]),
                    )
                )
        self.reader.collected(self.reader.position)

    def answer(self, text: str) -> None:
        self.request("input_reply", {"value": text}, channel="stdin")

    def signal(self, signum: int) -> None:
        """To the kernel's process group, as the ladder's second step does."""
        assert self.process.poll() is None
        os.killpg(self.process.pid, signum)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.log.close()
        if hasattr(self, "reader"):
            self.reader.close()
        for socket in self.sockets.values():
            socket.close()
        self.context.term()


def text(seen: Sequence[Seen], stream: str = "stdout") -> str:
    return "".join(s.content["text"] for s in seen if s.kind == stream)


def one(seen: Sequence[Seen], kind: str) -> Seen:
    """The only record of that kind."""
    found = [s for s in seen if s.kind == kind]
    assert len(found) == 1, f"{len(found)} times {kind} in {[s.kind for s in seen]}"
    return found[0]


def reply(seen: Sequence[Seen]) -> dict[str, Any]:
    """The one reply; it comes before the one idle."""
    kinds = [(s.kind, s.content.get("execution_state")) for s in seen]
    assert kinds.index(("execute_reply", None)) < kinds.index(("status", "idle")), kinds
    return one(seen, "execute_reply").content
