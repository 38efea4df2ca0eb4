"""An open document and its file, both changed since they were equal: one document that loses nothing.

Three sides meet: what file and document last had in common (`Base`), the document, the file. What one side
alone changed is taken; a cell's text that both changed stays in the document's cell, and the file's text
gets a cell after it; a cell that one side took out and the other changed stays. Order is the document's,
unless only the file's changed. What is neither text nor a cell (metadata, attachments) has one place: where
both changed it, the document's stays, and `overruled` says so.

What the journal derives (outputs, counts, our metadata) is nobody's change: `derived` says whose is newer.
Without a base nothing counts as taken out but what ran and nobody edited, and text that is what ran counts
as not changed.

What the file alone changed is taken as it is, also where that takes out text that people saved: `gone` names
those cells, for whoever is to keep them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kernel_runtime.jupyter.ran import is_as_run, is_begun, ran_digest
from kernel_runtime.notebook.document import joined
from kernel_runtime.notebook.ids import version_id
from kernel_runtime.notebook.merge import OURS

Cell = dict[str, Any]
Side = Literal["document", "file"]

_NOT_PEOPLES = (OURS, "execution", "trusted")
_encoder = msgspec.json.Encoder(order="sorted")


class Base(Struct, frozen=True):
    """What both sides had, as digests."""

    order: list[str] = []
    text: dict[str, str] = {}
    """by cell: of its type and source"""
    rest: dict[str, str] = {}
    """by cell: of people's metadata and attachments"""
    metadata: dict[str, str] = {}
    """by key of the notebook's metadata"""
    outputs: dict[str, str] = {}
    """by cell that never ran here and has some all the same: they are nobody's but people's"""


class Merged(Struct):
    """What the document shall be."""

    content: dict[str, Any]
    ahead: bool = False
    """it has something of people's that the file has not"""
    notes: list[str] = []
    overruled: bool = False
    """something of the file's, other than text, gave way to the document's"""


def base_of(content: Mapping[str, Any]) -> Base:
    cells = content["cells"]
    return Base(
        order=[cell["id"] for cell in cells],
        text={cell["id"]: _text(cell) for cell in cells},
        rest={cell["id"]: _rest(cell) for cell in cells},
        metadata={key: _digest(value) for key, value in content["metadata"].items() if key != OURS},
        outputs={cell["id"]: _outputs(cell) for cell in cells if _is_foreign(cell) and cell["outputs"]},
    )


def merge(
    base: Base | None, document: Mapping[str, Any], file: Mapping[str, Any], *, derived: Side = "document"
) -> Merged:
    """Contents as nbformat has them, cells with ids."""
    return _Merge(base, document, file, derived).merged()


def without(base: Base | None, cell_ids: Container[str]) -> Base:
    """One by which these cells count as changed in the document: they stay."""
    base = base or Base()
    text = {cell_id: "" if cell_id in cell_ids else was for cell_id, was in base.text.items()}
    rest = {cell_id: "" if cell_id in cell_ids else was for cell_id, was in base.rest.items()}
    return Base(order=base.order, text=text, rest=rest, metadata=base.metadata, outputs=base.outputs)


def gone(before: Mapping[str, Any], after: Mapping[str, Any], recorded: Container[str] | None) -> list[str]:
    """Cells of `before` of which something that people made is nowhere in `after`.

    `recorded` are the ids of the cells that the journal can give back; None: each that says so is believed.
    """
    there = {joined(cell["source"]) for cell in after["cells"]}
    attached = {_digest(cell["attachments"]) for cell in after["cells"] if cell.get("attachments")}
    now = {cell["id"]: joined(cell["source"]) for cell in after["cells"]}
    found: list[str] = []
    for cell in before["cells"]:
        source, cell_id = joined(cell["source"]), cell["id"]
        lacks = bool(source.strip()) and source not in there
        if lacks and is_as_run(cell) and (recorded is None or cell_id in recorded):
            lacks = False
        if lacks and cell_id in now and is_begun(source, ran_digest(cell["metadata"]), now[cell_id]):
            lacks = False
        if lacks or (cell.get("attachments") and _digest(cell["attachments"]) not in attached):
            found.append(cell_id)
    return found


