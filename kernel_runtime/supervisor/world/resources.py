"""`World`: the resources of a session, each with its truth and the execution that started it.

One look reads all of /proc once. What it costs grows with the processes of the machine (measured in
docs/world.md) and, for sockets and files, with what the session's own processes hold. A row never stands
for anything that was not seen: what a bound leaves out is counted in a row of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kernel_runtime import process
from kernel_runtime.supervisor import launch
from kernel_runtime.supervisor.world import files, machinery, procfs, rows, sockets
from kernel_runtime.supervisor.world.activity import Activity
from kernel_runtime.supervisor.world.machinery import Machinery
from kernel_runtime.supervisor.world.memory import KEPT, Memory
from kernel_runtime.supervisor.world.processes import Member, Scope, find
from kernel_runtime.supervisor.world.procfs import Stat

if TYPE_CHECKING:
    from kernel_runtime.core.lifecycle import State
    from kernel_runtime.supervisor.rpc import Op
    from kernel_runtime.supervisor.session import Supervisor

MOST = 200
"""rows of one kind, unless told otherwise"""
WORLD_WITHIN = 0.3
"""seconds a kernel has to tell of its environment and settings"""
GLANCE_AFTER = 0.2
"""seconds after an execution until its processes are looked for, so that their end will be known"""
_RECENT = 200
"""executions among which the one is looked for that ran when a process started"""
_SLACK = 20_000_000
"""nanoseconds: start times are told in ticks of 10 ms"""
_FOSTER = "foster.py"


class World:
    """What the session's supervisor sees around its kernel."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self.managed: Callable[[], list[dict[str, Any]]] = list
        """rows of the processes that belong to the session and not to its kernel, with their `pid`"""
        self.helpers: list[Callable[[], Iterable[int]]] = []
        """processes that are part of the machinery, and are nobody's resource"""
        self.memory = Memory(supervisor.reactor, self._running)
        self._machinery: Machinery | None = None
        self.activity = Activity(supervisor, self._is_own_descriptor)
        self._glance_due = False
        supervisor.shell.on_change.append(self._changed)
        supervisor.rpc.register(self._ops())
        self._glance_soon()

    def _ops(self) -> dict[str, Op]:
        def resources(_principal: str, args: dict[str, Any], token: Any, _request: object) -> None:
            limit = args.get("limit")
            most = int(limit) if limit is not None else None
            self.describe(lambda found: token.respond({"resources": found}), most)

        def why(_principal: str, _args: dict[str, Any], token: Any, _request: object) -> None:
            self._s.keeper.look()
            state = self._s.shell.state
            reasons = self._s.reporter.why(state)
            told = {"state": state.name, "why": reasons}
            if state.running is None or state.kernel != "up":
                token.respond(told)
                return

            def described(activity: dict[str, Any]) -> None:
                reasons["activity"] = activity
                token.respond(told)

            self.activity.describe(described)

        return {"resources": resources, "why": why}

    # -- looking

    def kernel(self) -> int | None:
        """The living kernel's pid."""
        record = self._s.keeper.record
        return record.process.pid if record is not None and process.is_alive(record.process) else None

    def look(self) -> list[Member]:
        """The session's processes now, zombies too; managed ones are `managed`."""
        table = procfs.table()
        kernel = self.kernel()
        excluded = {pid for helper in self.helpers for pid in helper()}
        if kernel is not None and kernel in table:
            parent = table[kernel].ppid
            if parent != os.getpid() and any(part.endswith(_FOSTER) for part in procfs.command(parent)):
                excluded.add(parent)
        kept = self._s.keeper.child_pid
        if kept is not None and kept != kernel:
            excluded.add(kept)
        managed = self.managed()
        recent: list[Any] = []

        def running_at(stat: Stat) -> str | None:
            if not recent:
                recent.extend(self._s.shell.reader.executions(last=_RECENT))
            return _running_at(procfs.started_at(stat.start_time), recent)

        session_id = self._s.identity.session_id
        scope = Scope(
            session_id=session_id,
            mark=launch.MARK,
            started_by=lambda env: launch.started_by_execution(session_id, env),
            running_at=running_at,
            supervisor=os.getpid(),
            kernel=kernel,
            kernel_parts={
                pid for pid, start in self._own().children if pid in table and table[pid].start_time == start
            },
            excluded=excluded,
            managed={row["pid"] for row in managed if row["truth"] == "true"},
        )
        members = find(table, scope, self.memory.members)
        not_ours = {row.get("pid") for row in managed}
        own = [member for member in members if member.stat.pid not in not_ours]
        unknown = {
            member.stat.pid: procfs.command(member.stat.pid)
            for member in own
            if (member.stat.pid, member.stat.start_time) not in self.memory.members
        }
        self.memory.saw(own, unknown)
        return members

    def bury(self, pid: int) -> None:
        """Wait for a child of the supervisor's that has ended; an orphan's end is remembered."""
        stat = procfs.stat(pid)
        try:
            waited, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return
        if waited == pid:
            self.memory.buried(pid, status, stat)

    def close(self) -> None:
        self.memory.close()

    def _running(self) -> str | None:
        running = self._s.shell.state.running
        return running.execution.execution_id if running is not None else None

    def _changed(self, before: State) -> None:
        state = self._s.shell.state
        record = self._s.keeper.record
        if before.kernel == "starting" and state.kernel == "up" and record is not None:
            self._machinery = machinery.note(self._s.sockets, record)
        if before.running is not None and state.running is None:
            self._glance_soon()

    def _glance_soon(self) -> None:
        if not self._glance_due:
            self._glance_due = True
            self._s.reactor.after(GLANCE_AFTER, self._glance)

    def _glance(self) -> None:
        """Look for processes only if there is a child that nobody has looked at yet."""
        self._glance_due = False
        children = procfs.children(os.getpid())
        kernel = self.kernel()
        if kernel is not None:
            children |= procfs.children(kernel)
        known = {pid for pid, _ in self.memory.members}
        if children - known - {kernel, self._s.keeper.child_pid}:
            self.look()

    # -- rows

    def resources(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Rows as INTERFACE.md has them, processes first; at most `limit` of each kind."""
        members = [member for member in self.look() if member.stat.state != "Z"]
        kernel = self.kernel()
        kernel_argv = procfs.command(kernel) if kernel is not None else []
        holders = {member.stat.pid: member.execution_id for member in members}
        # the oldest ones: what listens was started early, and a look must end
        looked_at = [*([kernel] if kernel is not None else []), *list(holders)[:MOST]]
        held = [(pid, procfs.descriptors(pid)) for pid in looked_at]
        open_sockets = self._sockets(held)
        ports = rows.ports_of(open_sockets)
        managed = self.managed()
        by_pid = {row["pid"]: row for row in managed if row.get("pid") is not None}
        most = MOST if limit is None else limit
        left_out = len(members[most:])
        processes = [
            {
                **rows.process_row(member, kernel_argv),
                "ports": ports.get(member.stat.pid, []),
                **by_pid.pop(member.stat.pid, {}),
            }
            for member in members[:most]
        ]
        processes += [row for row in managed if row.get("pid") is None or row["pid"] in by_pid]
        processes += [rows.ended_row(ended) for ended in self.memory.ended()]
        sources = {one: self._source(one) for one in {row["started_by"] for row in processes}}
        processes = [{"source": sources[row["started_by"]], **row} for row in processes]
        some_files = files.of_processes(held, self._is_own_path)
        return [
            *rows.bounded("process", processes, most + KEPT, left_out),
            *rows.bounded("socket", [rows.socket_row(*one, holders, kernel) for one in open_sockets], most),
            *rows.bounded("file", [rows.file_row(one, holders, kernel) for one in some_files], most),
            *rows.bounded("terminal", rows.terminal_rows(members, kernel), most),
            *rows.env_rows(kernel),
        ]

    def describe(self, on_rows: Callable[[list[dict[str, Any]]], None], limit: int | None = None) -> None:
        """As `resources`, with what only a kernel of ours can tell of itself, if it answers in time."""

        def answered(world: dict[str, Any] | None) -> None:
            on_rows([*self.resources(limit), *rows.settings_rows(world or {})])

        self._s.questions.ask("world", {}, answered, WORLD_WITHIN)

    def _source(self, execution_id: str | None) -> str | None:
        """The first line of what was executed; None for none of this journal."""
        if execution_id is None or self._s.shell.reader.execution(execution_id) is None:
            return None
        source = self._s.shell.reader.source(execution_id)
        return next((line.strip()[:120] for line in source.splitlines() if line.strip()), "")

    def _sockets(self, held: list[tuple[int, dict[int, str]]]) -> list[tuple[sockets.Socket, list[int]]]:
        """Each socket once, with who holds it, oldest first; what listens before what is connected."""
        tables = sockets.Tables()
        own = self._own().sockets
        holders: dict[int, list[int]] = {}
        found: dict[int, sockets.Socket] = {}
        for pid, links in held:
            for target in links.values():
                inode = procfs.inode(target, "socket")
                if inode is None or inode in own:  # without a look at the tables, which cost most of all
                    continue
                if inode not in found:
                    one = tables.find(pid, inode)
                    if one is None or self._is_own_socket(one):
                        continue
                    found[inode] = one
                if pid not in (pids := holders.setdefault(inode, [])):
                    pids.append(pid)
        order = sorted(found.values(), key=lambda one: (one.state != sockets.LISTENING, one.address))
        return [(one, holders[one.inode]) for one in order]

    def _is_own_socket(self, one: sockets.Socket) -> bool:
        """Whether it is a kernel's to its supervisor; forks of the kernel hold those too."""
        if one.protocol == "unix":
            return self._is_own_path(one.address)
        record = self._s.keeper.record
        if record is None or record.connection.transport != "tcp":
            return False
        ports = {
            getattr(record.connection, f"{channel}_port")
            for channel in ("shell", "iopub", "stdin", "control", "hb")
        }
        return one.port in ports

    def _own(self) -> Machinery:
        """What the present kernel held when it was up; an earlier one's forks have ended with its heap."""
        record = self._s.keeper.record
        if record is not None and (self._machinery is None or self._machinery.process != record.process):
            self._machinery = machinery.load(self._s.sockets, record)
        return self._machinery or machinery.NOTHING

    def _is_own_descriptor(self, fd: int, target: str) -> bool:
        """Whether a descriptor of the kernel's is the machinery's: event loops, wake-ups, channels."""
        own = self._own()
        inode = procfs.inode(target, "socket")
        # a terminal or a pipe of it leads to the part of the kernel that runs the cells
        same = target.startswith("anon_inode:") and own.descriptors.get(fd) == target
        return inode in own.sockets or same

    def _is_own_path(self, path: str) -> bool:
        if path in self._own().files:
            return True
        directory = str(self._s.directory)
        return path.startswith((f"{self._s.sockets}/", f"{directory}/outbox-")) or (
            path.startswith(f"{directory}/kernel-") and path.endswith(".log")
        )


def _running_at(moment: int, executions: Iterable[Any]) -> str | None:
    """The execution that ran at that instant, if it can only have been one."""
    found = [
        one.execution_id
        for one in executions
        if one.started_at is not None
        and one.started_at - _SLACK <= moment
        and (one.finished_at is None or moment <= one.finished_at + _SLACK)
    ]
    return found[0] if len(found) == 1 else None
