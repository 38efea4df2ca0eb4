"""What we use of jupyter-collaboration and is not promised: seen here first when a version changes it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.contents.filemanager import AsyncFileContentsManager
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server_ydoc.app import YDocExtension  # type: ignore[import-untyped]
from jupyter_server_ydoc.loaders import FileLoader  # type: ignore[import-untyped]
from jupyter_server_ydoc.rooms import DocumentRoom  # type: ignore[import-untyped]
from jupyter_server_ydoc.websocketserver import JupyterWebsocketServer  # type: ignore[import-untyped]
from jupyter_ydoc import YNotebook
from jupyter_ydoc.utils import cast_all
from pycrdt import Array, Doc, Map, Text
from pycrdt.store import SQLiteYStore
from pycrdt.websocket import YRoom

from kernel_runtime.jupyter.contents import OpenFile, Overtaken, SessionContentsManager
from kernel_runtime.jupyter.mirror_document import ORIGIN, SharedNotebook
from kernel_runtime.jupyter.room import SessionRoom
from kernel_runtime.jupyter.room_base import KeptBase
from kernel_runtime.jupyter.room_merge import base_of


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    "name",
    ["initialize", "_on_document_change", "_maybe_save_document", "_on_outofband_change", "stop"],
)
def test_what_is_overridden_is_there_and_called_the_same_way(name: str) -> None:
    theirs, ours = getattr(DocumentRoom, name), getattr(SessionRoom, name)
    assert parameters(theirs) == parameters(ours)
    assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(ours)


def test_a_stock_room_asks_the_methods_that_are_overridden() -> None:
    source = inspect.getsource(DocumentRoom)
    for line in (
        "self._document.observe(self._on_document_change)",
        "self._file.observe(self.room_id, self._on_outofband_change, self._on_filepath_change)",
        "self._maybe_save_document(self._saving_document, save_now=True)",
        "self._update_lock = asyncio.Lock()",
        "await self.ystore.apply_updates(self.ydoc)",
        "await self.ystore.encode_state_as_update(self.ydoc)",
        "self._save_delay = save_delay",
        "self._document_load_progressively = document_load_progressively",
        "self._document_progressively_loaded",
    ):
        assert line in source
    assert parameters(DocumentRoom._emit) == ["self", "level", "action", "msg"]


def test_files_are_read_and_written_through_the_loader() -> None:
    assert parameters(FileLoader.load_content) == ["self", "format", "file_type"]
    assert parameters(FileLoader.maybe_save_content) == ["self", "model"]
    assert "raise OutOfBandChanges" in inspect.getsource(FileLoader.maybe_save_content)


def test_notebooks_are_read_and_written_by_methods_that_are_overridden() -> None:
    for name in ("_read_notebook", "_save_notebook"):
        theirs, ours = getattr(AsyncLargeFileManager, name), getattr(SessionContentsManager, name)
        assert parameters(theirs) == parameters(ours)
    save, read = inspect.getsource(AsyncLargeFileManager.save), inspect.getsource(AsyncFileContentsManager)
    assert "await super().save(model, path)" in save
    assert "await self._save_notebook(os_path, nb, capture_validation_error=validation_error)" in read
    assert "await self._read_notebook(" in read


def open_file(tmp_path: Path) -> tuple[SessionContentsManager, OpenFile, Path]:
    path = tmp_path / "n.ipynb"
    path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    return SessionContentsManager(root_dir=str(tmp_path)), OpenFile(lambda _data: None), path


def model_of(*ids: str) -> dict[str, Any]:
    document = {"cells": [cell(one) for one in ids], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return {"type": "notebook", "format": "json", "content": document}


def test_an_open_document_is_saved_over_what_it_has_seen_and_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        contents, document, path = open_file(tmp_path)
        with document.current():
            await contents.get("n.ipynb")
            assert not document.has_changed()
            saved = path.stat().st_ino
            await contents.save(model_of("a"), "n.ipynb")
            assert path.stat().st_ino != saved  # another file in its place: never half of one
            path.write_text(path.read_text().replace('"a"', '"b"'))
            assert document.has_changed()
            theirs = path.read_text()
            with pytest.raises(Overtaken):
                await contents.save(model_of("c"), "n.ipynb")
            assert path.read_text() == theirs
            await contents.get("n.ipynb")
            await contents.save(model_of("c"), "n.ipynb")
            assert '"c"' in path.read_text()
        await contents.save(model_of("d"), "n.ipynb")  # not the document's: as stock does
        assert '"d"' in path.read_text()

    asyncio.run(story())


@pytest.mark.parametrize("why", ["a hard link", "use_atomic_writing"])
def test_a_file_that_no_other_can_stand_for_is_written_into_as_stock_does(tmp_path: Path, why: str) -> None:
    """With another inode, a hard link would name the old content for ever."""

    async def story() -> None:
        contents, document, path = open_file(tmp_path)
        if why == "a hard link":
            path.with_name("other").hardlink_to(path)
        else:
            contents.use_atomic_writing = False
        inode = path.stat().st_ino
        with document.current():
            await contents.get("n.ipynb")
            await contents.save(model_of("a"), "n.ipynb")
        assert path.stat().st_ino == inode
        assert '"a"' in path.read_text()
        assert not document.has_changed()

    asyncio.run(story())


def test_rooms_are_added_before_they_read_their_file() -> None:
    assert parameters(JupyterWebsocketServer.add_room) == ["self", "path", "room"]
    source = inspect.getsource(YDocExtension.get_document)
    assert source.index("add_room(") < source.index("room.initialize()")


def notebook(*ids: str) -> SharedNotebook:
    shared = SharedNotebook(YNotebook())
    for cell_id in ids:
        shared.insert(len(shared.ids), cell(cell_id))
    return shared


def cell(cell_id: str, source: str = "") -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": cell_id,
        "source": source or cell_id,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }


def test_a_document_is_read_in_one_piece_as_it_is_by_the_cell() -> None:
    shared = notebook("a", "b")
    shared.set_outputs(shared.cells["a"], [{"output_type": "stream", "name": "stdout", "text": "é😀"}])
    shared.set_metadata("kernel_runtime", {"head": 7})
    theirs = shared.document.get()
    cast_all(theirs, float, int)
    ours = shared.content()
    assert ours["cells"] == theirs["cells"]
    assert ours["metadata"] == theirs["metadata"] == {"kernel_runtime": {"head": 7}}


def test_undo_takes_nothing_that_was_written_here() -> None:
    shared = notebook("a")
    shared.replace_source(shared.cells["a"], "b")
    assert not shared.document.undo_manager.can_undo()
    with shared.document.ydoc.transaction():
        shared.document.ycells[0]["source"] += "c"
    assert shared.document.undo_manager.can_undo()
    origins = []
    subscription = shared.document.ycells.observe(lambda event: origins.append(event.transaction.origin))
    shared.insert(0, cell("z"))
    shared.document.ycells.unobserve(subscription)
    assert origins == [ORIGIN]


def test_places_are_kept_while_others_write() -> None:
    shared = notebook("a", "b", "c")
    theirs = YNotebook(Doc())
    theirs.ydoc.apply_update(shared.document.ydoc.get_update())
    del theirs.ycells[1]
    theirs.ycells.insert(0, theirs.create_ycell(cell("d")))
    theirs.ycells.append(theirs.create_ycell(cell("a", "another")))
    shared.document.ydoc.apply_update(theirs.ydoc.get_update())
    assert shared.ids == ["d", "a", "c", "a"]
    assert shared.doubled == {"a"}
    assert shared.source(shared.cells["a"]) == "a"
    shared.remove_double("a", shared.all_of("a")[1])
    assert shared.ids == ["d", "c", "a"]
    assert not shared.doubled
    assert shared.source(shared.cells["a"]) == "another"


def test_a_document_becomes_another_with_the_cells_that_can_stay_left_alone() -> None:
    shared = notebook("a", "b", "c", "d")
    maps = dict(shared.cells)
    content = shared.content()
    a, b, c, _d = content["cells"]
    shared.become({**content, "cells": [b, {**c, "source": "changed"}, cell("new"), a]})
    assert shared.ids == ["b", "c", "new", "a"]
    assert shared.source(shared.cells["c"]) == "changed"
    assert shared.cells["b"] is maps["b"]
    assert shared.cells["c"] is maps["c"]


def test_what_was_saved_is_no_base_for_a_document_that_was_not_kept_so_far(tmp_path: Path) -> None:
    shared = notebook("a")
    kept = KeptBase(tmp_path)
    base = base_of(shared.content())
    kept.write(shared, base)
    before = shared.document.ydoc.get_update()
    assert kept.read(shared) == base
    shared.insert(1, cell("b"))
    kept.write(shared, base_of(shared.content()))
    older = YNotebook(Doc())
    older.ydoc.apply_update(before)
    assert kept.read(SharedNotebook(older)) is None
    older.ydoc.apply_update(shared.document.ydoc.get_update())
    assert kept.read(SharedNotebook(older)) == base_of(shared.content())


def test_a_room_that_ends_over_an_update_is_drained() -> None:
    assert "current_buffer_used" in inspect.getsource(SessionRoom)
    source = inspect.getsource(YRoom)
    assert "self._update_send_stream, self._update_receive_stream = create_memory_object_stream" in source
    assert "if self._task_group.cancel_scope.cancel_called" in source
    assert "async with self.lock:" in inspect.getsource(SQLiteYStore)


def test_offsets_in_a_text_are_bytes_and_a_text_grows_by_its_own_name() -> None:
    doc: Doc[Any] = Doc()
    array = doc.get("a", type=Array)
    array.append(Map({"text": Text("é😀x")}))
    text = array[0]["text"]
    assert len(text) == 7
    del text[6:7]
    text += "y"
    assert str(array[0]["text"]) == "é😀y"
