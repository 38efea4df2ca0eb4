"""A page that has a document open: the shared document at the other end of the room's websocket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import websocket
from jupyter_ydoc import YNotebook
from pycrdt import (
    Doc,
    YMessageType,
    create_sync_message,
    create_update_message,
    handle_sync_message,
)

from tests.jupyter.server import TOKEN, Server

T = TypeVar("T")


class Page:
    """One client of one room. It hears of changes while something is waited for."""

    def __init__(self, server: Server, path: str, doc: Doc[Any] | None = None) -> None:
        status, found = server.ask(
            "PUT", f"/api/collaboration/session/{path}", {"format": "json", "type": "notebook"}
        )
        assert status in (200, 201), found
        room = f"{found['format']}:{found['type']}:{found['fileId']}"
        self.notebook = YNotebook(doc) if doc is not None else YNotebook()
        self.doc = self.notebook.ydoc
        self.updates = 0
        """heard"""
        self._applying = False
        self._socket = websocket.create_connection(
            f"ws://127.0.0.1:{server.port}/api/collaboration/room/{room}"
            f"?sessionId={found['sessionId']}&token={TOKEN}",
            timeout=60,
        )
        self._subscription = self.doc.observe(self._changed)
        self._socket.send_binary(create_sync_message(self.doc))

    def close(self) -> None:
        self.doc.unobserve(self._subscription)
        self._socket.close()

    def _changed(self, event: Any) -> None:
        if not self._applying:
            self._socket.send_binary(create_update_message(event.update))

    def hear(self, seconds: float) -> bool:
        """Take in one message; False when none came."""
        self._socket.settimeout(seconds)
        try:
            message = self._socket.recv()
        except (websocket.WebSocketTimeoutException, TimeoutError):
            return False
        assert isinstance(message, bytes)
        if message and message[0] == YMessageType.SYNC:
            self._applying = True
            try:
                reply = handle_sync_message(message[1:], self.doc)
            finally:
                self._applying = False
            self.updates += 1
            if reply is not None:
                self._socket.send_binary(reply)
        return True

    def until(self, seen: Callable[[], T], timeout: float = 30.0, what: str = "") -> T:
        """The first truthy value of `seen()`, while changes come in."""
        deadline = time.monotonic() + timeout
        while not (value := seen()):
            left = deadline - time.monotonic()
            if left <= 0:
                shown = json.dumps(self.cells(), indent=1)[-3000:]
                raise AssertionError(f"not within {timeout} s: {what}\n{value!r}\n{shown}")
            self.hear(min(left, 0.2))
        return value

    # what it shows

    def cells(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.notebook.ycells.to_py() or []
        return found

    def cell(self, cell_id: str) -> dict[str, Any] | None:
        return next((cell for cell in self.cells() if cell["id"] == cell_id), None)

    def sources(self) -> list[str]:
        return [cell["source"] for cell in self.cells()]

    def text(self, cell_id: str) -> str:
        """What its streams say."""
        cell = self.cell(cell_id)
        return "".join(output.get("text", "") for output in (cell or {}).get("outputs", []))

    # what people do

    def at(self, cell_id: str) -> int:
        return next(at for at, cell in enumerate(self.cells()) if cell["id"] == cell_id)

    def type(self, cell_id: str, source: str) -> None:
        """Have the cell say this."""
        self.notebook.set_cell(self.at(cell_id), source=source)

    def add(self, at: int, cell_id: str, source: str, cell_type: str = "code") -> None:
        cell: dict[str, Any] = {"cell_type": cell_type, "id": cell_id, "source": source, "metadata": {}}
        if cell_type == "code":
            cell |= {"outputs": [], "execution_count": None}
        self.notebook.ycells.insert(at, self.notebook.create_ycell(cell))

    def remove(self, cell_id: str) -> None:
        del self.notebook.ycells[self.at(cell_id)]


@contextmanager
def page(server: Server, path: str, doc: Doc[Any] | None = None) -> Iterator[Page]:
    """The notebook at `path`, open."""
    one = Page(server, path, doc)
    try:
        yield one
    finally:
        one.close()
