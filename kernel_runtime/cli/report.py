"""What commands print that is not a cell's output: documents, tables, errors.

Text from a session (sources, prompts, evidence) is shown without control characters, so that
looking at a session cannot drive the terminal of whoever looks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kernel_runtime.errors import HeapLost, KernelRuntimeError

_WIDE = 160


def emit(document: Any) -> None:
    """One JSON document on stdout: indented for a person's terminal, one line for a program."""
    encoded = msgspec.json.encode(document)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    emit_raw(encoded)


def emit_line(document: Any) -> None:
    """One line of JSON Lines on stdout, at once."""
    emit_raw(msgspec.json.encode(document))


def emit_raw(encoded: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(encoded + b"\n")
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """A remark to the person, on stderr."""
    print(clean(text), file=sys.stderr, flush=True)


def failed(error: KernelRuntimeError, *, as_json: bool) -> int:
    """Print an error; its exit status."""
    if as_json:
        emit({"error": error.to_json()})
    else:
        print(f"krt: {clean(error.message)}", file=sys.stderr)
        if isinstance(error, HeapLost):
            _lost(error)
        if error.hint:
            print(f"  next: {clean(error.hint)}", file=sys.stderr)
        if stderr := str(error.fields.get("stderr") or ""):
            print("  it said:", file=sys.stderr)
            print("\n".join(f"    {clean(line)}" for line in stderr.splitlines()[-20:]), file=sys.stderr)
        sys.stderr.flush()
    return error.exit_code


def _lost(error: HeapLost) -> None:
    document = error.fields.get("report")
    if isinstance(document, dict) and document.get("cells"):
        cells_table(document["cells"], limit=15, file=sys.stderr)


def clean(text: str) -> str:
    """Text that prints: lines and tabs stay, other control characters are shown as one mark."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    flexible: str | None = None,
    file: Any = None,
) -> None:
    """A table without borders; `flexible` is the column that gives way when it gets narrow."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    stream = file or sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else _WIDE, highlight=False)
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if column == flexible else None)
    for row in rows:
        cells = [Text("" if value is None else clean(str(value)).replace("\n", "⏎")) for value in row]
        for cell in cells:
            if style := _STYLES.get(cell.plain):
                cell.stylize(style)
        grid.add_row(*cells)
    console.print(grid)


_STYLES = {
    "lost": "bold red",
    "dead": "bold red",
    "unknown": "red",
    "unresponsive": "red",
    "partial": "yellow",
    "edited": "yellow",
    "stale": "yellow",
    "drifted": "yellow",
    "unreadable": "dim",
    "blocked": "yellow",
    "not-run": "dim",
    "stopped": "dim",
    "live": "green",
    "idle": "green",
    "busy": "cyan",
}


def cells_table(cells: Sequence[dict[str, Any]], *, limit: int, file: Any = None) -> None:
    """Cells and their truths, worst first as they came, `limit` rows at most."""
    from kernel_runtime.core.evidence import in_words

    rows = [
        (
            cell["truth"],
            cell.get("outcome") or "",
            source_of(cell),
            in_words(cell),
            (cell.get("execution_id") or "")[:8],
        )
        for cell in cells[:limit]
    ]
    table(("truth", "outcome", "cell", "evidence", "execution"), rows, flexible="cell", file=file)


def source_of(cell: dict[str, Any]) -> str:
    return str((cell.get("evidence") or {}).get("source") or cell.get("cell_id") or "")


def count_line(counts: dict[str, int]) -> str:
    """`3 lost, 1 partial, 120 live`, worst first."""
    from kernel_runtime.model.truth import CELL_TRUTHS

    known = [f"{counts[truth]:,} {truth}" for truth in CELL_TRUTHS if counts.get(truth)]
    return ", ".join(known) or "no cells"
