"""`krt exec`: run cells in a session, stream their outputs, and say how they ended."""

from __future__ import annotations

import time
from pathlib import Path

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.cli.cells import Cell, Work, gather
from kernel_runtime.cli.running import Watch
from kernel_runtime.client import blocking, session_files
from kernel_runtime.client.blocking import Execution, Session
from kernel_runtime.core.source import check_source

_RETRIES = 100
"""keys tried for a notebook's cell that was aborted each time before it started"""


@frame.command(
    "exec",
    example="krt exec alice --create 'x = 6 * 7; x'\n"
    "krt exec alice --file analysis.ipynb        # repeat it after a lost connection: it resumes\n"
    "krt exec alice 'train()' --detach --key training-1",
)
@frame.session_argument
@click.argument("code", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Run a .py as one cell, or a .ipynb's cells.",
)
@click.option("--key", metavar="K", help="Idempotency key: the same key and code run once, ever.")
@click.option("--detach", is_flag=True, help="Return once it is queued.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="S", help="Leave it running after S seconds."
)
@click.option(
    "--expect-incarnation",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse to run in any other incarnation.",
)
@click.option("--accept", is_flag=True, help="Run it even if the earlier heap is lost.")
@click.option("--create", is_flag=True, help="Create the session if there is none.")
@click.option("--again", is_flag=True, help="Run a notebook's cells anew, also those that have run.")
def command(
    *,
    name: str,
    code: str | None,
    file: Path | None,
    key: str | None,
    detach: bool,
    timeout: float | None,
    expect_incarnation: int | None,
    accept: bool,
    create: bool,
    again: bool,
    as_json: bool,
    principal: str | None,
) -> int:
    """Run CODE in the session, or stdin (-), a .py or a .ipynb; stream its outputs.

    Ctrl-C interrupts the cell. When this command is killed, or its terminal goes, the cell goes on.
    """
    existed = session_files.exists(name)
    if not existed and not create:
        session_files.load(name)  # says which sessions there are
    work = gather(name, code, file, key=key, again=again)
    for cell in work.cells:
        check_source(cell.source, name)
    deadline = None if timeout is None else time.monotonic() + timeout
    with blocking.attach(name, create=create, principal=principal, accept=accept) as session:
        if create and existed and not session.truth.all_live and not as_json:
            report.note(f"[krt: {session.truth.summary()}]")
        for note in work.notes:
            report.note(f"[krt: {work.notebook}: {note}]")
        runner = _Runner(
            session,
            accept=accept,
            expect_incarnation=expect_incarnation,
            detach=detach,
            deadline=deadline,
            as_json=as_json,
        )
        return runner.run(work)


class _Runner:
    def __init__(
        self,
        session: Session,
        *,
        accept: bool,
        expect_incarnation: int | None,
        detach: bool,
        deadline: float | None,
        as_json: bool,
    ) -> None:
        self._session = session
        self._accept = accept
        self._expect = expect_incarnation
        self._detach = detach
        self._deadline = deadline
        self._as_json = as_json

    def run(self, work: Work) -> int:
        """Run all cells, up to the first that does not end well; the exit status."""
        for cell in work.cells:
            status = self._one(cell)
            if status != 0:
                if cell.label and not self._as_json:
                    report.note(
                        f"[krt: {cell.label} (id {cell.cell_id}) did not end well; the rest was not run]"
                    )
                return status
        return 0

    def _one(self, cell: Cell) -> int:
        execution = self._submitted(cell)
        if execution.recorded and not self._as_json:
            self._say_recorded(cell, execution.outcome or execution.status, execution.incarnation)
        if self._detach:
            return self._left(execution.execution_id, execution.refresh().json())
        watch = Watch(
            self._session,
            execution.execution_id,
            after=execution.cursor,
            deadline=self._deadline,
            # a notebook's cells that ran before are not printed again: the run goes on after them
            quiet=self._as_json or bool(cell.label and execution.recorded and execution.done),
        )
        status = watch.to_end()
        if self._as_json:
            emit = report.emit_line if cell.label else report.emit
            emit(execution.refresh().json())
        return status

    def _submitted(self, cell: Cell) -> Execution:
        key = cell.key
        for number in range(2, _RETRIES):
            execution = self._session.submit(
                cell.source,
                key=key,
                cell_id=cell.cell_id,
                accept=self._accept,
                expect_incarnation=self._expect,
            )
            if not (cell.label and execution.recorded and execution.outcome == "aborted"):
                break
            key = f"{cell.key}:{number}"  # it never started, so this is its first run
        return execution

    def _say_recorded(self, cell: Cell, state: str, incarnation: int) -> None:
        what = cell.label or "this key"
        text = f"[krt: {what} was run before ({state}, incarnation {incarnation}) and is not run again"
        if cell.label:
            text += "; --again runs the notebook anew"
        report.note(text + "]")

    def _left(self, execution_id: str, document: dict[str, object]) -> int:
        name = self._session.name
        if self._as_json:
            report.emit(document)
        else:
            print(execution_id)
            report.note(f"[krt: queued; `krt wait {name} {execution_id}` waits for it]")
        return 0
