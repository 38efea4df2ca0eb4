"""`pytest --krt-replay notebooks/`: each executed cell of a notebook is a test that it comes out the same.

A notebook is replayed once, when the first of its cells is asked for; every cell then tells its own verdict.
`same` and `same-normalized` pass, `skipped` is skipped with its reason, the others fail with their diff.

Invariant: without `--krt-replay` nothing is collected and nothing of the replay is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernel_runtime.replay.plan import Plan
    from kernel_runtime.replay.result import Result

_NAMES = "names at the end"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("krt", "replay of notebooks (kernel-runtime)")
    group.addoption(
        "--krt-replay", action="store_true", help="replay .ipynb files, each executed cell a test"
    )
    group.addoption(
        "--krt-order",
        choices=["executed", "document"],
        help="as they ran, or from top to bottom; by default as the notebook tells",
    )
    for option, what in (("rule", "let this pass too"), ("no-rule", "do not let this pass")):
        group.addoption(
            f"--krt-replay-{option}",
            action="append",
            default=[],
            metavar="RULE",
            help=f"{what}; may be repeated",
        )
    group.addoption("--krt-replay-strict", action="store_true", help="let nothing pass but --krt-replay-rule")
    group.addoption(
        "--krt-replay-allow", action="append", default=[], metavar="WHAT", help="what may really happen"
    )
    group.addoption("--krt-replay-timeout", type=float, metavar="S", help="seconds for each cell")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("krt_replay"):
        _rules(config)  # a rule that is none is told at once


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> NotebookFile | None:
    if file_path.suffix != ".ipynb" or not parent.config.getoption("krt_replay"):
        return None
    if ".ipynb_checkpoints" in file_path.parts:
        return None
    found: NotebookFile = NotebookFile.from_parent(parent, path=file_path)
    return found


def _rules(config: pytest.Config) -> Any:
    from kernel_runtime.errors import UsageError
    from kernel_runtime.replay.compare import choose

    try:
        return choose(
            on=config.getoption("krt_replay_rule"),
            off=config.getoption("krt_replay_no_rule"),
            strict=config.getoption("krt_replay_strict"),
        )
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


class NotebookFile(pytest.File):
    """A notebook. Reading it tells its cells; the first cell that is run has it replayed."""

    _result: Result | None = None
    _error: Exception | None = None

    def collect(self) -> Iterator[pytest.Item]:
        from kernel_runtime.errors import KernelRuntimeError
        from kernel_runtime.replay.report.words import first_line

        try:
            plan = self._plan()
        except KernelRuntimeError as error:
            raise self.CollectError(str(error)) from error
        for step in plan.steps:
            name = f"step {step.number}: {first_line(step.source)}"
            yield CellItem.from_parent(self, name=_printable(name), number=step.number)
        if plan.names is not None:
            yield NamesItem.from_parent(self, name=_NAMES)

    def _plan(self) -> Plan:
        from kernel_runtime.replay.sources import load

        return load(self.path, order=self.config.getoption("krt_order")).plan

    def result(self) -> Result:
        """The result of the one replay.

        Raises:
            KernelRuntimeError: it could not be replayed; every cell says so.
        """
        from kernel_runtime.errors import KernelRuntimeError
        from kernel_runtime.replay.audit import replay

        if self._error is not None:
            raise self._error
        if self._result is None:
            try:
                self._result = replay(
                    self.path,
                    order=self.config.getoption("krt_order"),
                    rules=_rules(self.config),
                    allow=self.config.getoption("krt_replay_allow"),
                    timeout=self.config.getoption("krt_replay_timeout"),
                )
            except KernelRuntimeError as error:
                self._error = error
                raise
        return self._result


class Differs(Exception):
    """A verdict that fails a test; its text is what the test shows."""


class _OfNotebook(pytest.Item):
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from kernel_runtime.errors import KernelRuntimeError

        if isinstance(excinfo.value, Differs | KernelRuntimeError):
            return _printable(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name

    def replayed(self) -> Result:
        assert isinstance(self.parent, NotebookFile)
        return self.parent.result()


class CellItem(_OfNotebook):
    """One execution."""

    def __init__(self, *, number: int, **how: Any) -> None:
        super().__init__(**how)
        self.number = number

    def runtest(self) -> None:
        row = next(row for row in self.replayed().executions if row["number"] == self.number)
        self.user_properties.append(("verdict", row["verdict"]))
        if row["rules"]:
            self.user_properties.append(("rules", " ".join(row["rules"])))
        if row["verdict"] == "skipped":
            pytest.skip(row["reason"])
        if row["verdict"] in ("different", "nondeterministic"):
            told = [row["reason"], *row["remarks"], row["diff"]]
            raise Differs("\n".join([f"{self.name}: {row['verdict']}", *(one for one in told if one)]))


class NamesItem(_OfNotebook):
    """What the kernel held at the end, where the record tells of it."""

    def runtest(self) -> None:
        rows = [row for row in self.replayed().names if row["verdict"] in ("different", "missing", "new")]
        if rows:
            raise Differs("\n".join(f"{row['name']}: {row['verdict']}" for row in rows))


def _printable(text: str) -> str:
    """Text that neither drives a terminal nor breaks a report."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
