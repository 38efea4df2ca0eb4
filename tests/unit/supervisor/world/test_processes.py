"""Whose process is it: every way in which one can belong to a session, and those that do not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_runtime.supervisor.world import procfs
from kernel_runtime.supervisor.world.processes import Member, Scope, find
from kernel_runtime.supervisor.world.procfs import Stat

SUPERVISOR, KERNEL = 10, 20
MARK = {"KRT_SESSION_ID": "s"}


class Machine:
    """A made-up table of processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table: dict[int, Stat] = {}
        self.environments: dict[int, dict[str, str]] = {}
        self.commands: dict[int, list[str]] = {}
        self.ran: str | None = None
        monkeypatch.setattr(procfs, "environment", lambda pid, _: self.environments.get(pid, {}))
        monkeypatch.setattr(procfs, "command", lambda pid: self.commands.get(pid, ["x"]))
        self.has(1, parent=0, session=1)
        self.has(SUPERVISOR, parent=1, session=SUPERVISOR)
        self.has(KERNEL, parent=SUPERVISOR, session=KERNEL, env=MARK)

    def has(
        self,
        pid: int,
        *,
        parent: int,
        session: int = KERNEL,
        env: Mapping[str, str] | None = None,
        command: list[str] | None = None,
    ) -> None:
        self.table[pid] = Stat(pid, "x", "S", parent, pid, session, 0, 0, 1, pid, 1, 0)
        self.environments[pid] = dict(env or {})
        if command is not None:
            self.commands[pid] = command

    def members(
        self,
        known: Mapping[tuple[int, int], Member] | None = None,
        excluded: frozenset[int] = frozenset(),
        kernel_parts: frozenset[int] = frozenset(),
    ) -> dict[int, tuple[str, str | None, str | None]]:
        scope = Scope(
            session_id="s",
            mark="KRT_SESSION_ID",
            started_by=lambda env: env.get("KRT_EXECUTION"),
            running_at=lambda _: self.ran,
            supervisor=SUPERVISOR,
            kernel=KERNEL,
            excluded=excluded,
            kernel_parts=kernel_parts,
        )
        return {
            member.stat.pid: (member.by, member.execution_id, member.execution_by)
            for member in find(self.table, scope, known or {})
        }


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_an_idle_session_has_no_process(machine: Machine) -> None:
    machine.has(30, parent=1, session=30)
    assert machine.members() == {}


def test_a_marked_process_names_its_execution_wherever_it_is(machine: Machine) -> None:
    machine.has(30, parent=KERNEL, env={**MARK, "KRT_EXECUTION": "e1"})
    machine.has(31, parent=1, session=31, env={**MARK, "KRT_EXECUTION": "e2"})
    assert machine.members() == {
        30: ("environment", "e1", "environment"),
        31: ("environment", "e2", "environment"),
    }


def test_a_cleared_environment_is_found_by_its_parents(machine: Machine) -> None:
    machine.has(30, parent=KERNEL, env={**MARK, "KRT_EXECUTION": "e1"})
    machine.has(31, parent=30)
    machine.has(32, parent=31, session=32)
    assert machine.members()[32] == ("descendant", "e1", "parent")


def test_an_orphan_with_a_cleared_environment_comes_to_the_supervisor(machine: Machine) -> None:
    machine.ran = "e7"
    machine.has(30, parent=SUPERVISOR, session=30)
    machine.has(31, parent=30, session=30)
    assert machine.members() == {30: ("adopted", "e7", "time"), 31: ("descendant", "e7", "parent")}


def test_an_orphan_that_was_seen_before_is_of_the_execution_it_was_of(machine: Machine) -> None:
    machine.has(30, parent=SUPERVISOR)
    stat = machine.table[30]
    before = Member(stat=stat, by="descendant", execution_id="e1", execution_by="parent")
    machine.ran = "e9"
    assert machine.members({(30, stat.start_time): before}) == {30: ("adopted", "e1", "parent")}


def test_what_the_supervisor_starts_itself_is_nobodys(machine: Machine) -> None:
    machine.has(30, parent=SUPERVISOR, session=SUPERVISOR)
    machine.has(40, parent=SUPERVISOR, session=40)
    machine.has(41, parent=SUPERVISOR, session=41, env=MARK)
    assert machine.members(excluded=frozenset({40, 41})) == {}


def test_a_fork_of_the_kernel_is_of_the_execution_that_ran(machine: Machine) -> None:
    machine.has(30, parent=KERNEL, env=MARK)
    assert machine.members() == {30: ("environment", None, None)}
    machine.ran = "e1"
    assert machine.members() == {30: ("environment", "e1", "time")}


def test_what_a_part_of_the_kernel_starts_is_the_sessions(machine: Machine) -> None:
    machine.has(30, parent=KERNEL, env=MARK)
    machine.has(31, parent=30)
    assert machine.members(kernel_parts=frozenset({30})) == {31: ("descendant", None, None)}


def test_a_session_that_a_cell_created_is_not_its_own(machine: Machine) -> None:
    supervisor = ["/usr/bin/python3", "-m", "kernel_runtime.supervisor", "/home/b"]
    machine.has(30, parent=SUPERVISOR, session=30, command=supervisor)
    machine.has(31, parent=30, session=31, env={"KRT_SESSION_ID": "other", "KRT_EXECUTION": "e"})
    machine.has(32, parent=31, session=31)
    assert machine.members() == {}


def test_a_table_that_was_read_while_it_changed_is_no_endless_line(machine: Machine) -> None:
    machine.has(30, parent=31)
    machine.has(31, parent=30)
    machine.has(32, parent=999)
    assert machine.members() == {}
