"""What clients ask of managed processes: `spawn`, `processes`, `process_*`, `screen`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_runtime.errors import EnvironmentFault, SessionBusy, SpawnFailed, UsageError
from kernel_runtime.supervisor.rpc import MAX_WAIT, Op
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.wire import Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.managed import Managed
    from kernel_runtime.supervisor.session import Supervisor
    from kernel_runtime.supervisor.terminals import Terminals

TAIL_MAX = 1 << 20
"""bytes of a log in one answer"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_NUMBERED = re.compile(r"[pt][0-9]+")
_GAP = re.compile(rb"\[krt: (\d+) bytes, (\d+) lines are not kept: bound\]\n")
_SIZE_MAX = 999


def operations(terminals: Terminals, supervisor: Supervisor) -> Mapping[str, Op]:
    """The handlers, by op."""
    requests = _Requests(terminals, supervisor)
    return {
        "spawn": requests.spawn,
        "processes": requests.processes,
        "process_input": requests.input,
        "process_signal": requests.signal,
        "process_tail": requests.tail,
        "process_wait": requests.wait,
        "screen": requests.screen,
    }


class _Requests:
    def __init__(self, terminals: Terminals, supervisor: Supervisor) -> None:
        self._t = terminals
        self._s = supervisor

    def _one(self, args: dict[str, Any]) -> Managed:
        return self._t.find(str(args.get("process_id") or ""))

    def spawn(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        name = self._s.identity.name
        if self._s.ending.stopping:
            raise SessionBusy(f"session {name} is being stopped", hint="ask again in a moment", session=name)
        interactive = bool(args.get("interactive"))
        argv = [str(part) for part in args.get("argv") or []]
        if not argv and interactive:
            argv = [os.environ.get("SHELL") or "/bin/sh"]
        if not argv or not argv[0] or any("\0" in part for part in argv):
            raise UsageError(
                f"session {name}: no command to spawn", hint=f"krt spawn {name} -- CMD…", session=name
            )
        process_id = args.get("process_id")
        if process_id is not None and (not _NAME.fullmatch(process_id) or _NUMBERED.fullmatch(process_id)):
            raise UsageError(
                f"session {name}: {process_id!r} cannot be a process's name",
                hint="letters, digits, '.', '_' or '-', 32 at most, and not p1 or t1: those are given out",
                session=name,
            )
        rows, cols = int(args.get("rows", 24)), int(args.get("cols", 80))
        if not (0 < rows <= _SIZE_MAX and 0 < cols <= _SIZE_MAX):
            raise UsageError(f"session {name}: no terminal has {rows} rows and {cols} columns", session=name)
        self._t.start(
            principal=principal,
            argv=argv,
            cwd=str(Path(self._s.identity.cwd, args.get("cwd") or "").absolute()),
            environment=args.get("env") or {},
            interactive=interactive,
            rows=rows,
            cols=cols,
            process_id=process_id,
            token=token,
        )

    def processes(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        token.respond({"processes": self._t.rows()})

    def input(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        one = self._one(args)
        if args.get("eof"):
            self._ask(one, token, "eof", {})
        elif args.get("text") is None:
            raise UsageError("an input without text", hint="`text`, or `eof`")
        else:
            self._ask(one, token, "input", {"text": args["text"]})

    def signal(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        one = self._one(args)
        number = int(args.get("signal") or signal.SIGTERM)
        if number not in signal.valid_signals():
            raise UsageError(f"{number} is no signal", hint="15 is SIGTERM, 2 is SIGINT, 9 is SIGKILL")
        one.signalled = {"signalled": number, "by": principal}
        keys = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
        # these three are keys of a terminal, and go to whom its keys go
        self._ask(one, token, "signal", {"signal": number, "foreground": number in keys})

    def wait(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._t.wait(self._one(args), token, min(float(args.get("timeout", MAX_WAIT)), MAX_WAIT))

    def tail(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        one = self._one(args)
        wanted = max(1, min(int(args.get("bytes", 1 << 16)), TAIL_MAX))
        path = self._t.directory / f"{one.fact.process_id}.log"
        token.respond({"process_id": one.fact.process_id, **read_tail(path, wanted)})

    def screen(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        one = self._one(args)
        process_id = one.fact.process_id

        def shown(reply: dict[str, Any] | None) -> None:
            if reply is not None and "screen" in reply:
                token.respond({"process_id": process_id, **reply["screen"]})
            else:
                self._kept_screen(one, token)

        if one.line is not None:
            one.line.ask("screen", shown)
        else:
            shown(None)

    def _kept_screen(self, one: Managed, token: Token) -> None:
        process_id = one.fact.process_id
        try:
            raw = (self._t.directory / f"{process_id}.screen").read_bytes()
            screen = msgspec.json.decode(raw, type=dict[str, Any])
            if screen.pop("pid", one.fact.pid) != one.fact.pid:
                raise FileNotFoundError("it is of an earlier process of that name")
            token.respond({"process_id": process_id, **screen})
        except (OSError, msgspec.MsgspecError):
            name = self._s.identity.name
            token.refuse(
                EnvironmentFault(
                    f"session {name}: nobody has kept the screen of {process_id}",
                    hint=f"`krt term {name} {process_id} --tail 50` prints what it said last",
                    session=name,
                    process_id=process_id,
                )
            )

    def _ask(self, one: Managed, token: Token, op: str, arguments: dict[str, Any]) -> None:
        name, process_id = self._s.identity.name, one.fact.process_id

        def answered(reply: dict[str, Any] | None) -> None:
            if reply is not None and reply.get("ok"):
                token.respond({"process_id": process_id})
                return
            why = "its holder cannot be reached" if reply is None else str(reply.get("error"))
            token.refuse(
                SpawnFailed(
                    f"session {name}: {process_id}: {'it has ended' if one.ended is not None else why}",
                    hint=f"`krt ps {name}` shows what lives",
                    session=name,
                    process_id=process_id,
                )
            )

        if one.ended is not None or one.line is None:
            answered(None)
        else:
            one.line.ask(op, answered, **arguments)


def read_tail(path: Path, wanted: int) -> dict[str, Any]:
    """The end of a log: `text`, whether it is all, and what the log has dropped before."""
    try:
        with path.open("rb") as file:
            first = file.read(200)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - wanted))
            data = file.read(wanted)
    except FileNotFoundError:
        first, size, data = b"", 0, b""
    gap = _GAP.match(first)
    return {
        "text": data.decode("utf-8", "replace"),
        "bytes": len(data),
        "complete": gap is None and len(data) == size,
        "dropped_bytes": int(gap[1]) if gap else 0,
        "dropped_lines": int(gap[2]) if gap else 0,
        "log": str(path),
    }
