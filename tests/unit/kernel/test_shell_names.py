"""Names that the shell and Python put into the namespace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kernel_runtime.kernel.probe.heap import HeapProbe
from kernel_runtime.kernel.probe.records import is_ours
from kernel_runtime.kernel.shell import KernelShell


class Shell(SimpleNamespace):
    """What `forget_inputs` needs of one."""

    _inputs_from = 1
    forget_inputs = cast("Any", KernelShell.forget_inputs)

    def input(self, count: int) -> None:
        self.execution_count = count
        name = f"_i{count}"
        self.user_ns[name] = self.user_ns_hidden[name] = f"source {count}"
        self.forget_inputs()


def shell() -> Shell:
    return Shell(user_ns={}, user_ns_hidden={}, execution_count=1)


def test_old_inputs_leave_the_namespace() -> None:
    it = shell()
    for count in range(1, 1001):
        it.input(count)
        assert len(it.user_ns) <= 200
    assert {f"_i{n}" for n in range(901, 1001)} <= it.user_ns.keys()
    assert it.user_ns.keys() == it.user_ns_hidden.keys()
    it.input(1)  # %reset
    for count in range(2, 500):
        it.input(count)
    assert "_i1" not in it.user_ns


def test_what_a_cell_put_there_stays() -> None:
    it = shell()
    it.input(1)
    it.user_ns["_i1"] = mine = ["a cell's"]
    for count in range(2, 400):
        it.input(count)
    assert it.user_ns["_i1"] is mine


def test_looking_costs_no_more_after_many_executions() -> None:
    """By what is looked at, not by time: how many names there are after 100 executions and after 5,000."""
    it = shell()
    probe = HeapProbe(it.user_ns, it.user_ns_hidden)
    sizes = []
    for count in range(1, 5001):
        it.input(count)
        code = compile("x = 1", "<cell>", "exec")
        probe.begin([])
        probe.ran(code)
        exec(code, cast("dict[str, Any]", it.user_ns))
        probe.end(ok=True, volatile=[])
        sizes.append(len(probe._binding.keys))
    assert sizes[99] <= max(sizes[4800:]) <= sizes[99] + 101


def test_what_python_keeps_for_itself_is_no_cells_name() -> None:
    """Mechanism: a warning makes a registry in the namespace, and `!command` a status; the next one another.

    Right: the first cell is not superseded by it, and who reads such a name reads more than can be told.
    """
    for name in ("__warningregistry__", "__annotations__", "__builtins__", "_exit_code", "_i7", "_"):
        assert is_ours(name)
    space: dict[str, Any] = {"__name__": "__main__"}
    probe = HeapProbe(space)

    def run(source: str) -> dict[str, Any]:
        code = compile(source, "<cell>", "exec")
        probe.begin([])
        probe.ran(code)
        exec(code, space)
        return probe.end(ok=True, volatile=[])

    assert run("__warningregistry__ = {}; _exit_code = 0")["names"] == {}
    assert run("n: int = 1")["names"].keys() == {"n"}
    assert run("x = _exit_code")["dynamic"]
    assert run("x = __warningregistry__")["dynamic"]
