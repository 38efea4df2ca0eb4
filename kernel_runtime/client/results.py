"""An execution as its caller holds it: what the journal says of it, read by property.

`Record` is a picture of one moment; the async and the blocking client each add how to wait for the
next one. Outcomes are data, not exceptions: an execution that raised has `outcome == "error"`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class CellError(Struct, frozen=True, kw_only=True):
    """What a cell raised."""

    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


class Interrupted(Struct, frozen=True, kw_only=True):
    """How far up the ladder an interrupt had to climb."""

    reached: str
    """`nothing-running`, `message` or `signal`"""
    execution_id: str | None = None
    ended: bool = False
    steps: list[Any] = []
    offer: str | None = None
    """what would end it, where nothing so far did; never done unasked"""


class Accepted(Struct, frozen=True, kw_only=True):
    """The reply to `submit`: the intent to run is on disk."""

    execution_id: str
    cell_id: str
    cursor: int
    incarnation: int
    status: str
    recorded: bool = False


class Record:
    """One execution. Times are UTC, ISO 8601."""

    def __init__(self, document: dict[str, Any], *, cursor: int, recorded: bool = False) -> None:
        self._document = document
        self.cursor = cursor
        """the `seq` before it was queued: follow after this and miss nothing"""
        self.recorded = recorded
        """True: the key was known, this is the recorded execution and nothing new was run"""

    @property
    def execution_id(self) -> str:
        return str(self._document["execution_id"])

    @property
    def cell_id(self) -> str:
        return str(self._document["cell_id"])

    @property
    def key(self) -> str | None:
        return self._document.get("key")

    @property
    def principal(self) -> str:
        return str(self._document.get("principal", ""))

    @property
    def incarnation(self) -> int:
        return int(self._document["incarnation"])

    @property
    def status(self) -> str:
        """`queued`, `running`, `blocked` or `done`."""
        return str(self._document["status"])

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def outcome(self) -> str | None:
        """`ok`, `error`, `interrupted`, `aborted`, `died` or `unknown`; None until done."""
        return self._document.get("outcome")

    @property
    def execution_count(self) -> int | None:
        return self._document.get("execution_count")

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """nbformat 4.5 outputs."""
        return self._document.get("outputs") or []

    @property
    def gaps(self) -> list[dict[str, Any]]:
        """`{"reason", "messages", "bytes"}` of output that is not here."""
        return self._document.get("gaps") or []

    @property
    def error(self) -> CellError | None:
        error = self._document.get("error")
        if error is None:
            return None
        return CellError(
            ename=str(error.get("ename", "")),
            evalue=str(error.get("evalue", "")),
            traceback=list(error.get("traceback") or []),
        )

    @property
    def blocked(self) -> dict[str, Any] | None:
        """`{"on", "prompt", "pid", "since"}` while it waits for an answer."""
        return self._document.get("blocked")

    @property
    def evidence(self) -> dict[str, Any]:
        return self._document.get("evidence") or {}

    @property
    def text(self) -> str:
        """What it printed to stdout, and its displayed values as plain text."""
        return text_of(self.outputs)

    def json(self) -> dict[str, Any]:
        """The execution document of INTERFACE.md."""
        return self._document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.execution_id} {self.outcome or self.status}>"


def text_of(outputs: list[dict[str, Any]]) -> str:
    """stdout and text/plain of nbformat outputs, in order; values end with a newline between them."""
    parts: list[str] = []
    for output in outputs:
        kind = output.get("output_type")
        if kind == "stream" and output.get("name") == "stdout":
            parts.append(_joined(output.get("text", "")))
        elif kind in ("execute_result", "display_data"):
            plain = _joined((output.get("data") or {}).get("text/plain", ""))
            if parts and parts[-1] and not parts[-1].endswith("\n"):
                parts.append("\n")
            parts.append(plain)
    return "".join(parts)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
