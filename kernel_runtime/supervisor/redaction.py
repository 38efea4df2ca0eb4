"""Takes out of a session what should not have been said, and archives its past: `redact`, `archive`.

Only the writer of the journal can do either. First the journal, in one transaction; then, in any order
and again as often as needed, what lies around it: its log and free pages, logs, the outbox, the notebook,
what this process remembers. Killed anywhere, asking again finishes it.

While it works the session does nothing else, though its kernel goes on: it reads every payload, and
writes the journal's file anew. Not promised: what is beyond the session's own files. Whoever asks is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, structs

from kernel_runtime.errors import JournalBusy, KernelRuntimeError, NotFound, SessionBusy, UsageError
from kernel_runtime.journal import segments
from kernel_runtime.supervisor.shell import Token
from kernel_runtime.testing.failpoints import reach
from kernel_runtime.wire import Message

if TYPE_CHECKING:
    from kernel_runtime.journal.redact import Redacted, Wanted
    from kernel_runtime.supervisor.session import Supervisor

log = logging.getLogger("kernel_runtime.supervisor")

_R = TypeVar("_R", bound=Struct)

PATIENCE = 8.0
"""seconds that the log may be held by readers"""
_AGAIN = 0.1


class RedactRequest(Struct, kw_only=True, frozen=True):
    """What `redact` is asked: exactly one of `text`, `execution_id` and `entry`."""

    reason: str = ""
    text: str | None = None
    execution_id: str | None = None
    entry: int | None = None
    force: bool = False


class ArchiveRequest(Struct, kw_only=True, frozen=True):
    """What `archive` is asked."""

    before: int | None = None
    directory: str | None = None


class Redaction:
    """Answers `redact` and `archive`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._s = supervisor
        supervisor.rpc.register({"redact": self._redact, "archive": self._archive})

    # -- redact

    def _redact(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        from kernel_runtime.journal.redact import redact  # loaded by whoever needs it, as all that is rare

        asked = _request(args, RedactRequest)
        wanted = self._wanted(asked)
        # what the kernel has said by now is in the journal, and so is found
        self._s.pump.read(hold=False)
        self._refuse_what_lives(wanted)
        shell = self._s.shell
        done = redact(shell.journal, wanted, principal, shell.state.incarnation)
        reach("redacted")
        if wanted.forms is not None:
            self._forget(wanted.forms.less)
        if done.entry is not None:
            shell.committed()
        left = list(done.left)
        swept = self._sweep(wanted, left)
        self._compact(partial(self._answer, token, wanted, done, swept, left), left)

    def _wanted(self, asked: RedactRequest) -> Wanted:
        from kernel_runtime.journal.forms import SHORTEST, Forms
        from kernel_runtime.journal.redact import Wanted

        name = self._s.identity.name
        given = [one for one in (asked.text, asked.execution_id, asked.entry) if one is not None]
        if len(given) != 1:
            raise UsageError(
                f"session {name}: {len(given)} things to take out", hint="a text, an execution or an entry"
            )
        if not asked.reason.strip():
            raise UsageError(f"session {name}: no reason given", hint="--reason WHY; it stays in the journal")
        if asked.text is None:
            return Wanted(reason=asked.reason, execution_id=asked.execution_id, entry=asked.entry)
        if not asked.text.strip():
            raise UsageError(f"session {name}: no text to take out", hint="printf %s TEXT | krt redact …")
        forms = Forms(asked.text)
        if forms.is_of_the_format:
            raise UsageError(
                f"session {name}: the text is part of a word that the journal is written with",
                hint="take out more of what stands around it, or the execution as a whole: --execution ID",
            )
        if len(asked.text) < SHORTEST and not asked.force:
            raise UsageError(
                f"session {name}: a text of {len(asked.text)} characters stands in many places",
                hint=f"give {SHORTEST} or more, or --force",
            )
        if forms.less_text(asked.reason) != asked.reason:
            raise UsageError(
                f"session {name}: the reason holds the text itself", hint="it would stay in the journal"
            )
        return Wanted(reason=asked.reason, forms=forms)

    def _refuse_what_lives(self, wanted: Wanted) -> None:
        """What is still to run must run as it was asked."""
        state, name = self._s.shell.state, self._s.identity.name
        queued = [pending.execution_id for pending in state.queue]
        running = [state.running.execution.execution_id] if state.running is not None else []
        for execution_id in (*queued, *running):
            if wanted.forms is not None:
                source = self._s.shell.reader.source(execution_id)
                concerned = execution_id in queued and wanted.forms.less_text(source) != source
            elif wanted.entry is not None:
                found = self._s.shell.reader.entries(wanted.entry - 1, limit=1)
                concerned = bool(found) and found[0].execution_id == execution_id
            else:
                concerned = wanted.execution_id == execution_id
            if concerned:
                raise SessionBusy(
                    f"session {name}: execution {execution_id} holds it, and has not ended",
                    hint=f"wait for it (`krt wait {name} {execution_id}`) or interrupt it, then do the same",
                    execution_id=execution_id,
                )

    def _forget(self, less: Callable[[Any], Any]) -> None:
        """What this process remembers, and would show."""
        shell = self._s.shell
        if shell.state.running is not None:
            shell.state = structs.replace(shell.state, running=less(shell.state.running))
        self._s.claims.redacted(less)
        self._s.terminals.redacted(less)
        self._s.world.memory.redacted(less)

    def _sweep(self, wanted: Wanted, left: list[str]) -> dict[str, int]:
        """The session's other files; what cannot be done is added to `left`."""
        from kernel_runtime.supervisor.sweep import less_notebook, sweep

        swept: dict[str, int] = {}
        forms, notebook = wanted.forms, Path(self._s.identity.notebook)
        try:
            strays = segments.remove_strays(self._s.shell.reader.connection, self._s.shell.journal.path)
            swept.update({str(file): 0 for file in strays})
            if forms is not None:
                swept.update(sweep(self._s.directory, forms, self._outbox(), notebook))
            else:
                left.append("logs and the kernel's outbox: they are searched for a text only")
        except (OSError, KernelRuntimeError) as error:
            left.append(f"the session's files were not all looked through: {error}")
        reach("swept")

        def less(file: Path) -> None:
            if forms is not None and less_notebook(file, forms):
                swept[str(file)] = 1

        try:
            if not self._s.notebooks.redacted(less):
                left.append(f"{notebook}: a page has it open and writes it; close it, then do the same again")
        except (OSError, KernelRuntimeError) as error:
            left.append(f"{notebook}: {error}")
        return swept

    def _outbox(self) -> tuple[Path, int] | None:
        link = self._s.pump.link
        if link is None or link.outbox is None:
            return None
        position = self._s.shell.reader.position(self._s.pump.incarnation) or 0
        return link.outbox.directory, min(position, link.outbox.position)

    def _answer(
        self, token: Token, wanted: Wanted, done: Redacted, swept: dict[str, int], left: list[str]
    ) -> None:
        if wanted.forms is not None and done.entry is None and not swept and not left:
            token.refuse(
                NotFound(
                    f"session {self._s.identity.name}: that text stands nowhere in it",
                    hint="letter by letter as it was printed? encoded (base64) or in pieces it is not found",
                )
            )
            return
        token.respond({**structs.asdict(done), "left": left, "swept": swept})

    # -- archive

    def _archive(self, principal: str, args: dict[str, Any], token: Token, request: Message) -> None:
        from kernel_runtime.journal.archive import archive

        asked = _request(args, ArchiveRequest)
        shell = self._s.shell
        directory = None if asked.directory is None else Path(asked.directory)
        if directory is not None and not directory.is_absolute():
            raise UsageError(f"{directory} is not absolute", hint="this process has another directory")
        before = shell.journal.path.stat().st_size
        done = archive(
            shell.journal, principal, shell.state.incarnation, before=asked.before, directory=directory
        )
        reach("archived")
        shell.committed()
        left: list[str] = []

        def answer() -> None:
            after = shell.journal.path.stat().st_size
            sizes = {"journal_bytes": {"before": before, "after": after}}
            token.respond({**structs.asdict(done), **sizes, "left": left})

        self._compact(answer, left)

    # -- the journal's file

    def _compact(self, then: Callable[[], None], left: list[str]) -> None:
        """Write the journal's file anew and empty its log, as soon as others let that happen."""
        journal = self._s.shell.journal
        steps = [("free pages", journal.vacuum), ("log", journal.empty_log)]
        self._step(steps, then, left, PATIENCE)

    def _step(
        self,
        steps: list[tuple[str, Callable[[], None]]],
        then: Callable[[], None],
        left: list[str],
        patience: float,
    ) -> None:
        while steps:
            what, step = steps[0]
            try:
                step()
            except JournalBusy as error:
                if patience > 0:
                    again = partial(self._step, steps, then, left, patience - _AGAIN)
                    self._s.reactor.after(_AGAIN, again)
                    return
                left.append(f"the journal's {what}: {error.message}; do the same again when nobody reads it")
            except KernelRuntimeError as error:
                left.append(f"the journal's {what}: {error.message}; do the same again")
            steps = steps[1:]
        then()


def _request(args: dict[str, Any], kind: type[_R]) -> _R:
    try:
        return msgspec.convert(args, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the request cannot be read: {error}", hint="client and supervisor may be of different versions"
        ) from error
