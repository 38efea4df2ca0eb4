"""The plan of a journal: its executions in the order in which they began, each with what is recorded of it.

One pass over the entries, whose outputs are held folded. Pure but for the reading. What never ran, and
what ran to an end that cannot be repeated, stays in the plan with `skip`: a reader of the result sees
every execution of the record. Silent executions (a front end's own questions) are left out, and counted.

The journal of a replay is read by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kernel_runtime.core.effects import effects_document
from kernel_runtime.core.entries import Entries, walk
from kernel_runtime.core.outputs import DisplayIndex, OutputFolder
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import (
    EffectsObserved,
    EnvironmentRecorded,
    ExecutionFinished,
    ExecutionObserved,
    ExecutionQueued,
    ExecutionStarted,
    GapRecorded,
    InputAnswered,
    InputRequested,
    InputWithdrawn,
    KernelDied,
    KernelStarted,
    NamesDrifted,
    OutputRecorded,
    PayloadRedacted,
    SessionCreated,
)
from kernel_runtime.notebook.ids import notebook_id
from kernel_runtime.replay.plan import Input, Late, NameDigest, Plan, Step, Wait

_NOBODY = ""
"""stands for the execution of output that belongs to none: it may update displays of others"""


def plan_of_journal(
    reader: Entries,
    source: str,
    *,
    kind: str = "journal",
    until: int | None = None,
    order: str = "executed",
    tags: Mapping[str, list[str]] | None = None,
) -> Plan:
    """The plan of what had ended at entry `until` (default: at the end).

    Args:
        reader: of the journal.
        source: what the user named.
        kind: `journal` or `bundle`.
        until: a `seq`; an execution that still ran at that point is left out, and a note says so.
        order: `executed`, or `document`: the last execution of each cell, in the order of the cells, in
            one kernel.
        tags: of cells, by their ids in a notebook, where that tells them.
    """
    return _Reading(reader, until, tags or {}).plan(source, kind, order)


class _Execution:
    """What is known of one execution so far."""

    def __init__(self, queued: ExecutionQueued, entry: Entry, displays: DisplayIndex) -> None:
        self.queued = queued
        self.principal = entry.principal
        self.incarnation = entry.incarnation
        self.queued_seq = entry.seq
        self.folder = OutputFolder(displays=displays)
        self.started: Entry | None = None
        self.finished: ExecutionFinished | None = None
        self.ended: Entry | None = None
        self.inputs: list[Input] = []
        self.gaps: dict[str, dict[str, Any]] = {}
        self.observed: list[ExecutionObserved | EffectsObserved] = []
        self.late_count = LateCounter()
        self.late_seconds = 0.0
        self.waits: list[tuple[_Execution, Late]] = []
        self.redacted: list[str] = []
        self.number = 0

    def answered(self, fact: InputAnswered, entry: Entry, *, redacted: bool) -> None:
        if self.inputs:
            self.inputs[-1] = msgspec.structs.replace(
                self.inputs[-1],
                value=None if redacted else fact.value,
                eof=fact.eof,
                withdrawn=None,
                redacted=redacted,
                by=entry.principal,
            )

    def late(self) -> Late:
        return self.late_count.late(self.late_seconds)

    def withdrawn(self, reason: str) -> None:
        if self.inputs and self.inputs[-1].withdrawn is not None:
            self.inputs[-1] = msgspec.structs.replace(self.inputs[-1], withdrawn=reason)


class LateCounter:
    """Counts late output by what a wait can compare: lines of streams, and other messages."""

    def __init__(self) -> None:
        self._ends = 0
        self._open = False
        self._messages = 0

    def add(self, messages: Iterable[msgspec.Raw]) -> None:
        for raw in messages:
            try:
                message = msgspec.json.decode(raw)
                kind, content = message["type"], message.get("content") or {}
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
                continue  # no message: it shows nothing that could be waited for
            if kind == "stream":
                text = str(content.get("text", ""))
                self._ends += text.count("\n")
                self._open = bool(text) and not text.endswith("\n")
            elif kind in ("display_data", "update_display_data", "execute_result", "error"):
                self._messages += 1

    def late(self, seconds: float = 0.0) -> Late:
        return Late(lines=self._ends + self._open, messages=self._messages, seconds=seconds)


class _Reading:
    def __init__(self, reader: Entries, until: int | None, tags: Mapping[str, list[str]]) -> None:
        self._reader = reader
        self._until = until
        self._tags = tags
        self._displays = DisplayIndex()
        self._known: dict[str, _Execution] = {}
        self._in_order: list[_Execution] = []
        self._silent: set[str] = set()
        self._silent_names: set[str] = set()
        self._names: dict[str, NameDigest] = {}
        self._names_of = 0
        """the incarnation whose names these are"""
        self._created: SessionCreated | None = None
        self._language = ""
        self._environment: dict[str, Any] | None = None
        self._fresh: dict[str, _Execution] = {}
        """of whom late output has come that no step waits for yet"""
        self._died: dict[int, KernelDied] = {}
        self._redacted: set[int] = set()
        self._head: tuple[int, str] = (0, "")
        self._cells: dict[str, int] = {}

    def plan(self, source: str, kind: str, order: str) -> Plan:
        for entry in walk(self._reader, kinds=("PayloadRedacted",)):
            if isinstance(entry.fact, PayloadRedacted):
                self._redacted.update(entry.fact.seqs)
        for entry in walk(self._reader):
            self._take(entry)
        chosen = self._chosen(order)
        for number, execution in enumerate(chosen, 1):
            execution.number = number
        created = self._created
        plan = Plan(
            source=source,
            kind=kind,
            order=order,
            kernel=created.kernel if created is not None else "python3",
            cwd=created.cwd if created is not None else "",
            language=self._language,
            steps=[self._step(execution, alone=order == "document") for execution in chosen],
            environment=self._environment,
            session_id=created.session_id if created is not None else "",
            head=self._head[0],
            head_hash=self._head[1],
            notes=self._notes(),
        )
        if self._names_of and order == "executed":
            unseen = [step for step in plan.steps if self._may_have_named(step)]
            if unseen:
                what = unseen[-1].execution_id
                plan.notes.append(
                    f"nobody has told what execution {what} did to names: they are not compared"
                )
            else:
                plan.names = sorted(self._names.values(), key=lambda name: name.name)
        if order == "executed":
            plan.waits = self._waits(self._due())
        return plan

    def _may_have_named(self, step: Step) -> bool:
        """Whether it may have changed names at the end of the record, and was not looked at (yet)."""
        return step.incarnation >= self._names_of and not step.observed and step.outcome in ("ok", "error")

    # taking in

    def _take(self, entry: Entry) -> None:
        fact = entry.fact
        past = self._until is not None and entry.seq > self._until
        if past:
            # what is told later of an execution that had ended belongs to it all the same
            if entry.execution_id is not None and isinstance(fact, ExecutionObserved | EffectsObserved):
                self._observed(entry, fact)
            return
        self._head = (entry.seq, entry.hash)
        if isinstance(fact, SessionCreated):
            self._created = self._created or fact
        elif isinstance(fact, KernelStarted):
            self._language = fact.language
        elif isinstance(fact, EnvironmentRecorded):
            self._environment = msgspec.to_builtins(fact)
        elif isinstance(fact, KernelDied):
            self._died[entry.incarnation] = fact
        elif isinstance(fact, NamesDrifted):
            self._named(entry.incarnation, fact.names)
        elif isinstance(fact, OutputRecorded):
            self._output(entry, fact)
        elif isinstance(fact, ExecutionObserved | EffectsObserved):
            self._observed(entry, fact)
        elif isinstance(fact, ExecutionQueued):
            self._queued(entry, fact)
        elif entry.execution_id is not None and (known := self._known.get(entry.execution_id)) is not None:
            self._of_execution(known, entry)

    def _queued(self, entry: Entry, fact: ExecutionQueued) -> None:
        if fact.silent:
            self._silent.add(fact.execution_id)
            return
        execution = _Execution(fact, entry, self._displays)
        self._known[fact.execution_id] = execution
        self._cells.setdefault(fact.cell_id, len(self._cells))
        if entry.seq in self._redacted:
            execution.redacted.append("source")

    def _output(self, entry: Entry, fact: OutputRecorded) -> None:
        self._displays.note(entry.execution_id or _NOBODY, fact.messages)
        execution = self._known.get(entry.execution_id or "")
        if execution is None:
            return
        for message in fact.messages:
            execution.folder.add(message)
        if entry.seq in self._redacted and "outputs" not in execution.redacted:
            execution.redacted.append("outputs")
        if fact.late and execution.ended is not None:
            execution.late_count.add(fact.messages)
            execution.late_seconds = max(0.0, (entry.at - execution.ended.at) / 1e9)
            self._fresh[fact.execution_id or ""] = execution

    def _observed(self, entry: Entry, fact: ExecutionObserved | EffectsObserved) -> None:
        names = fact.names if isinstance(fact, ExecutionObserved) else {}
        execution = self._known.get(entry.execution_id or "")
        if execution is None:
            if entry.execution_id in self._silent:
                self._silent_names.update(names)
                self._named(entry.incarnation, names)
            return
        if self._until is not None and execution.ended is None:
            return  # it still ran at that point
        execution.observed.append(fact)
        if isinstance(fact, ExecutionObserved):
            self._named(entry.incarnation, names)

    def _named(self, incarnation: int, changes: Mapping[str, Mapping[str, Any]]) -> None:
        if incarnation != self._names_of:
            self._names, self._names_of = {}, incarnation
        for name, change in changes.items():
            if change.get("how") == "deleted":
                self._names.pop(name, None)
                continue
            self._names[name] = NameDigest(
                name=name, digest=change.get("digest"), type=change.get("type"), why=change.get("why")
            )

    def _of_execution(self, execution: _Execution, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, ExecutionStarted):
            execution.started = entry
            execution.incarnation = entry.incarnation
            execution.waits = self._due()
            self._in_order.append(execution)
        elif isinstance(fact, ExecutionFinished):
            execution.finished, execution.ended = fact, entry
            if execution.started is None:
                self._in_order.append(execution)
            if entry.seq in self._redacted and "outputs" not in execution.redacted:
                execution.redacted.append("outputs")
        elif isinstance(fact, GapRecorded):
            gap = execution.gaps.setdefault(fact.reason, {"reason": fact.reason, "messages": 0, "bytes": 0})
            gap["messages"] += fact.messages
            gap["bytes"] += fact.bytes
        elif isinstance(fact, InputRequested):
            execution.inputs.append(
                Input(prompt=fact.prompt, password=fact.password, on=fact.on, withdrawn="nobody answered")
            )
        elif isinstance(fact, InputAnswered):
            redacted = entry.seq in self._redacted
            execution.answered(fact, entry, redacted=redacted)
            if redacted and "input" not in execution.redacted:
                execution.redacted.append("input")
        elif isinstance(fact, InputWithdrawn):
            execution.withdrawn(fact.reason)

    def _due(self) -> list[tuple[_Execution, Late]]:
        """How much late output has come of those of whom more has come since this was last asked."""
        found = [(execution, execution.late()) for execution in self._fresh.values()]
        self._fresh.clear()
        return found

    # giving out

    def _waits(self, waits: list[tuple[_Execution, Late]]) -> list[Wait]:
        return [Wait(number=execution.number, late=late) for execution, late in waits if execution.number]

    def _chosen(self, order: str) -> list[_Execution]:
        ended = [execution for execution in self._in_order if self._until is None or execution.ended]
        if order == "executed":
            return ended
        last: dict[str, _Execution] = {}
        for execution in ended:
            if execution.started is not None:
                last[execution.queued.cell_id] = execution
        return [last[cell_id] for cell_id in sorted(last, key=self._cells.__getitem__)]

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if self._silent:
            what = f"{len(self._silent)} silent executions are not replayed"
            if self._silent_names:
                what += f", though they changed {', '.join(sorted(self._silent_names)[:5])}"
            notes.append(what)
        if self._until is not None:
            notes += [
                f"execution {execution.queued.execution_id} still ran at entry {self._until}: it is left out"
                for execution in self._in_order
                if execution.ended is None
            ]
        return notes

    def _step(self, execution: _Execution, *, alone: bool) -> Step:
        queued, finished = execution.queued, execution.finished
        observed = [fact for fact in execution.observed if isinstance(fact, ExecutionObserved)]
        seen = observed[-1] if observed else None
        late = execution.late()
        started, ended = execution.started, execution.ended
        place = started or ended
        return Step(
            number=execution.number,
            execution_id=queued.execution_id,
            cell_id=queued.cell_id,
            key=queued.key,
            incarnation=1 if alone else execution.incarnation,
            principal=execution.principal,
            source=queued.source,
            outcome=finished.outcome if finished is not None else None,
            execution_count=finished.execution_count if finished is not None else None,
            outputs=execution.folder.outputs(),
            error=finished.error if finished is not None else None,
            gaps=list(execution.gaps.values()),
            redacted=execution.redacted,
            inputs=execution.inputs,
            effects=effects_document(execution.observed),
            names=seen.names if seen is not None else {},
            reads=seen.reads if seen is not None else [],
            dynamic=seen.dynamic if seen is not None else [],
            observed=seen is not None,
            tags=_tags(queued) or list(self._tags.get(notebook_id(queued.cell_id), [])),
            started_at=started.at if started is not None else None,
            finished_at=ended.at if ended is not None else None,
            seq=place.seq if place is not None else execution.queued_seq,
            allow_stdin=queued.allow_stdin,
            store_history=queued.store_history,
            waits=[] if alone else self._waits(execution.waits),
            late=late if late.lines or late.messages else None,
            uncompared="redacted: its outputs were taken out of the record"
            if "outputs" in execution.redacted
            else None,
            skip=self._skip(execution),
        )

    def _skip(self, execution: _Execution) -> str | None:
        if "source" in execution.redacted:
            return "its source was redacted"
        if execution.finished is None:
            return "it had not ended when the record was read"
        outcome, evidence = execution.finished.outcome, execution.finished.evidence
        if outcome == "aborted":
            return "it never ran: it was aborted before it began"
        if outcome == "interrupted":
            return "it was interrupted: how far it had come is not known"
        if outcome == "unknown":
            return "how it ended is not known"
        if outcome == "died":
            died = self._died.get(execution.incarnation)
            if died is not None and died.by_user_code:
                return None
            if asked := evidence.get("kernel_stopped_for"):
                return f"the kernel was stopped while it ran ({asked})"
            return "the kernel died while it ran"
        return None


def _tags(queued: ExecutionQueued) -> list[str]:
    """The cell's tags, where its client sent the cell's metadata with the request."""
    if not queued.request or '"tags"' not in queued.request:
        return []
    try:
        metadata = msgspec.json.decode(queued.request).get("metadata")
    except (msgspec.DecodeError, AttributeError):
        return []
    found: list[str] = []
    for holder in (metadata, metadata.get("cellMeta") if isinstance(metadata, dict) else None):
        tags = holder.get("tags") if isinstance(holder, dict) else None
        found += [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return list(dict.fromkeys(found))
