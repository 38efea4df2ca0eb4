"""Which cells run nothing but the interpreter."""

from __future__ import annotations

import pytest

from kernel_runtime.kernel.probe.quiet import is_quiet


class Noisy:
    def __del__(self) -> None:
        """Runs when its name is bound to something else."""

    def __hash__(self) -> int:
        return 1


NAMESPACE = {"n": 1, "t": "text", "o": Noisy(), "f": len}


@pytest.mark.parametrize(
    "source",
    ["x = 1", "x = y = 2.5", "x, y = 1, 'a'", "n = t", "n, t = t, n", "x = [1, n]", "x = {'k': n}", "x = ()"],
)
def test_quiet(source: str) -> None:
    assert is_quiet(compile(source, "<cell>", "exec"), NAMESPACE)


@pytest.mark.parametrize(
    "source",
    [
        "x = n + 1",
        "f()",
        "x = [*t]",
        "o = 1",
        "x = {o: 1}",
        "x = o",
        "del n",
        "import os",
        "for x in t: pass",
        "x = n.real",
        "n",
        "def g(): pass",
        "x = f'{n}'",
        "class C: pass",
        "x = n if n else t",
        "raise n",
        "global n; n = 1",
    ],
)
def test_what_may_run_other_code_or_let_go_of_an_object(source: str) -> None:
    """Mechanism: an operator, a formatted text, a key of a dict or a finalizer is somebody's code.

    Right: such a cell is looked at in full.
    """
    mode = "single" if source == "n" else "exec"  # what is shown is represented first
    assert not is_quiet(compile(source, "<cell>", mode), NAMESPACE)
