"""Processes and terminals that belong to the session: `krt spawn`, `krt term`.

Each has a holder (`holder`), which survives this supervisor; what it wrote (ID.json, ID.status) and the
journal tell the next one all there is to know. A process is in the journal before whoever asked for it is
answered, and its end is journaled once: with the status that its holder saw, or with what is known instead.
Nothing here polls: a line to a holder that closes, or a pidfd, tells of an end.

Not promised: a status when the holder itself was killed.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_runtime import places, process
from kernel_runtime.core.entries import walk
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.core.masking import mask_argv
from kernel_runtime.errors import (
    EnvironmentFault,
    KernelRuntimeError,
    NoSuchProcess,
    SessionBusy,
    SpawnFailed,
)
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.facts import ProcessEnded, ProcessSpawned
from kernel_runtime.supervisor import bounds as bounds_module
from kernel_runtime.supervisor import holder_line, launch, terminal_requests
from kernel_runtime.supervisor.holder_line import HolderLine
from kernel_runtime.supervisor.managed import HolderRecord, Managed, Start, program
from kernel_runtime.supervisor.reactor import Timer
from kernel_runtime.supervisor.shell import RETRY, Token
from kernel_runtime.supervisor.world import procfs
from kernel_runtime.testing.failpoints import reach

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

log = logging.getLogger("kernel_runtime.supervisor")

STATUS_WITHIN = 2.0
"""seconds that a holder has to write down how its command ended"""
_LOOK = 0.05
MOST_ENDED = 50
"""rows of processes that have ended, the latest"""
_NUMBERED = re.compile(r"([pt])([1-9][0-9]*)")
_HOLDER_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "KRT_HOME", "KRT_RUNTIME_DIR")


class Terminals:
    """The session's own processes: started, asked, found again, ended."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self.directory = supervisor.directory / "processes"
        self.sockets = supervisor.sockets / "processes"
        self._bounds = bounds_module.load(supervisor.directory, places.home())
        self._known: dict[str, Managed] = {}
        self._numbers = {"p": 0, "t": 0}
        self._starting: dict[str, int] = {}
        """holders that have not yet said whether their command runs: `process_id → pid`"""
        self._adopted = False
        self._waiters: list[tuple[str, Token, Timer]] = []
        supervisor.rpc.register(terminal_requests.operations(self, supervisor))
        # in the first round of the loop: by then the journal says that this supervisor has started
        supervisor.reactor.after(0, self.adopt)

    def redacted(self, less: Callable[[Any], Any]) -> None:
        """A text was taken out of the journal: `less` takes it out of what is known here."""
        for one in self._known.values():
            one.fact, one.ended = less(one.fact), less(one.ended)

    # -- what there is

    def rows(self) -> list[dict[str, Any]]:
        """Living ones and the latest that ended, oldest first; as resources of a status report."""
        self.adopt()
        ended = [one for one in self._known.values() if one.ended is not None][-MOST_ENDED:]
        return [self.row(one) for one in self._known.values() if one.ended is None or one in ended]

    def holders(self) -> list[int]:
        """pids of the living holders."""
        return [*(who.pid for who in self._living_holders()), *self._starting.values()]

    def machinery(self) -> list[int]:
        """pids that are nobody's resource: the holders, and what one has forked and not yet told of."""
        return [
            *self.holders(),
            *(child for pid in self._starting.values() for child in procfs.children(pid)),
        ]

    def find(self, process_id: str) -> Managed:
        """The process of that name.

        Raises:
            NoSuchProcess: none such in this session.
        """
        self.adopt()
        if process_id not in self._known:
            name = self._s.identity.name
            living = [key for key, one in self._known.items() if one.ended is None]
            raise NoSuchProcess(
                f"session {name}: no process {process_id}",
                hint=f"there are: {', '.join(living)}" if living else f"`krt spawn {name} -- CMD` starts one",
                session=name,
                process_id=process_id,
            )
        return self._known[process_id]

    def row(self, one: Managed) -> dict[str, Any]:
        fact, ended = one.fact, one.ended
        row: dict[str, Any] = {
            "kind": "process",
            "truth": "true" if ended is None else "false",
            "process_id": fact.process_id,
            "pid": fact.pid,
            "command": fact.argv,
            "cwd": fact.cwd,
            "interactive": fact.interactive,
            "started_by": None,
            "principal": one.principal,
            "started_at": iso_time(one.started_at),
            "log": str(self.directory / f"{fact.process_id}.log"),
            "ended": ended is not None,
        }
        if ended is not None:
            row |= {
                "ended_at": iso_time(one.ended_at) if one.ended_at is not None else None,
                "exit_status": ended.exit_status,
                "signal": ended.signal,
                "evidence": ended.evidence,
            }
        elif not process.is_alive(one.command):
            row |= {"truth": "unknown", "evidence": {"found": "it is gone, and its holder has not said how"}}
        return row

    # -- finding them again

    def adopt(self) -> None:
        """Learn of all that earlier supervisors started: once, before anything else."""
        if self._adopted:
            return
        self._adopted = True
        for entry in walk(self._s.shell.reader, kinds=("ProcessSpawned", "ProcessEnded")):
            if isinstance(entry.fact, ProcessSpawned):
                self._learn(Managed(entry.fact, entry.principal, entry.at))
            elif isinstance(entry.fact, ProcessEnded) and entry.fact.process_id in self._known:
                known = self._known[entry.fact.process_id]
                known.ended, known.ended_at = entry.fact, entry.at
        for record in self._records():
            known_one = self._known.get(record.process_id)
            if known_one is None or (known_one.ended is not None and known_one.command != record.command):
                # the supervisor that had it started died before it could write so
                self._spawned(record)
        for one in list(self._known.values()):
            if one.ended is None:
                self._meet(one)

    def _records(self) -> list[HolderRecord]:
        found = []
        for path in sorted(self.directory.glob("*.json")) if self.directory.is_dir() else ():
            record = self._record(path.stem)
            if record is not None:
                found.append(record)
        return found

    def _record(self, process_id: str) -> HolderRecord | None:
        try:
            return msgspec.json.decode(
                (self.directory / f"{process_id}.json").read_bytes(), type=HolderRecord
            )
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("%s.json cannot be read: %s", process_id, error)
            return None

    def _learn(self, one: Managed) -> None:
        process_id = one.fact.process_id
        # a name that is used again stands where the new process belongs
        self._known.pop(process_id, None)
        self._known[process_id] = one
        numbered = _NUMBERED.fullmatch(process_id)
        if numbered is not None:
            prefix = numbered[1]
            self._numbers[prefix] = max(self._numbers[prefix], int(numbered[2]))

    def _meet(self, one: Managed) -> None:
        """Have a line to the holder of a process that has not ended as far as the journal knows."""
        record = self._record(one.fact.process_id)
        if record is not None and record.command == one.command:
            one.holder = record.holder
        if self._status(one) is None and one.holder is not None and process.is_alive(one.holder):
            try:
                sock = holder_line.connect(self.sockets, one.fact.process_id)
            except OSError as error:
                log.warning("the holder of %s cannot be reached: %s", one.fact.process_id, error)
            else:
                line = HolderLine(self._s.reactor, sock)
                self._listen(one, line)
                # it may have ended before we were there to be told
                line.ask("state", lambda reply: self._heard(one, (reply or {}).get("ended")))
                return
        self._left_alone(one)

    def _listen(self, one: Managed, line: HolderLine) -> None:
        one.line = line
        line.on_event = lambda event: self._heard(one, event if event.get("event") == "ended" else None)
        line.on_broken = lambda: self._left_alone(one)

    # -- the end of one

    def _heard(self, one: Managed, status: Mapping[str, Any] | None) -> None:
        if status is not None:
            self._end(one, status)

    def _left_alone(self, one: Managed) -> None:
        """Nobody tells of it any more: its status file, or its pidfd, will."""
        one.line = None
        if one.ended is not None:
            return
        status = self._status(one)
        if status is not None:
            self._end(one, status)
            return
        try:
            fd = os.pidfd_open(one.fact.pid)
        except (ProcessLookupError, OSError):
            fd = None
        if fd is not None and not process.is_alive(one.command):
            os.close(fd)
            fd = None
        if fd is None:
            self._gone(one, STATUS_WITHIN)
            return
        watched = fd

        def gone() -> None:
            self._s.reactor.forget(watched)
            os.close(watched)
            self._gone(one, STATUS_WITHIN)

        self._s.reactor.watch(watched, gone)

    def _gone(self, one: Managed, patience: float) -> None:
        """It is no more; its holder, if that lives, is about to write how."""
        if one.ended is not None:
            return
        status = self._status(one)
        if status is not None:
            self._end(one, status)
        elif patience > 0 and one.holder is not None and process.is_alive(one.holder):
            self._s.reactor.after(_LOOK, lambda: self._gone(one, patience - _LOOK))
        else:
            self._end(one, None)

    def _status(self, one: Managed) -> dict[str, Any] | None:
        """How the holder says that it ended; None while it has not."""
        try:
            raw = (self.directory / f"{one.fact.process_id}.status").read_bytes()
            status = msgspec.json.decode(raw, type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return None
        return status if status.get("pid") == one.fact.pid else None

    def _end(self, one: Managed, status: Mapping[str, Any] | None) -> None:
        if one.ended is not None:
            return
        evidence: dict[str, Any] = dict(one.signalled)
        if status is None:
            rebooted = one.fact.boot_id != process.boot_id()
            left = "its holder was gone, and with it how it ended"
            evidence["found"] = "the machine was started anew" if rebooted else left
        else:
            evidence |= {"ended_at": iso_time(int(status["ended_at"])), "output": status.get("output")}
        fact = ProcessEnded(
            process_id=one.fact.process_id,
            exit_status=(status or {}).get("exit_status"),
            signal=(status or {}).get("signal"),
            evidence=evidence,
        )
        try:
            entry = self._append(fact, "system", sync=False)
        except EnvironmentFault as error:
            log.warning("the end of %s waits for the journal: %s", one.fact.process_id, error.message)
            self._s.reactor.after(RETRY, lambda: self._end(one, status))
            return
        one.ended = fact
        one.ended_at = int(status["ended_at"]) if status is not None else entry
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            process_id, token, timer = waiter
            if process_id == fact.process_id:
                timer.cancel()
                token.respond(self.row(one))
            else:
                self._waiters.append(waiter)

    def _append(self, fact: ProcessSpawned | ProcessEnded, principal: str, *, sync: bool) -> int:
        shell = self._s.shell
        entries = shell.journal.append([Draft(fact, principal, shell.state.incarnation)], sync=sync)
        shell.committed()
        return entries[0].at

    # -- starting one

    def start(
        self,
        *,
        principal: str,
        argv: list[str],
        cwd: str,
        environment: Mapping[str, str],
        interactive: bool,
        rows: int,
        cols: int,
        process_id: str | None,
        token: Token,
    ) -> None:
        """Start a process; the token is answered when it runs and the journal says so.

        Raises:
            SpawnFailed: there is no such program or directory; nothing was started.
        """
        self.adopt()
        name = self._s.identity.name
        living = self._known.get(process_id or "")
        if process_id in self._starting or (living is not None and living.ended is None):
            raise SpawnFailed(
                f"session {name}: process {process_id} lives already",
                hint=f"`krt term {name} {process_id}` shows it; choose another --name",
                session=name,
                process_id=process_id,
            )
        env: dict[str, str] = {k: v for k, v in os.environ.items() if k not in launch.NOT_THE_SESSIONS}
        env |= {"TERM": "xterm-256color", **environment}
        found = program(argv[0], cwd, env.get("PATH"), name)
        process_id = process_id or self._next(interactive=interactive)
        env |= {launch.MARK: self._s.identity.session_id, "KRT_PROCESS": process_id}
        config = {
            "process_id": process_id,
            "directory": str(self.directory),
            "sockets": str(self.sockets),
            "argv": [found, *argv[1:]],
            "shown": mask_argv(argv),
            "cwd": cwd,
            "env": env,
            "interactive": interactive,
            "principal": principal,
            "rows": rows,
            "cols": cols,
            "bound": self._bounds.process_log,
            "floor": self._bounds.free_disk,
            "boot_id": process.boot_id(),
        }
        around = {k: v for k in _HOLDER_ENVIRONMENT if (v := env.get(k)) is not None}
        around |= {launch.MARK: self._s.identity.session_id, "KRT_HOLDER": process_id}
        try:
            for path in (self.directory, self.sockets):
                path.mkdir(mode=0o700, exist_ok=True)
            sock, pid = holder_line.start(config, around)
        except OSError as error:
            raise SpawnFailed(f"session {name}: no process can be started: {error}", session=name) from error
        chosen = process_id
        self._starting[chosen] = pid
        Start(self._s.reactor, sock, pid, lambda answer, line: self.started(chosen, answer, line, token))

    def _next(self, *, interactive: bool) -> str:
        prefix = "t" if interactive else "p"
        self._numbers[prefix] += 1
        return f"{prefix}{self._numbers[prefix]}"

    def started(
        self, process_id: str, answer: Mapping[str, Any] | None, line: HolderLine, token: Token
    ) -> None:
        """The holder said whether the command runs."""
        self._starting.pop(process_id, None)
        name = self._s.identity.name
        if answer is None or not answer.get("ok"):
            line.close()
            if self._s.ending.stopping:
                token.refuse(SessionBusy(f"session {name} is being stopped", session=name))
                return
            why = (answer or {}).get("error") or "its holder ended without a word"
            token.refuse(
                SpawnFailed(
                    f"session {name}: {process_id} could not be started: {why}",
                    hint=f"see {self._s.directory / 'supervisor.log'}",
                    session=name,
                    errno=(answer or {}).get("errno"),
                )
            )
            return
        record = msgspec.convert(answer, HolderRecord)
        try:
            reach("before-spawned")
            one = self._spawned(record)
            reach("after-spawned")
        except (KernelRuntimeError, OSError) as error:
            # what is not in the journal must not run: nobody would know of it
            process.signal_process(record.holder, signal.SIGTERM)
            line.close()
            fault = SpawnFailed(f"session {name}: {process_id} could not be recorded: {error}", session=name)
            token.refuse(error if isinstance(error, KernelRuntimeError) else fault)
            return
        one.holder = record.holder
        self._listen(one, line)
        if self._s.ending.stopping:
            line.ask("end", lambda _: None)
        token.respond({"process_id": process_id, "pid": record.pid, "socket": self._socket(process_id)})

    def _spawned(self, record: HolderRecord) -> Managed:
        fact = ProcessSpawned(
            process_id=record.process_id,
            argv=record.argv,
            cwd=record.cwd,
            pid=record.pid,
            start_time=record.start_time,
            boot_id=record.boot_id,
            interactive=record.interactive,
        )
        self._append(fact, record.principal, sync=True)
        one = Managed(fact, record.principal, record.started_at)
        self._learn(one)
        return one

    def _socket(self, process_id: str) -> str:
        return str(self.sockets / f"{process_id}.sock")

    # -- asking one

    def wait(self, one: Managed, token: Token, within: float) -> None:
        """Answer with its row when it has ended, or when the time is up."""
        if one.ended is not None or within <= 0:
            token.respond(self.row(one))
            return
        waiter: list[Any] = [one.fact.process_id, token]

        def expire() -> None:
            self._waiters = [w for w in self._waiters if w[1] is not token]
            token.respond(self.row(one))

        waiter.append(self._s.reactor.after(within, expire))
        self._waiters.append(tuple(waiter))

    # -- the session's end

    def end_all(self) -> None:
        """Have every process end; its holder waits for it and writes down how."""
        self.adopt()
        for one in self._known.values():
            if one.ended is None and one.line is not None:
                one.line.ask("end", lambda _: None)
            elif one.ended is None and one.holder is not None:
                process.signal_process(one.holder, signal.SIGTERM)

    def ending(self) -> bool:
        """Whether one of them has still to say how it ended."""
        return any(one.ended is None for one in self._known.values()) or bool(self.holders())

    def close_books(self) -> None:
        """Write down what is known of those whose end nobody told of."""
        for one in self._known.values():
            if one.ended is None and not process.is_alive(one.command):
                self._end(one, self._status(one))

    def described(self, left: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What a stop ended, with the names and statuses of those that are the session's own."""
        by_pid = {one.fact.pid: one for one in self._known.values() if one.ended is not None}
        return [
            {
                **item,
                "process_id": by_pid[item["pid"]].fact.process_id,
                "exit_status": by_pid[item["pid"]].ended.exit_status,  # type: ignore[union-attr]
                "signal": by_pid[item["pid"]].ended.signal,  # type: ignore[union-attr]
            }
            if item["pid"] in by_pid
            else item
            for item in left
        ]

    def _living_holders(self) -> list[process.ProcessId]:
        holders = [one.holder for one in self._known.values() if one.holder is not None]
        return [who for who in holders if process.is_alive(who)]
