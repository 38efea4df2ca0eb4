"""What document and file last had in common, kept for when the server was killed over unsaved edits.

The document itself is kept by jupyter-collaboration. Which of its changes were not saved, and which of the
file's it has not seen, is known by comparing both with this. A mark in the document tells whether it is
this document's: two servers on one session each have one of their own. A document that was not kept as far
as it had been saved has no base: what it lacks was not taken out.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from kernel_runtime import places
from kernel_runtime.jupyter.mirror_document import SharedNotebook, clocks
from kernel_runtime.jupyter.room_merge import Base

log = logging.getLogger("kernel_runtime.jupyter")

MARK = "kernel_runtime_base"
"""key in the document's state"""


class _Kept(Struct, frozen=True):
    mark: str
    state: bytes
    """the document's state vector"""
    base: Base


class KeptBase:
    """`notebook.base` in the session's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "notebook.base"

    def read(self, notebook: SharedNotebook) -> Base | None:
        """The one of this document; None where there is none."""
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.info("%s cannot be read: %s", self._path, error)
            return None
        if kept.mark != notebook.document.ystate.get(MARK):
            return None
        now = clocks(notebook.document.ydoc.get_state())
        has_all = all(now.get(client, 0) >= clock for client, clock in clocks(kept.state).items())
        return kept.base if has_all else None

    def write(self, notebook: SharedNotebook, base: Base) -> None:
        mark = notebook.document.ystate.get(MARK)
        if not isinstance(mark, str):
            mark = secrets.token_hex(8)
            with notebook.write():
                notebook.document.ystate[MARK] = mark
        try:
            state = notebook.document.ydoc.get_state()
            with open(self._path, "wb", opener=places.private) as file:
                file.write(msgspec.json.encode(_Kept(mark, state, base)))
        except OSError as error:
            # then unsaved edits of a killed server are all kept, also where they are older
            log.info("%s cannot be written: %s", self._path, error)
