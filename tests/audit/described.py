"""Notebooks that are described: their cells, in which order an agent ran them, and what a replay must say.

A description is a TOML file of `notebooks/`. It is written before the notebook is first run, and says of each
execution how it ends, which verdict its replay has, and which rules that verdict needed, exactly.

    [cells]         name = source; `name.2` is another source for the same cell
    run             a table: cell, outcome, verdict, rules; or an action in the place of a cell:
                    KILL            SIGKILL to the kernel, from outside, between two cells
                    KILL-IN cell    the same, while the cell runs and has printed `ready`
                    END cell        runs it, and waits until the kernel that it ends is gone
                    RESTART         the agent restarts the kernel
    names           a table: the names that are not `same` at the end, with their verdicts
    answers         of a cell: for each of its executions, the answers to its questions
    afterwards      files that change between the recording and the replay
    notes           words of the notes that the result has
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct

NOTEBOOKS = Path(__file__).parent / "notebooks"
ACTIONS = ("KILL", "KILL-IN", "END", "RESTART")
_NOTHING = "-"


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table `run`."""

    action: str = ""
    """one of ACTIONS, or empty"""
    cell: str = ""
    outcome: str = ""
    verdict: str = ""
    rules: tuple[str, ...] = ()

    @property
    def cell_id(self) -> str:
        """The cell that the source belongs to."""
        return self.cell.partition(".")[0]


class Described(Struct, frozen=True, kw_only=True):
    """A notebook, its run, and the verdicts that are expected."""

    name: str
    question: str
    cells: dict[str, str]
    run: list[Row]
    verdict: str
    names: dict[str, str]
    answers: dict[str, list[list[str]]]
    files: dict[str, str]
    afterwards: dict[str, str]
    notes: tuple[str, ...]
    two_times: bool
    allow: tuple[str, ...]

    @property
    def executions(self) -> list[Row]:
        """Rows that are executions."""
        return [row for row in self.run if row.cell]


def described(name: str) -> Described:
    """The description of that name.

    Raises:
        ValueError: it says something that nothing reads, or of a cell that it has not.
    """
    document = tomllib.loads((NOTEBOOKS / f"{name}.toml").read_text())
    cells = _flat(document.pop("cells"))
    run = [_row(line.split(), name, cells) for line in _lines(document.pop("run"))]
    found = Described(
        name=name,
        question=document.pop("question"),
        cells=cells,
        run=run,
        verdict=document.pop("verdict"),
        names=dict(line.split() for line in _lines(document.pop("names", ""))),
        answers=document.pop("answers", {}),
        files=document.pop("files", {}),
        afterwards=document.pop("afterwards", {}),
        notes=tuple(document.pop("notes", ())),
        two_times=document.pop("two_times", False),
        allow=tuple(document.pop("allow", ())),
    )
    unused = set(cells) - {row.cell for row in run}
    if document or unused:
        raise ValueError(f"{name}: nothing reads {sorted(document) or sorted(unused)}")
    return found


def all_names() -> list[str]:
    """Of every description."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.toml"))


def _flat(cells: dict[str, Any]) -> dict[str, str]:
    return {name: source.strip("\n") for name, source in cells.items()}


def _lines(text: str) -> list[str]:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _row(words: list[str], name: str, cells: dict[str, str]) -> Row:
    action = ""
    if words[0] in ACTIONS:
        action, *words = words
        if not words:
            return Row(action=action)
    cell, outcome, verdict, *rules = words
    if cell not in cells:
        raise ValueError(f"{name}: it runs the cell {cell}, and has none of that name")
    chosen = tuple(sorted(rule.strip(",") for rule in rules if rule != _NOTHING))
    return Row(action=action, cell=cell, outcome=outcome, verdict=verdict, rules=chosen)
