"""A page that has a document open: the shared document at the other end of the room's websocket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import websocket
from jupyter_ydoc import YNotebook
from pycrdt import (
    Doc,
    Subscription,
    YMessageType,
    YSyncMessageType,
    create_sync_message,
    create_update_message,
    handle_sync_message,
)

import kernel_runtime as kr
from tests.jupyter.server import TOKEN, Server
from tests.support import eventually

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
        self._held: list[bytes] | None = None
        """what was done here and is not sent yet, while that is held up"""
        self._synced = False
        self._socket = websocket.create_connection(
            f"ws://127.0.0.1:{server.port}/api/collaboration/room/{room}"
            f"?sessionId={found['sessionId']}&token={TOKEN}",
            timeout=60,
        )
        self._subscription: Subscription | None = self.doc.observe(self._changed)
        self._socket.send_binary(create_sync_message(self.doc))

    def close(self) -> None:
        if self._subscription is not None:
            self.doc.unobserve(self._subscription)
            self._subscription = None
        self._socket.close()

    def _changed(self, event: Any) -> None:
        if self._applying:
            return
        update = create_update_message(event.update)
        if self._held is not None:
            self._held.append(update)
        else:
            self._socket.send_binary(update)

    def hold(self) -> None:
        """What is done here is not sent, until `let_go`."""
        self._held = []

    def let_go(self) -> None:
        held, self._held = self._held or [], None
        for update in held:
            self._socket.send_binary(update)

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
            self._synced |= message[1] == YSyncMessageType.SYNC_STEP2
            if reply is not None:
                self._socket.send_binary(reply)
        return True

    def sync(self) -> None:
        """Returns once the room has all that was done here."""
        self._synced = False
        self._socket.send_binary(create_sync_message(self.doc))
        self.until(lambda: self._synced, what="the room's answer")

    def until(self, seen: Callable[[], T], timeout: float = 30.0, what: str = "") -> T:
        """The first truthy value of `seen()`, while changes come in."""
        deadline = time.monotonic() + timeout
        while not (value := seen()):
            left = deadline - time.monotonic()
            if left <= 0:
                shown = "\n".join(json.dumps(cell)[:1000] for cell in self.cells())
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


@contextmanager
def collaborative(directory: Path, name: str, *, number: int = 1) -> Iterator[Server]:
    """A server with shared documents, on a directory of that name; of several each has a number."""
    root = directory / name
    root.mkdir(exist_ok=True)
    server = Server(
        root,
        ServerApp={
            "jpserver_extensions": {
                "kernel_runtime.jupyter": True,
                "jupyter_server_ydoc": True,
                "jupyter_server_fileid": True,
            }
        },
        SQLiteYStore={"db_path": str(directory / f"{name}.ystore{number}.db")},
        YDocExtension={
            "document_cleanup_delay": 0.5,
            "file_poll_interval": 0.2,
            "session_store_path": str(directory / f"{name}.sessions{number}.json"),
        },
        BaseFileIdManager={"db_path": str(directory / f"{name}.fileid{number}.db")},
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(krt_home: Path) -> Iterator[Server]:
    """In place of the plain one of conftest, for a module that says `server = shared_page.server`."""
    with collaborative(krt_home.parent, "work") as server:
        yield server


def ended(page: Page, cell_id: str) -> dict[str, Any]:
    """The cell, once it is told to have ended."""

    def done() -> dict[str, Any] | None:
        cell = page.cell(cell_id)
        outcome = (cell or {}).get("metadata", {}).get("kernel_runtime", {}).get("outcome")
        return cell if cell is not None and outcome and cell["execution_state"] == "idle" else None

    found = page.until(done, what=f"the end of {cell_id}")
    assert found is not None
    return found


def in_the_store(server: Server, text: str) -> None:
    """Until the server's store has it, which is later than that pages were told."""
    store = server.root.parent / f"{server.root.name}.ystore1.db"
    under_way = store.with_name(f"{store.name}-journal")
    eventually(
        lambda: text.encode() in store.read_bytes() and not under_way.exists(), 30, f"{text} is in the store"
    )


def known(server: Server, session: kr.Session) -> None:
    def path() -> Any:
        rows = server.get("/kernel-runtime/api/sessions")
        return next((row["path"] for row in rows if row["name"] == session.name), None)

    eventually(path, what="the server knows the notebook")
    eventually(lambda: file_of(server, session).exists(), what="its file")


def file_of(server: Server, session: kr.Session) -> Path:
    return server.root / f"{session.name}.ipynb"


def saved_cells(server: Server, session: kr.Session) -> list[dict[str, Any]]:
    """Those in the file; none while a save is half done."""
    try:
        cells: list[dict[str, Any]] = json.loads(file_of(server, session).read_bytes())["cells"]
    except ValueError:
        return []
    return cells
