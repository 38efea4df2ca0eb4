"""What our own clients ask on the control channel: `krt_request` in, `krt_reply` out.

Content of a request: `{"op", "principal", …}`; of a reply: `{"ok": true, "result"}` or
`{"ok": false, "error"}` with the document of `errors.to_json`. Any number may be in flight.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kernel_runtime.core import reconcile
from kernel_runtime.core.lifecycle import messages as m
from kernel_runtime.core.source import check_source
from kernel_runtime.errors import HeapLost, InvalidSource, KernelRuntimeError, UsageError
from kernel_runtime.model.facts import ExecutionQueued
from kernel_runtime.model.truth import Report
from kernel_runtime.supervisor.reactor import Timer
from kernel_runtime.supervisor.recorder import KRT_MSG, sayable
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.supervisor.survey import Survey, when_observed
from kernel_runtime.version import __version__
from kernel_runtime.wire import BadMessage, Message

if TYPE_CHECKING:
    from kernel_runtime.supervisor.session import Supervisor

MAX_WAIT = 60.0

Op = Callable[[str, dict[str, Any], Token, Message], None]
"""`(principal, arguments, token, request)`; answers through the token, now or later"""


class Fields(msgspec.Struct, frozen=True):
    """Every field of every op: what a request may say in it."""

    op: str
    principal: str = "system"
    source: str = ""
    key: str | None = None
    cell_id: str | None = None
    accept: bool = False
    expect_incarnation: int | None = None
    allow_stdin: bool = True
    stop_on_error: bool = True
    store_history: bool = True
    silent: bool = False
    after: int = 0
    timeout: float = MAX_WAIT
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    how: str = "status"
    text: str | None = None
    eof: bool = False
    execution_id: str | None = None
    reason: str = "new"
    argv: list[str] = []
    cwd: str | None = None
    env: dict[str, str] = {}
    interactive: bool = False
    rows: int = 24
    cols: int = 80
    process_id: str | None = None
    signal: int = 15
    bytes: int = 1 << 16
    probe: str = ""
    allow: list[str] = []
    claim_id: str | None = None
    check: bool = True
    document: dict[str, Any] = {}
    complete: bool = False
    expect_version: int | None = None
    holder: str = ""
    seconds: float = 0.0
    flush: bool = False
    owner: dict[str, Any] = {}


def read_fields(request: Message, session: str) -> dict[str, Any]:
    """A request's content, checked: types as in `Fields`, and no text that UTF-8 cannot say.

    Raises:
        UsageError: it is none.
        InvalidSource: its source cannot be a cell.
    """
    try:
        content = request.content_dict()
        source = content.get("source")
        if isinstance(source, str):
            check_source(source, session)
        fields: dict[str, Any] = sayable(content)
        msgspec.convert(fields, Fields)
    except (BadMessage, msgspec.ValidationError, RecursionError) as error:
        raise UsageError(
            f"the request cannot be read: {error}",
            hint="client and supervisor may be of different versions: `krt doctor`",
        ) from error
    return fields


class Rpc:
    """One handler per op."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        self._waiters: list[tuple[int, Token, Timer]] = []
        supervisor.shell.on_commit.append(self._wake)
        self._ops: dict[str, Op] = {
            "ping": self._ping,
            "attach": self._attach,
            "submit": self._submit,
            "changes": self._changes,
            "status": self._status,
            "state": self._state,
            "answer": self._answer,
            "interrupt": self._interrupt,
            "start": self._start,
            "restart": self._restart,
            "stop": self._stop,
            "accept": self._accept,
        }

    def register(self, ops: Mapping[str, Op]) -> None:
        """Have these requests answered too."""
        self._ops.update(ops)

    def handle(self, request: Message) -> None:
        """Answer a krt_request, now or later."""

        def respond(result: Mapping[str, Any]) -> None:
            self._s.door.reply("control", request, "krt_reply", {"ok": True, "result": result})

        def refuse(error: KernelRuntimeError) -> None:
            if isinstance(error, HeapLost):
                report = self._s.reporter.brief(self._s.shell.state)
                error.fields["report"] = reconcile.heap_loss(report)
            self._s.door.reply("control", request, "krt_reply", {"ok": False, "error": _sayable_error(error)})

        token = Token(respond, refuse)
        try:
            content = read_fields(request, self._s.identity.name)
            op = self._ops.get(str(content.get("op")))
            if op is None:
                raise UsageError(
                    f"the supervisor knows no request {content.get('op')!r}",
                    hint="client and supervisor may be of different versions: `krt doctor`",
                )
            op(str(content.get("principal") or "system"), content, token, request)
        except KernelRuntimeError as error:
            refuse(error)

    def _ping(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        token.respond({"pid": os.getpid(), "session_id": self._s.identity.session_id, "version": __version__})

    def _attach(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        shell = self._s.shell
        if args.get("accept"):
            shell.apply(m.LossAccepted(token=None, principal=principal))
        lost = shell.state.has_lost(principal)
        self._s.keeper.look()
        shell.apply(m.Attached(principal=principal))
        when_observed(self._s, lambda: self._attached(principal, token, lost=lost))

    def _attached(self, principal: str, token: Token, *, lost: bool) -> None:
        shell = self._s.shell
        state = shell.state
        report = self._s.reporter.brief(state)
        record = self._s.keeper.record
        reply = {
            "session": self._s.identity.name,
            "session_id": self._s.identity.session_id,
            "incarnation": state.incarnation,
            "state": state.name,
            "why": report.why,
            "head": shell.journal.head,
            "supervisor_pid": os.getpid(),
            "kernel_pid": record.process.pid if record is not None else None,
            "heap_lost": lost,
        }

        def respond(claims: list[dict[str, Any]]) -> None:
            token.respond({**reply, "report": {**msgspec.to_builtins(report), "claims": claims}})

        self._s.claims.for_attach(respond, principal)

    def _submit(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        source = args.get("source")
        if not isinstance(source, str):
            raise InvalidSource("a submit without source", hint="`source` is the cell's text")
        shell = self._s.shell
        key = args.get("key")
        recorded = shell.reader.by_key(str(key)) if key is not None else None
        execution_id = str(uuid.uuid4())
        queued = ExecutionQueued(
            execution_id=execution_id,
            source=source,
            cell_id=str(args.get("cell_id") or execution_id[:8]),
            msg_id=KRT_MSG + execution_id,
            key=str(key) if key is not None else None,
            client_session=request.header.session,
            silent=bool(args.get("silent", False)),
            store_history=bool(args.get("store_history", True)),
            allow_stdin=bool(args.get("allow_stdin", True)),
            stop_on_error=bool(args.get("stop_on_error", True)),
        )
        cursor = shell.journal.head

        def respond(result: Mapping[str, Any]) -> None:
            token.respond({"cursor": cursor, **result})

        event = m.Submitted(
            token=Token(respond, token.refuse),
            queued=queued,
            principal=principal,
            client=request.header.session,
            accept=bool(args.get("accept")),
            expect_incarnation=args.get("expect_incarnation"),
            recorded=recorded,
            recorded_digest_differs=recorded is not None and recorded.source_digest != self._s.digest(source),
        )
        if recorded is None:
            self._s.keep_request(execution_id, queued)
        try:
            shell.apply(event)
        finally:
            self._s.prune_request(execution_id)

    def _changes(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        after = int(args.get("after", 0))
        head = self._s.shell.journal.head
        if head > after:
            token.respond({"head": head})
            return
        wait = min(float(args.get("timeout", MAX_WAIT)), MAX_WAIT)
        entry: list[Any] = [after, token]
        timer = self._s.reactor.after(wait, lambda: self._expire(entry))
        entry.append(timer)
        self._waiters.append(entry)  # type: ignore[arg-type]

    def _expire(self, entry: list[Any]) -> None:
        self._waiters.remove(entry)  # type: ignore[arg-type]
        entry[1].respond({"head": self._s.shell.journal.head})

    def _wake(self) -> None:
        head = self._s.shell.journal.head
        waiters, self._waiters = self._waiters, []
        for entry in waiters:
            after, token, timer = entry
            if head > after:
                timer.cancel()
                token.respond({"head": head})
            else:
                self._waiters.append(entry)

    def _status(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        limit = args.get("limit")

        def done(report: Report, document: dict[str, Any]) -> None:
            # whoever reads the table has been told; where that cannot be journaled, the next exec tells again
            told = m.LossTold(
                principal=principal,
                lost=report.counts.get("lost", 0),
                how=str(args.get("how", "status")),
            )
            self._s.shell.request(told, Token(lambda _: None, lambda _: None))
            token.respond(document)

        Survey(self._s, int(limit) if limit is not None else None, done, token.refuse).begin()

    def _state(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._s.keeper.look()
        token.respond({**self._s.row(), "heap_lost": self._s.shell.state.has_lost(principal)})

    def _answer(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        text = args.get("text")
        eof = bool(args.get("eof"))
        if text is None and not eof:
            raise UsageError("an answer without text", hint="`text`, or `eof`")
        event = m.Answered(
            token=token,
            principal=principal,
            text=None if eof else str(text),
            eof=eof,
            execution_id=args.get("execution_id"),
        )
        self._s.shell.apply(event)

    def _interrupt(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._s.pump.read()
        event = m.Interrupted(token=token, principal=principal, execution_id=args.get("execution_id"))
        self._s.shell.apply(event)

    def _start(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        reason = str(args.get("reason", "new"))
        self._s.shell.apply(m.StartRequested(token=token, principal=principal, reason=reason))

    def _restart(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._s.shell.apply(m.RestartRequested(token=token, principal=principal))

    def _stop(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._s.ending.stop(principal, token)

    def _accept(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        self._s.shell.apply(m.LossAccepted(token=token, principal=principal))


def _sayable_error(error: KernelRuntimeError) -> dict[str, Any]:
    return sayable(msgspec.to_builtins(error.to_json()))  # type: ignore[no-any-return]
