"""`krt attach`: a console on the live session."""

from __future__ import annotations

import codeop
import contextlib
import sys
import warnings

from kernel_runtime.cli import frame, report
from kernel_runtime.cli.running import Watch
from kernel_runtime.client import blocking
from kernel_runtime.client.blocking import Session
from kernel_runtime.client.brief import shown
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.errors import HeapLost, KernelRuntimeError

_HISTORY = 500


@frame.command("attach", example="krt attach alice")
@frame.session_argument
def command(*, name: str, as_json: bool, principal: str | None) -> int:
    """Open a console on the live session: what runs now is shown, then cells are read from you.

    Ctrl-C interrupts the running cell, Ctrl-D detaches and leaves everything as it is. With --json
    the report of the attach is printed, and that is all.
    """
    with blocking.attach(name, principal=principal) as session:
        if as_json:
            report.emit(session.attached)
            return 0
        report.note(session.truth.summary())
        if not session.truth.all_live:
            _tell(session)
        _join_running(session)
        _Console(session).run()
        report.note(f"[krt: detached; session {name} goes on. `krt attach {name}` comes back]")
    return 0


def _tell(session: Session) -> None:
    """Show what is not live. Being shown it, the person may go on in a new heap."""
    status = session.status(limit=10) if session.heap_lost else session.truth
    cells = [cell for cell in status.json()["cells"] if cell["truth"] != "live"]
    if cells:
        report.cells_table(cells, limit=10, file=sys.stderr)


def _join_running(session: Session) -> None:
    row = session.running()
    if row is None:
        return
    since = f" since {iso_time(row.started_at)}" if row.started_at else ""
    document = session.execution(row.execution_id).json()
    report.note(f"[krt: {row.principal} is running {row.execution_id}{since}: {shown(document['source'])}]")
    Watch(session, row.execution_id, after=row.queued_seq - 1).to_end()


class _Console:
    """Reads cells from the person and is at each until it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._python = session.language() == "python"
        self._prompt = f"{session.name}> " if sys.stdin.isatty() else ""
        self._more = "." * len(session.name) + "> " if sys.stdin.isatty() else ""
        self._remember()

    def run(self) -> None:
        """Until end of file."""
        while True:
            try:
                source = self._read()
            except EOFError:
                print(file=sys.stderr)
                return
            except KeyboardInterrupt:
                print(file=sys.stderr)
                continue
            if source.strip():
                self._one(source)

    def _one(self, source: str) -> None:
        try:
            execution = self._submitted(source)
            if execution is not None:
                Watch(self._session, execution.execution_id, after=execution.cursor).to_end()
        except KernelRuntimeError as error:
            report.failed(error, as_json=False)
        except KeyboardInterrupt:
            print(file=sys.stderr)

    def _submitted(self, source: str) -> blocking.Execution | None:
        try:
            return self._session.submit(source)
        except HeapLost as lost:
            report.failed(lost, as_json=False)
            if not sys.stdin.isatty() or input("run it in the new heap? [y/N] ").strip().lower() != "y":
                return None
            return self._session.submit(source, accept=True)

    def _read(self) -> str:
        lines = [input(self._prompt)]
        while self._is_open(lines):
            lines.append(input(self._more))
        return "\n".join(lines)

    def _is_open(self, lines: list[str]) -> bool:
        """Whether the cell goes on: as in Python's own console, an empty line ends a block."""
        if not self._python:
            return lines[-1].endswith("\\")
        if lines[0].startswith("%%"):
            return lines[-1] != ""
        if lines[0].lstrip().startswith(("%", "!")) or lines[0].rstrip().endswith("?"):
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the kernel says them when it runs the cell
            try:
                return codeop.compile_command("\n".join(lines), symbol="single") is None
            except (SyntaxError, ValueError, OverflowError):
                return False  # top-level await, or an error that the kernel tells better

    def _remember(self) -> None:
        """The arrow keys reach what ran in this session before, by whomever."""
        if not sys.stdin.isatty():
            return
        with contextlib.suppress(ImportError):  # Python built without it: plain lines
            import readline

            for source in self._session.history(_HISTORY):
                if "\n" not in source and source.strip():
                    readline.add_history(source)
