"""What an import costs whoever only names the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"zmq", "apsw", "asyncio", "click", "rich", "jupyter_client", "nbformat", "IPython", "psutil"}


def loaded(statement: str) -> set[str]:
    program = f"{statement}\nimport sys; print(*sorted(m for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement, heavy",
    [
        ("import kernel_runtime", HEAVY),
        ("import kernel_runtime.errors", HEAVY),
        ("import kernel_runtime.cli", HEAVY - {"click"}),
        ("import kernel_runtime.cli.exec", {"rich", "jupyter_client", "nbformat", "IPython", "psutil"}),
        ("import kernel_runtime.client.blocking", {"click", "rich", "jupyter_client", "nbformat", "IPython"}),
    ],
)
def test_it_loads_nothing_heavy_before_it_is_used(statement: str, heavy: set[str]) -> None:
    assert not loaded(statement) & heavy


def test_help_loads_no_command() -> None:
    program = (
        "from kernel_runtime import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
    )
    found = {name for name in loaded(program) if name.startswith("kernel_runtime.c")}
    assert found <= {"kernel_runtime.cli", "kernel_runtime.cli.frame", "kernel_runtime.cli.report"}
