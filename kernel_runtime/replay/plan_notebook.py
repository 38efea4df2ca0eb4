"""The plan of a notebook file: its code cells from top to bottom, or as our export says that they ran.

Tags are those of nbclient, papermill and nbval: `skip-execution`, `raises-exception`, `parameters`,
`nbval-skip`, `nbval-ignore-output`, and nbval's comments. A cell that raised when it was recorded is
expected to raise, with the tag or without it.

A plain notebook does not say in which order its cells ran, nor what ran and was overwritten since.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kernel_runtime.core.outputs import Output, OutputFolder
from kernel_runtime.errors import UsageError
from kernel_runtime.notebook.document import joined
from kernel_runtime.notebook.read import Notebook, NotebookCell, read_notebook
from kernel_runtime.replay.plan import Plan, Step

_DEFAULT_KERNEL = "python3"
_JSON_MIME = re.compile(r"application/(.*\+)?json")
_COMMENT = re.compile(r"^\s*#\s*NBVAL_(SKIP|IGNORE_OUTPUT|RAISES_EXCEPTION)\b", re.MULTILINE)
_SKIPS = ("skip-execution", "nbval-skip")
_IGNORES = "nbval-ignore-output"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plan_of_notebook(path: Path, *, order: str | None = None) -> Plan:
    """The plan of a notebook.

    Args:
        path: of the file.
        order: `document`; `executed` for a file that `krt export` wrote, whose metadata tells it; None:
            `executed` where the metadata tells it of every cell that holds an output, else `document`.

    Raises:
        NoSuchNotebook, InvalidNotebook: nothing is there, or no notebook.
        UsageError: `executed`, and the file does not tell.
    """
    notebook = read_notebook(path)
    cells = notebook.code
    ran = [cell for cell in cells if _ours(cell).get("execution_id")]
    if order is None:
        told = all(cell in ran for cell in cells if cell.outputs or cell.execution_count is not None)
        order = "executed" if ran and told else "document"
    if order == "executed":
        if not ran:
            raise UsageError(
                f"{path} does not say in which order its cells ran: no session of ours wrote it",
                hint="--order document runs them from top to bottom",
                path=str(path),
            )
        steps = _executed(cells)
    else:
        steps = [_step(cell) for cell in cells]
        for step in steps:
            step.incarnation = 1  # one kernel for all
    for number, step in enumerate(steps, 1):
        step.number = number
    return Plan(
        source=str(path),
        kind="notebook",
        order=order,
        kernel=notebook.kernelspec or _DEFAULT_KERNEL,
        cwd=str(path.absolute().parent),
        language=notebook.language or "",
        steps=steps,
        session_id=str(_of(notebook.metadata, "kernel_runtime").get("session_id") or ""),
        notes=[*notebook.notes, *_notes(notebook, steps, order)],
    )


def _executed(cells: list[NotebookCell]) -> list[Step]:
    """Cells in the order of their executions; those that were never run come last, and are not run."""
    ran = [_step(cell) for cell in cells]
    known = [step for step in ran if step.execution_id is not None]
    known.sort(key=lambda step: (step.incarnation, step.started_at or 0, step.execution_count or 0))
    never = [step for step in ran if step.execution_id is None]
    for step in never:
        step.skip = step.skip or "the file does not say that it was ever run"
    return known + never


def _step(cell: NotebookCell) -> Step:
    outputs = outputs_of(cell.outputs)
    errors = [output for output in outputs if output["output_type"] == "error"]
    tags = [tag for tag in cell.metadata.get("tags") or [] if isinstance(tag, str)]
    said = {f"nbval-{word.lower().replace('_', '-')}" for word in _COMMENT.findall(cell.source)}
    tagged = said | {tag.lower() for tag in tags}
    step = Step(
        number=0,
        cell_id=cell.id,
        source=cell.source,
        outputs=outputs,
        execution_count=cell.execution_count,
        tags=tags,
        allow_stdin=False,
    )
    if outputs or cell.execution_count is not None:
        step.outcome = "error" if errors else "ok"
        if errors:
            step.error = {name: errors[-1][name] for name in ("ename", "evalue", "traceback")}
    else:
        step.uncompared = "the file holds no output of it"
    _fill(step, cell)
    skips = [tag for tag in _SKIPS if tag in tagged]
    if skips:
        step.skip = f"it is tagged {skips[0]}"
    elif _IGNORES in tagged:
        step.uncompared = f"it is tagged {_IGNORES}"
    return step


def _fill(step: Step, cell: NotebookCell) -> None:
    """What the metadata of our export tells."""
    told = _ours(cell)
    if not told.get("execution_id"):
        return
    step.execution_id = str(told["execution_id"])
    step.incarnation = told["incarnation"] if isinstance(told.get("incarnation"), int) else 1
    step.principal = str(told.get("principal") or "")
    step.outcome = str(told["outcome"]) if told.get("outcome") else None
    if step.outcome is not None:
        step.uncompared = None
    timing = _of(cell.metadata, "execution")
    step.started_at = _nanoseconds(timing.get("iopub.execute_input"))
    step.finished_at = _nanoseconds(timing.get("shell.execute_reply"))
    digest = hashlib.sha256(step.source.encode("utf-8", "surrogatepass")).hexdigest()
    if told.get("source_digest") not in (None, digest):
        step.uncompared = "it was edited after it ran: the outputs are of another source"
    if step.outcome in ("interrupted", "unknown", "died", "aborted"):
        step.skip = f"it ended as {step.outcome}"
    elif step.outcome is None:
        step.skip = "it had not ended when the file was written"


def outputs_of(raw: Iterable[object]) -> list[Output]:
    """Outputs of a file as the journal's are: texts in one piece, streams merged, shown as a terminal would.

    nbclient writes a stream in as many pieces as it came in, which says nothing of the cell.
    """
    folder = OutputFolder()
    for output in raw:
        if isinstance(output, dict):
            content = dict(output)
            kind = str(content.pop("output_type", ""))
            if kind == "stream":
                content["text"] = joined(content.get("text"))
            elif isinstance(content.get("data"), dict):
                content["data"] = {
                    mime: joined(value)
                    if isinstance(value, list) and not _JSON_MIME.fullmatch(mime)
                    else value
                    for mime, value in content["data"].items()
                }
            folder.add({"type": kind, "content": content})
    return folder.outputs()


def _notes(notebook: Notebook, steps: list[Step], order: str) -> list[str]:
    notes: list[str] = []
    if steps and not any(step.outcome for step in steps):
        notes.append("the file holds no output of any cell: there is nothing to compare with")
    if order == "executed":
        notes.append("a file holds each cell's last execution only: what ran before it is not replayed")
    elif _of(notebook.metadata, "kernel_runtime"):
        notes.append("the cells run from top to bottom; the session ran them in its own order")
    return notes


def _ours(cell: NotebookCell) -> Mapping[str, Any]:
    return _of(cell.metadata, "kernel_runtime")


def _of(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = mapping.get(name)
    return value if isinstance(value, dict) else {}


def _nanoseconds(text: object) -> int | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
