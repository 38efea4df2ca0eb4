"""One notebook of two authors: the journal, and people who edit the file.

Three sides meet: what is on disk, what we wrote last, what the journal says now. What we wrote last
travels in the file itself (`metadata.kernel_runtime`: `head` of the notebook, `source_digest` of each
cell), so that a stale copy that an editor saves over a newer one is compared with what that copy
started from. Where an editor dropped those, nothing counts as deleted, and source that differs from
what ran counts as edited.

People own: order, markdown and raw cells, code cells that never ran, edited sources, other metadata,
attachments. The journal owns: the outputs, counts and timing of what ran. Where both changed one
cell's source since, the journal's stays in the cell and people's text is put into a cell after it.
No text is dropped; see docs/notebook.md for the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct

from kernel_runtime.core.projection import source_digest
from kernel_runtime.notebook.document import cell_bytes, document_bytes, joined, lines, parse
from kernel_runtime.notebook.ids import derived_id, is_valid, version_id
from kernel_runtime.notebook.render import RenderedCell

OURS = "kernel_runtime"
_DERIVED = (OURS, "execution")
"""metadata of a cell that ran"""
_CELL_TYPES = ("code", "markdown", "raw")


class NotANotebook(ValueError):
    """A JSON value that is no nbformat 4 document."""


class Slot(Struct):
    """One cell's place in the file."""

    cell_id: str
    kind: str = "code"
    data: bytes = b""
    """what `cell_bytes` gives; empty while it must be rendered"""
    given: dict[str, Any] = {}
    """the cell in the file, until it is rendered"""
    edited: str | None = None
    """people's source, where it is not what we wrote"""
    based_on: str | None = None
    """digest of the source that people's edit started from, if known"""
    extra: dict[str, Any] = {}
    """people's metadata"""


class Merged:
    """Cells in their places: `take` a file's document, `settle` the journal's cells, ask for the bytes."""

    def __init__(self, session_id: str) -> None:
        self.notes: list[str] = []
        """what people should know of, once"""
        self._session_id = session_id
        self._slots: list[Slot] = []
        self._head = 0
        """seq up to which a missing cell was taken out by people"""
        self._metadata: dict[str, Any] = {}
        self._minor = 5

    def take(self, theirs: Any) -> None:
        """Start from the document on disk.

        Raises:
            NotANotebook: it is none; nothing changed here.
        """
        cells, metadata, minor = _checked(theirs)
        ours = metadata.get(OURS)
        self._head = 0
        if isinstance(ours, dict) and ours.get("session_id") == self._session_id:
            head = ours.get("head")
            self._head = head if isinstance(head, int) else 0
        self._metadata = {key: value for key, value in metadata.items() if key != OURS}
        self._minor = max(5, minor)
        self._slots = []
        taken = {cell["id"] for cell in cells if is_valid(cell.get("id"))}
        used: set[str] = set()
        for position, cell in enumerate(cells):
            cell_id = str(cell.get("id"))
            if not is_valid(cell.get("id")) or cell_id in used:
                kind, source = str(cell.get("cell_type")), joined(cell.get("source"))
                cell_id = derived_id(position, kind, source, taken | used)
            used.add(cell_id)
            self._slots.append(_slot(cell_id, cell))

    def settle(self, cells: Mapping[str, RenderedCell], changed: Collection[str]) -> None:
        """Give every cell of the journal its place and content.

        Args:
            cells: by notebook id, in journal order.
            changed: ids whose content is new since the last call; others are looked at only if unsettled.
        """
        slots = {slot.cell_id: slot for slot in self._slots}
        for slot in list(self._slots):
            cell = cells.get(slot.cell_id)
            if slot.data and (cell is None or slot.cell_id not in changed):
                continue
            if cell is not None and slot.kind == "code":
                self._render_ours(slot, cell, slots)
                continue
            if cell is not None and cell.seq > self._head:
                # people made text of it, and it ran again since: their text makes room
                del slots[slot.cell_id]
                source = joined(slot.given.get("source"))
                while slot.cell_id in cells or slot.cell_id in slots:
                    slot.cell_id = version_id(slot.cell_id, source)
                slots[slot.cell_id] = slot
            if not slot.data or slot.given:
                _render_theirs(slot)
        missing = [
            cell_id for cell_id, cell in cells.items() if cell_id not in slots and cell.seq > self._head
        ]
        if missing:
            self._place(missing, cells, slots)

    def bytes(self, metadata: Mapping[str, Any]) -> bytes:
        """The file. `metadata` is what we say of the notebook; people's own keys stay."""
        return document_bytes(
            (slot.data for slot in self._slots),
            {**metadata, **self._metadata, OURS: metadata[OURS]},
            self._minor,
        )

    def sources(self, cells: Mapping[str, RenderedCell]) -> dict[str, str]:
        """`cell_id → sha256 of source` of the code cells in the file, in its order, once settled."""
        found: dict[str, str] = {}
        for slot in self._slots:
            cell = cells.get(slot.cell_id)
            if slot.kind == "code":
                digest = source_digest(slot.edited) if slot.edited is not None else slot.based_on
                found[cell.cell_id if cell is not None else slot.cell_id] = digest or ""
        return found

    def texts(self) -> set[str]:
        """What people wrote into cells, wherever it stands; what ran, too, where it was just taken."""
        edited = {slot.edited for slot in self._slots if slot.edited is not None}
        given = {joined(slot.given.get("source")) for slot in self._slots if slot.edited is None}
        return {text for text in edited | given if text.strip()}

    def _render_ours(self, slot: Slot, cell: RenderedCell, slots: dict[str, Slot]) -> None:
        if slot.edited is not None:
            if source_digest(slot.edited) == cell.source_digest:
                slot.edited = None
            elif slot.based_on not in {None, cell.source_digest}:
                self._keep_beside(slot, slots)
                slot.edited = None
        slot.based_on = cell.source_digest
        slot.given = {}
        if slot.edited is None and not slot.extra:
            slot.data = cell.data
            return
        document = parse(cell.data)
        people = {key: value for key, value in slot.extra.items() if key not in _DERIVED}
        document["metadata"] = {**people, **document["metadata"]}
        if slot.edited is not None:
            document["source"] = lines(slot.edited)
            document["metadata"][OURS]["truth"] = "edited"
        slot.data = cell_bytes(document)

    def _keep_beside(self, slot: Slot, slots: dict[str, Slot]) -> None:
        """People's text and the journal's both changed: people's gets a cell of its own."""
        assert slot.edited is not None
        beside = version_id(slot.cell_id, slot.edited)
        while beside in slots:
            if slots[beside].edited == slot.edited:
                return
            beside = version_id(beside, slot.edited)
        document = {
            "cell_type": "code",
            "id": beside,
            "metadata": {**slot.extra, OURS: {"truth": "not-run", "edit_of": slot.cell_id}},
            "source": lines(slot.edited),
            "outputs": [],
            "execution_count": None,
        }
        new = Slot(cell_id=beside, data=cell_bytes(document), edited=slot.edited)
        self._slots.insert(self._slots.index(slot) + 1, new)
        slots[beside] = new
        self.notes.append(
            f"cell {slot.cell_id} was edited in the file and run with other source: "
            f"the edit is in cell {beside}"
        )

    def _place(
        self, missing: Iterable[str], cells: Mapping[str, RenderedCell], slots: dict[str, Slot]
    ) -> None:
        """Put new cells where the journal's order has them: after their predecessor, the newest last."""
        order = list(cells)
        place = {cell_id: at for at, cell_id in enumerate(order)}
        last = max((place[cell_id] for cell_id in slots if cell_id in place), default=-1)
        for cell_id in missing:
            slot = Slot(cell_id=cell_id)
            self._render_ours(slot, cells[cell_id], slots)
            at = len(self._slots)
            if place[cell_id] < last:
                before = next(
                    (order[i] for i in range(place[cell_id] - 1, -1, -1) if order[i] in slots), None
                )
                at = self._slots.index(slots[before]) + 1 if before is not None else 0
            self._slots.insert(at, slot)
            slots[cell_id] = slot


