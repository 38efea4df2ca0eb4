"""Which processes are the session's, and what each of them is.

A process belongs to the session by one of these, the first that holds, and its row says which:

- `environment`: it carries the session's mark, which every program started from a kernel inherits;
- `managed`: `krt spawn` or `krt term` started it, with whatever environment;
- `descendant`: its parents lead to the kernel, or to a process of the session;
- `adopted`: it lost its parents and came to the supervisor, which is the subreaper of the kernel and of
  what the kernel starts. Whoever the supervisor starts itself shares its session (setsid(2)), and no
  descendant of a kernel can: so the two are never confused.

The execution that started it is in its environment. A process that was forked and executed nothing has
the environment of its parent; then it is the execution of that parent, or the one execution that ran at
the instant it started, and the row says so. Another session that a cell has created is not its own.

Not promised: a process that cleared its environment *and* was orphaned while no supervisor was there, or
while another than the one that started the kernel was (it went to init), or one that another subreaper took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct

from kernel_runtime.supervisor.world import procfs
from kernel_runtime.supervisor.world.procfs import Stat

SUPERVISOR = "kernel_runtime.supervisor"


class Member(Struct, frozen=True, kw_only=True):
    """A process of the session."""

    stat: Stat
    by: str
    """`environment`, `descendant`, `adopted`, `managed`"""
    execution_id: str | None = None
    execution_by: str | None = None
    """`environment`; `parent`: that of the process which started it; `time`: it ran when this started"""


class Scope(Struct, frozen=True, kw_only=True):
    """What the session is, to whoever looks for its processes."""

    session_id: str
    mark: str
    """variable with the session's id"""
    started_by: Callable[[Mapping[str, str]], str | None]
    """the execution that an environment names"""
    running_at: Callable[[Stat], str | None]
    """the one execution that ran when that process started"""
    supervisor: int
    kernel: int | None
    kernel_parts: AbstractSet[int] = frozenset()
    """processes that the kernel had before its first execution: as the kernel itself"""
    excluded: AbstractSet[int] = frozenset()
    """processes that are part of the machinery"""
    managed: AbstractSet[int] = frozenset()
    """living processes that the session itself was told to start"""


def find(table: Mapping[int, Stat], scope: Scope, known: Mapping[tuple[int, int], Member]) -> list[Member]:
    """The session's processes among those in `table`, oldest first.

    `known` is what was found before, by pid and start time: an orphan is still of the execution it was of.
    """
    return _Search(table, scope, known).run()


class _Search:
    def __init__(
        self, table: Mapping[int, Stat], scope: Scope, known: Mapping[tuple[int, int], Member]
    ) -> None:
        self._table = table
        self._scope = scope
        self._known = known
        self._found: dict[int, Member | None] = {1: None, scope.supervisor: None}
        me = table.get(scope.supervisor)
        self._own_session = me.session if me is not None else -1

    def run(self) -> list[Member]:
        members = [member for pid in self._table if (member := self._member(pid)) is not None]
        return sorted(members, key=lambda member: (member.stat.start_time, member.stat.pid))

    def _member(self, pid: int) -> Member | None:
        """Goes up the line of parents until one is known, then down again: no recursion, no cycles."""
        line: list[int] = []
        while pid not in self._found and pid in self._table and pid not in line:
            line.append(pid)
            pid = self._table[pid].ppid
        for one in reversed(line):
            self._found[one] = self._judge(self._table[one])
        return self._found.get(line[0] if line else pid)

    def _judge(self, stat: Stat) -> Member | None:
        scope = self._scope
        if stat.pid == scope.kernel or stat.pid in scope.kernel_parts or stat.pid in scope.excluded:
            return None
        env = procfs.environment(stat.pid, scope.mark)
        mark = env.get(scope.mark)
        parent = self._found.get(stat.ppid)
        related = parent is not None or stat.ppid == scope.kernel or stat.ppid in scope.kernel_parts
        before = self._known.get((stat.pid, stat.start_time))
        managed = stat.pid in scope.managed
        orphan = stat.ppid == scope.supervisor and stat.session != self._own_session
        if mark is not None and mark != scope.session_id:
            return None  # of a session that one of our cells created
        if mark is None and not (related or orphan or managed or before is not None):
            return None
        if mark is None and SUPERVISOR in procfs.command(stat.pid)[:8]:
            return None
        execution_id, execution_by = scope.started_by(env) if mark is not None else None, "environment"
        if execution_id is None and before is not None:
            execution_id, execution_by = before.execution_id, before.execution_by or ""
        if execution_id is None and parent is not None:
            execution_id, execution_by = parent.execution_id, "parent"
        if execution_id is None and before is None:
            execution_id, execution_by = scope.running_at(stat), "time"
        by = "descendant" if related else "adopted"
        if mark is not None or managed:
            by = "environment" if mark is not None else "managed"
        return Member(
            stat=stat,
            by=by,
            execution_id=execution_id,
            execution_by=execution_by if execution_id is not None else None,
        )
