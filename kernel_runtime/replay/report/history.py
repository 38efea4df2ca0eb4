"""What a journal tells beside its executions: kernels, redactions, signatures, anchors, interrupts.

Read again from the record, up to the entry at which the plan was made, whose hash must still be there.
Signatures and anchors are told as the journal has them; whether they hold, `krt verify` says.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from kernel_runtime.client import session_files
from kernel_runtime.core.entries import walk
from kernel_runtime.core.listing import some
from kernel_runtime.errors import KernelRuntimeError
from kernel_runtime.journal import JournalReader
from kernel_runtime.model import facts as f
from kernel_runtime.model.entry import Entry
from kernel_runtime.replay.plan import Plan

_MOST = 2000
"""events that are kept"""
_NAMED = 10
_KINDS = (
    f.KernelStarted,
    f.KernelAdopted,
    f.KernelStartFailed,
    f.KernelDied,
    f.KernelStopped,
    f.KernelUnresponsive,
    f.InterruptRequested,
    f.NamesDrifted,
    f.PayloadRedacted,
    f.SegmentSealed,
    f.HeadSigned,
    f.HeadAnchored,
    f.HeadWitnessed,
)


class Event(Struct, frozen=True, kw_only=True):
    """One entry that is no execution's."""

    seq: int
    at: int
    """UTC nanoseconds"""
    principal: str
    kind: str
    text: str


class History(Struct, kw_only=True):
    """The events of a record, in order."""

    events: list[Event] = []
    left_out: int = 0
    why_none: str = ""
    """half a sentence, where nothing could be read"""

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]


def history_of(plan: Plan) -> History:
    """The events of a plan's record; of a notebook there are none."""
    if plan.kind == "notebook":
        return History()
    try:
        with _reader(plan) as reader:
            return _read(reader, plan)
    except KernelRuntimeError as error:
        return History(why_none=error.message)


def _reader(plan: Plan) -> AbstractContextManager[JournalReader]:
    if plan.kind == "bundle":
        from kernel_runtime.evidence.restore import reader_of

        return reader_of(Path(plan.source))
    return JournalReader.open(session_files.load(plan.source).journal)


def _read(reader: JournalReader, plan: Plan) -> History:
    if plan.head and plan.head_hash:
        last = reader.entries(plan.head - 1, limit=1)
        if not last or last[0].hash != plan.head_hash:
            return History(why_none="the record is another one now than the one that was replayed")
    found = History()
    for entry in walk(reader, upto=plan.head or None, kinds=[kind.__name__ for kind in _KINDS]):
        if len(found.events) < _MOST:
            found.events.append(_event(entry))
        else:
            found.left_out += 1
    return found


def _event(entry: Entry) -> Event:
    return Event(
        seq=entry.seq, at=entry.at, principal=entry.principal, kind=entry.kind, text=_text(entry, entry.fact)
    )


def _text(entry: Entry, fact: f.Fact) -> str:  # noqa: PLR0911 - one sentence for each kind
    kernel = f"kernel {entry.incarnation}"
    match fact:
        case f.KernelStarted():
            own = "" if fact.own else "; a kernel of somebody else: no names, no effects"
            return f"{kernel} started ({fact.implementation}, {fact.language}{own})"
        case f.KernelAdopted():
            return f"a new supervisor took over {kernel}"
        case f.KernelStartFailed():
            return f"{kernel} did not start ({_ending(fact.exit_status, fact.signal)})"
        case f.KernelDied():
            by = ", ended by a cell" if fact.by_user_code else ""
            oom = ", out of memory" if fact.evidence.get("oom") else ""
            return f"{kernel} died ({_ending(fact.exit_status, fact.signal)}{oom}{by})"
        case f.KernelStopped():
            return f"{kernel} was stopped: {fact.reason}"
        case f.KernelUnresponsive():
            return f"{kernel} did not answer"
        case f.InterruptRequested():
            which = f"execution {fact.execution_id}" if fact.execution_id else kernel
            return f"{which} was interrupted ({fact.reached})"
        case f.NamesDrifted():
            return f"changed by no execution ({fact.found}): {some(list(fact.names), _NAMED)}"
        case f.PayloadRedacted():
            seqs = some(fact.seqs, _NAMED)
            return f"redacted ({fact.how}): {fact.reason}; entries {seqs}"
        case f.SegmentSealed():
            return f"entries {fact.first} to {fact.last} were sealed into {fact.file} (sha256 {fact.sha256})"
        case f.HeadSigned():
            return f"signed up to entry {fact.seq} with {fact.key}"
        case f.HeadAnchored():
            return f"entry {fact.seq} was written down in {fact.where} {fact.reference}"
        case f.HeadWitnessed():
            return f"entry {fact.seq} of session {fact.name} was written down here"
    return entry.kind


def _ending(status: int | None, signal: int | None) -> str:
    if signal is not None:
        return f"signal {signal}"
    return "how is not known" if status is None else f"exit status {status}"
