"""An agent that works through a described notebook, and what a replay says beside what was expected."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import kernel_runtime as kr
from kernel_runtime.client.blocking import Execution
from kernel_runtime.replay.result import Result
from tests.audit.described import Described, Row
from tests.cases.support import entries, kernel_pid, printed
from tests.support import eventually

CELL = 60.0
"""seconds that a cell may take here; none needs 10 s of a processor"""


def record(notebook: Described, cwd: Path, *, name: str = "") -> str:
    """Run it in a session of its own, stop that, and give the session's name.

    Raises:
        AssertionError: an execution ended otherwise than described.
    """
    name = name or notebook.name
    cwd.mkdir(parents=True, exist_ok=True)
    for file, text in notebook.files.items():
        (cwd / file).write_text(text)
    with kr.attach(name, create=True, cwd=str(cwd), principal="agent:analyst") as session:
        try:
            answers = {cell: iter(given) for cell, given in notebook.answers.items()}
            for number, row in enumerate(notebook.run, 1):
                given = next(answers[row.cell]) if row.cell in answers else []
                _do(session, notebook, row, given, f"{notebook.name}, line {number} of its run")
            session.status(limit=0)  # waits until the last cell has been looked at; a stop does not
        finally:
            session.stop()
    for file, text in notebook.afterwards.items():
        (cwd / file).write_text(text)
    return name


def _do(session: kr.Session, notebook: Described, row: Row, answers: list[str], where: str) -> None:
    if row.action == "RESTART":
        session.restart()
        return
    deaths = len(entries(session, "KernelDied", "KernelStopped"))
    if row.action == "KILL":
        os.kill(kernel_pid(session), signal.SIGKILL)
        _is_dead(session, deaths, where)
        return
    x = session.submit(
        notebook.cells[row.cell], cell_id=row.cell_id, accept=True, stop_on_error=False, allow_stdin=True
    )
    if row.action == "KILL-IN":
        eventually(lambda: printed(session, x, "ready"), what=f"{where}: it printed ready")
        os.kill(kernel_pid(session), signal.SIGKILL)
    for asked, answer in enumerate(answers, 1):
        _is_asked(session, x, asked, where)
        session.answer(answer, execution_id=x.execution_id)
    x.wait(timeout=CELL)
    assert x.outcome == row.outcome, f"{where}: {row.cell} ended as {x.outcome}\n{x.text}"

    if row.action == "END":
        _is_dead(session, deaths, where)


def _is_dead(session: kr.Session, before: int, where: str) -> None:
    """One death more than before is on record."""
    eventually(
        lambda: len(entries(session, "KernelDied", "KernelStopped")) > before,
        what=f"{where}: the death is told",
    )


def _is_asked(session: kr.Session, x: Execution, times: int, where: str) -> None:
    """It has asked so many times."""
    eventually(
        lambda: len(entries(session, "InputRequested", execution=x)) >= times, what=f"{where}: it asks"
    )


def expected(notebook: Described) -> list[tuple[str, str, tuple[str, ...]]]:
    """Cell, verdict and rules of each execution, as they were written down."""
    return [(row.cell_id, row.verdict, row.rules) for row in notebook.executions]


def found(result: Result) -> list[tuple[str, str, tuple[str, ...]]]:
    """The same, as a replay gives it."""
    return [(row["cell_id"], row["verdict"], tuple(sorted(row["rules"]))) for row in result.executions]


def names_found(result: Result) -> dict[str, str]:
    """Names that are not the same, and their verdicts."""
    return {row["name"]: row["verdict"] for row in result.names if row["verdict"] != "same"}


def told(result: Result) -> str:
    """What stands behind each verdict, for who reads a failure."""
    lines: list[str] = []
    for row in result.executions:
        lines.append(f"{row['number']:>3} {row['cell_id']} {row['verdict']} {','.join(row['rules'])}")
        detail: list[Any] = [row["reason"], row["diff"], *row["remarks"]]
        lines += [f"      {line}" for one in detail if one for line in str(one).splitlines()[:12]]
    return "\n".join(lines + [f"    name {name}: {verdict}" for name, verdict in names_found(result).items()])
