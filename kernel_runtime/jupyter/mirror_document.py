"""A shared notebook document, its cells found by their ids whatever the document's length.

A shared array finds its n-th item by walking to it, so nothing here asks for one: the cells' places
are kept from the changes as they come. Every write is a transaction whose origin is `ORIGIN`, so that
no page's undo takes it for its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from jupyter_ydoc import YNotebook
from jupyter_ydoc.utils import cast_all
from pycrdt import Array, Decoder, Map, Text

from kernel_runtime.core.outputs import Output
from kernel_runtime.jupyter.mirror_outputs import Cut, Grow, steps

ORIGIN = "kernel_runtime"

CellMap = Map[Any]


def clocks(state: bytes) -> dict[int, int]:
    """A state vector (Yjs, version 1): how much of each client's writing is there.

    Raises:
        ValueError: it is none.
    """
    try:
        decoder = Decoder(state)
        found: dict[int, int] = {}
        for _ in range(decoder.read_var_uint()):
            client = decoder.read_var_uint()
            found[client] = decoder.read_var_uint()
    except (IndexError, RuntimeError) as error:
        raise ValueError("it ends too soon") from error
    return found


class SharedNotebook:
    """The cells of a `YNotebook`, for one writer among others."""

    def __init__(self, document: YNotebook) -> None:
        self.document = document
        self.ids: list[str] = []
        """of the cells, in their order"""
        self.cells: dict[str, CellMap] = {}
        """by id; of two with one id the one that was there first"""
        self.doubled: set[str] = set()
        """ids that more than one cell has"""
        self.inserted: set[str] = set()
        """ids of cells that were put in here, and not by a page"""
        self.writing = False
        """whether the change that is being told of is ours"""
        self._maps: list[CellMap] = []
        self._ycells: Array[Any] = document.ycells
        self._take(0, [self._ycells[at] for at in range(len(self._ycells))])
        self._subscription = self._ycells.observe(self._changed)

    def close(self) -> None:
        self._ycells.unobserve(self._subscription)

    @contextmanager
    def write(self) -> Iterator[None]:
        """One transaction of ours."""
        self.writing = True
        try:
            with self.document.ydoc.transaction(origin=ORIGIN):
                yield
        finally:
            self.writing = False

    # reading

    def content(self) -> dict[str, Any]:
        """The document as nbformat has it, taken at one moment."""
        with self.document.ydoc.transaction():
            cells = msgspec.json.decode(str(self._ycells))
            meta = self.document._ymeta.to_py() or {}  # noqa: SLF001 - pinned by tests/jupyter/test_room_contract.py
        cast_all(cells, float, int)
        cast_all(meta, float, int)
        for cell in cells:
            cell.pop("execution_state", None)
            if cell.get("cell_type") != "code" and not cell.get("attachments", True):
                del cell["attachments"]
        return {
            "cells": cells,
            "metadata": meta.get("metadata") or {},
            "nbformat": int(meta.get("nbformat") or 4),
            "nbformat_minor": int(meta.get("nbformat_minor") or 5),
        }

    def metadata(self) -> dict[str, Any]:
        """The notebook's."""
        found: dict[str, Any] = self._metadata().to_py() or {}
        cast_all(found, float, int)
        return found

    def place(self, cell_id: str) -> int:
        return self.ids.index(cell_id)

    @staticmethod
    def source(cell: CellMap) -> str:
        return str(cell["source"])

    @staticmethod
    def cell_metadata(cell: CellMap) -> dict[str, Any]:
        found: dict[str, Any] = cell["metadata"].to_py() or {}
        cast_all(found, float, int)
        return found

    @staticmethod
    def outputs(cell: CellMap) -> list[Output]:
        found: list[Output] = cell["outputs"].to_py() or []
        cast_all(found, float, int)
        return found

    # writing

    def set_metadata(self, key: str, value: Any) -> None:
        with self.write():
            self._metadata()[key] = value

    def insert(self, at: int, cell: dict[str, Any], *, state: str = "idle") -> None:
        """Put in a cell as nbformat has it."""
        ycell = self.document.create_ycell(cell)
        self.inserted.add(str(cell["id"]))
        with self.write():
            self._ycells.insert(at, ycell)
            if cell["cell_type"] == "code" and state != "idle":
                ycell["execution_state"] = state

    def remove(self, at: int) -> None:
        with self.write():
            del self._ycells[at]

    def remove_double(self, cell_id: str, keep: CellMap) -> None:
        """Of the cells of that id leave only this one."""
        places = [at for at, one in enumerate(self.ids) if one == cell_id and self._maps[at] is not keep]
        for at in reversed(places):
            self.remove(at)
        self.cells[cell_id] = keep
        self.doubled.discard(cell_id)
        self.inserted.discard(cell_id)

    def all_of(self, cell_id: str) -> list[CellMap]:
        return [self._maps[at] for at, one in enumerate(self.ids) if one == cell_id]

    def replace_source(self, cell: CellMap, source: str) -> None:
        """Put another text in place of all of it: what somebody types meanwhile is not mixed into it."""
        text: Text = cell["source"]
        with self.write():
            text.clear()
            text += source

    def set_source(self, cell_id: str, source: str) -> None:
        """Change what differs, so that a cursor elsewhere in the text stays where it is."""
        with self.write():
            self.document.set_cell(self.place(cell_id), source=source)

    def set_values(self, cell: CellMap, values: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Set those that differ; a metadata value of None is taken away."""
        with self.write():
            for key, value in values.items():
                if cell.get(key) != value:
                    cell[key] = value
            kept = cell["metadata"]
            for key, value in metadata.items():
                if value is None:
                    if key in kept:
                        del kept[key]
                elif kept.get(key) != value:
                    kept[key] = value

    def set_outputs(self, cell: CellMap, new: list[Output], old: list[Output] | None = None) -> int:
        """Have the cell show these, of which it shows `old`; about how many bytes were written."""
        youtputs = cell.get("outputs")
        if not isinstance(youtputs, Array):
            with self.write():
                cell["outputs"] = Array()
            youtputs = cell["outputs"]
            old = []
        if old is None or len(old) != len(youtputs):
            old = self.outputs(cell)
        written = 0
        for step in steps(old, new):
            with self.write():
                if isinstance(step, Cut):
                    text: Text = youtputs[len(youtputs) - 1]["text"]
                    del text[step.keep : len(text)]
                    written += 1
                elif isinstance(step, Grow):
                    text = youtputs[len(youtputs) - 1]["text"]
                    text += step.text  # on the item, it would empty the text
                    written += len(step.text)
                else:
                    if step.start < len(youtputs):
                        del youtputs[step.start : len(youtputs)]
                    youtputs.extend([_shared(output) for output in step.outputs])
                    written += sum(map(_weight, step.outputs))
        return written

    def become(self, content: dict[str, Any]) -> None:
        """Change what differs, and leave cells that are the same as they are."""
        now = {cell["id"]: cell for cell in self.content()["cells"]}
        wanted = {cell["id"]: cell for cell in content["cells"]}
        staying = _longest_in_order([cell_id for cell_id in self.ids if cell_id in wanted], list(wanted))
        for at in range(len(self.ids) - 1, -1, -1):
            cell_id = self.ids[at]
            if cell_id not in staying or now[cell_id]["cell_type"] != wanted[cell_id]["cell_type"]:
                self.remove(at)
        for at, (cell_id, cell) in enumerate(wanted.items()):
            if at >= len(self.ids) or self.ids[at] != cell_id:
                self.insert(at, cell)
            elif now[cell_id] != cell:
                self._update(cell_id, now[cell_id], cell)
        metadata = self._metadata()
        before = self.metadata()
        for key in before.keys() | content["metadata"].keys():
            if key not in content["metadata"]:
                with self.write():
                    del metadata[key]
            elif before.get(key) != content["metadata"][key]:
                self.set_metadata(key, content["metadata"][key])

    def _update(self, cell_id: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        cell = self.cells[cell_id]
        if before["source"] != after["source"]:
            self.set_source(cell_id, after["source"])
        gone = dict.fromkeys(before["metadata"].keys() - after["metadata"].keys())
        values: dict[str, Any] = {
            key: after[key]
            for key in ("execution_count", "attachments")
            if key in after and before.get(key) != after[key]
        }
        self.set_values(cell, values, {**after["metadata"], **gone})
        if after["cell_type"] == "code":
            self.set_outputs(cell, after["outputs"], before["outputs"])

    # following

    def _metadata(self) -> Map[Any]:
        ymeta = self.document._ymeta  # noqa: SLF001 - pinned by tests/jupyter/test_room_contract.py
        if not isinstance(ymeta.get("metadata"), Map):
            with self.write():
                ymeta["metadata"] = Map({})
        found: Map[Any] = ymeta["metadata"]
        return found

    def _changed(self, event: Any) -> None:
        at = 0
        for change in event.delta:
            if "retain" in change:
                at += change["retain"]
            elif "delete" in change:
                self._drop(at, change["delete"])
            elif "insert" in change:
                at += self._take(at, change["insert"])
        # a page moves a cell by putting in another one of its id and taking out the first
        self.doubled = {cell_id for cell_id in self.doubled if self.ids.count(cell_id) > 1}

    def _take(self, at: int, cells: list[CellMap]) -> int:
        ids = [str(cell.get("id")) for cell in cells]
        self.ids[at:at] = ids
        self._maps[at:at] = cells
        for cell_id, cell in zip(ids, cells, strict=True):
            if cell_id in self.cells:
                self.doubled.add(cell_id)
            else:
                self.cells[cell_id] = cell
        return len(cells)

    def _drop(self, at: int, count: int) -> None:
        gone = list(zip(self.ids[at : at + count], self._maps[at : at + count], strict=True))
        del self.ids[at : at + count]
        del self._maps[at : at + count]
        for cell_id, cell in gone:
            if self.cells.get(cell_id) is not cell:
                continue
            del self.cells[cell_id]
            if cell_id in self.doubled:
                left = self.all_of(cell_id)
                if left:
                    self.cells[cell_id] = left[0]


def _longest_in_order(ids: list[str], wanted: list[str]) -> set[str]:
    """The most of `ids` that can stay where they are while the others move."""
    place = {cell_id: at for at, cell_id in enumerate(wanted)}
    ends: list[int] = []
    last: list[str] = []
    before: dict[str, str | None] = {}
    for cell_id in dict.fromkeys(ids):
        at = bisect_left(ends, place[cell_id])
        before[cell_id] = last[at - 1] if at else None
        ends[at : at + 1] = [place[cell_id]]
        last[at : at + 1] = [cell_id]
    found: set[str] = set()
    one = last[-1] if last else None
    while one is not None:
        found.add(one)
        one = before[one]
    return found


def _shared(output: Output) -> Map[Any]:
    if output["output_type"] == "stream":
        return Map({**output, "text": Text(output["text"])})
    return Map(dict(output))


def _weight(output: Output) -> int:
    text = output.get("text")
    return len(text) if isinstance(text, str) else len(msgspec.json.encode(output))