class _Merge:
    def __init__(
        self, base: Base | None, document: Mapping[str, Any], file: Mapping[str, Any], derived: Side
    ) -> None:
        self.base = base or Base()
        self.known = base is not None
        self.document, self.file = document, file
        self.here = {cell["id"]: cell for cell in document["cells"]}
        self.there = {cell["id"]: cell for cell in file["cells"]}
        self.derived = derived
        self.ahead = False
        self.overruled = False
        self.notes: list[str] = []
        self.beside: dict[str, Cell] = {}

    def merged(self) -> Merged:
        cells: dict[str, Cell] = {}
        for cell_id in dict.fromkeys([*self.here, *self.there]):
            cell = self._cell(cell_id)
            if cell is not None:
                cells[cell_id] = cell
        order: list[str] = []
        for cell_id in self._order(cells):
            order.append(cell_id)
            if (beside := self.beside.get(cell_id)) is not None and beside["id"] not in cells:
                cells[beside["id"]] = beside
                order.append(beside["id"])
        content = {
            **self.document,
            "cells": [cells[cell_id] for cell_id in order],
            "metadata": self._metadata(),
            "nbformat_minor": max(self.document["nbformat_minor"], self.file["nbformat_minor"]),
        }
        return Merged(content, self.ahead, self.notes, overruled=self.overruled)

    # cells

    def _cell(self, cell_id: str) -> Cell | None:
        here: Cell | None = self.here.get(cell_id)
        there: Cell | None = self.there.get(cell_id)
        if here is None:
            assert there is not None
            taken_out = cell_id in self.base.text and _text(there) == self.base.text[cell_id]
            self.ahead |= taken_out
            return None if taken_out else there
        if there is None:
            if self._taken_out_there(cell_id, here):
                return None
            self.ahead = True
            return here
        return self._both(cell_id, here, there)

    def _taken_out_there(self, cell_id: str, here: Cell) -> bool:
        if self.known:
            return cell_id in self.base.text and _text(here) == self.base.text[cell_id]
        return is_as_run(here)

    def _both(self, cell_id: str, here: Cell, there: Cell) -> Cell:
        whose = self._whose_text(cell_id, here, there)
        if whose is None:
            self._keep_beside(cell_id, there)
            whose = "document"
        texts = here if whose == "document" else there
        self.ahead |= whose == "document" and _text(here) != _text(there)
        rest = self._whose_rest(cell_id, here, there)
        rests = here if rest == "document" else there
        self.ahead |= rest == "document" and _rest(here) != _rest(there)
        derived = here if self._whose_outputs(cell_id, here, there) == "document" else there
        if derived.get("cell_type") != texts["cell_type"]:
            derived = texts
        cell: Cell = {
            "cell_type": texts["cell_type"],
            "id": cell_id,
            "source": joined(texts["source"]),
            "metadata": {
                **{k: v for k, v in rests["metadata"].items() if k not in _NOT_PEOPLES},
                **{k: v for k, v in derived["metadata"].items() if k in (OURS, "execution")},
                **{k: v for k, v in here["metadata"].items() if k == "trusted"},
            },
        }
        if cell["cell_type"] == "code":
            cell["outputs"] = derived.get("outputs", [])
            cell["execution_count"] = derived.get("execution_count")
        if "attachments" in rests:
            cell["attachments"] = rests["attachments"]
        return cell

    def _whose_text(self, cell_id: str, here: Cell, there: Cell) -> Side | None:
        """None: both changed it."""
        if _text(here) == _text(there):
            return "document"
        if self.known and cell_id in self.base.text:
            before = self.base.text[cell_id]
            if _text(there) == before:
                return "document"
            return "file" if _text(here) == before else None
        if is_as_run(here):
            return "file"
        if not is_as_run(there):
            return None
        based_on = ran_digest(here["metadata"])
        begun = is_begun(joined(here["source"]), based_on, joined(there["source"]))
        return "file" if begun and here["cell_type"] == "code" else "document"

    def _whose_rest(self, cell_id: str, here: Cell, there: Cell) -> Side:
        before = self.base.rest.get(cell_id)
        if self.known and _rest(here) == before:
            return "file"
        self.overruled |= _rest(there) not in {_rest(here), before}
        return "document"

    def _whose_outputs(self, cell_id: str, here: Cell, there: Cell) -> Side:
        if not (self.known and _is_foreign(here) and _is_foreign(there)):
            return self.derived
        before = self.base.outputs.get(cell_id, _NO_OUTPUTS)
        if _outputs(here) == before:
            return "file"
        self.ahead |= _outputs(here) != _outputs(there)
        self.overruled |= _outputs(there) not in {_outputs(here), before}
        return "document"

    def _keep_beside(self, cell_id: str, there: Cell) -> None:
        source = joined(there["source"])
        beside = version_id(cell_id, source)
        while beside in self.here or beside in self.there:
            if joined((self.here.get(beside) or self.there[beside])["source"]) == source:
                return
            beside = version_id(beside, source)
        cell: Cell = {
            "cell_type": there["cell_type"],
            "id": beside,
            "source": source,
            "metadata": {k: v for k, v in there["metadata"].items() if k not in _NOT_PEOPLES},
        }
        if cell["cell_type"] == "code":
            cell["metadata"][OURS] = {"truth": "not-run", "edit_of": cell_id}
            cell |= {"outputs": [], "execution_count": None}
        self.beside[cell_id] = cell
        self.ahead = True
        self.notes.append(
            f"Cell {cell_id} was changed here and in the file: the file's text is in the cell below it."
        )

    # places

    def _order(self, cells: Mapping[str, Cell]) -> list[str]:
        here = [cell_id for cell_id in self.here if cell_id in cells]
        there = [cell_id for cell_id in self.there if cell_id in cells]
        if self._moved_here():
            self.ahead |= _shared(here, there) != _shared(there, here)
            return _woven(here, there)
        return _woven(there, here)

    def _moved_here(self) -> bool:
        order = self.base.order
        return self.known and _shared(list(self.here), order) != _shared(order, list(self.here))

    # the notebook's metadata

    def _metadata(self) -> dict[str, Any]:
        here, there = self.document["metadata"], self.file["metadata"]
        found: dict[str, Any] = {}
        for key in dict.fromkeys([*there, *here]):
            if key == OURS:
                side = here if self.derived == "document" and OURS in here else there
            elif not self.known:
                side = here if key in here else there
            else:
                before, now = self.base.metadata.get(key, _digest(None)), _digest(here.get(key))
                side = there if now == before else here
                self.overruled |= side is here and _digest(there.get(key)) not in {now, before}
            if key in side:
                found[key] = side[key]
        return found