def _checked(document: Any) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    """Cells, metadata and minor version of an nbformat 4 document.

    Raises:
        NotANotebook: with what is missing.
    """
    if not isinstance(document, dict):
        raise NotANotebook("it is not a JSON object")
    if document.get("nbformat") != 4:
        raise NotANotebook(f"its nbformat is {document.get('nbformat')!r}, not 4")
    cells, metadata, minor = document.get("cells"), document.get("metadata"), document.get("nbformat_minor")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotANotebook("its cells are no list of objects")
    return cells, metadata if isinstance(metadata, dict) else {}, minor if isinstance(minor, int) else 5


def _slot(cell_id: str, cell: dict[str, Any]) -> Slot:
    """A cell of the file, not yet known to be the journal's."""
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    ours = metadata.get(OURS)
    written = ours.get("source_digest") if isinstance(ours, dict) else None
    derived = _DERIVED if written is not None else (OURS,)
    kind = cell.get("cell_type")
    source = joined(cell.get("source"))
    return Slot(
        cell_id=cell_id,
        kind=kind if kind in _CELL_TYPES else "raw",
        given=cell,
        edited=None if written is not None and source_digest(source) == written else source,
        based_on=written if isinstance(written, str) else None,
        extra={key: value for key, value in metadata.items() if key not in derived},
    )


def _render_theirs(slot: Slot) -> None:
    """A cell the journal does not know: as people wrote it, made valid, code marked as not run."""
    source = joined(slot.given.get("source"))
    cell = {
        **slot.given,
        "id": slot.cell_id,
        "cell_type": slot.kind,
        "source": lines(source),
        "metadata": dict(slot.extra),
    }
    if slot.kind == "code":
        cell["metadata"][OURS] = _not_run(slot.given)
        cell.setdefault("outputs", [])
        cell.setdefault("execution_count", None)
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    slot.data = cell_bytes(cell)
    slot.edited, slot.based_on = source, None
    # a text cell may have to make room yet, and then needs its source
    slot.given = {} if slot.kind == "code" else slot.given


def _not_run(cell: Mapping[str, Any]) -> dict[str, Any]:
    metadata = cell.get("metadata")
    ours = metadata.get(OURS) if isinstance(metadata, dict) else None
    kept = {"edit_of": ours["edit_of"]} if isinstance(ours, dict) and "edit_of" in ours else {}
    return {"truth": "not-run", **kept}