def _woven(main: Sequence[str], other: Sequence[str]) -> list[str]:
    """`main`, with each of `other` that it lacks after the one it follows there."""
    there = set(main)
    after: dict[str | None, list[str]] = {}
    before: str | None = None
    for cell_id in other:
        if cell_id in there:
            before = cell_id
        else:
            after.setdefault(before, []).append(cell_id)
    woven = list(after.get(None, ()))
    for cell_id in main:
        woven.append(cell_id)
        woven += after.get(cell_id, ())
    return woven


def _shared(one: Sequence[str], other: Sequence[str]) -> list[str]:
    there = set(other)
    return [cell_id for cell_id in one if cell_id in there]


def _text(cell: Cell) -> str:
    return _digest([cell["cell_type"], joined(cell["source"])])


def _rest(cell: Cell) -> str:
    metadata = {key: value for key, value in cell["metadata"].items() if key not in _NOT_PEOPLES}
    return _digest([metadata, cell.get("attachments") or None])


def _is_foreign(cell: Cell) -> bool:
    """Whether its outputs, if it has any, are not the journal's."""
    return cell["cell_type"] == "code" and ran_digest(cell["metadata"]) is None


def _outputs(cell: Cell) -> str:
    return _digest([cell.get("outputs") or [], cell.get("execution_count")])


def _digest(value: Any) -> str:
    return hashlib.sha256(_encoder.encode(value)).hexdigest()[:16]


_NO_OUTPUTS = _digest([[], None])
