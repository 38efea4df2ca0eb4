"""Which executions made a value what it is: the backward slice of a name through what the probe observed.

A name's value comes from the execution that bound it last, from those that changed it since, and from
what all of these read: whatever those names were when each began, and so on back (dynamic slicing, Korel
and Laski 1988, at the grain of executions and names).

Invariant: every execution that is listed says by which names it got here, and nothing is left out that
was observed. What was not observed is said: an execution that may have read more (`dynamic`), one that
nobody looked at, a name that changed outside any execution.

Not promised: what went through a file, the network or another process. Incarnations share no heap, so a
slice never leaves its own.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import (
    ExecutionFinished,
    ExecutionObserved,
    ExecutionStarted,
    NamesDrifted,
)

KINDS = ("ExecutionStarted", "ExecutionFinished", "ExecutionObserved", "NamesDrifted")
"""the entries that a History is made of"""

_BINDS = ("bound", "rebound")
_GONE = "deleted"
_SAME = "read"
"""a drift of this kind is none: the content could be read at last"""


class Change(Struct, frozen=True, kw_only=True):
    """A name, and what happened to it."""

    name: str
    how: str
    """as in ExecutionObserved: `bound`, `rebound`, `mutated`, `touched`, `deleted`"""


class Origin(Struct, frozen=True, kw_only=True):
    """One execution of the slice."""

    execution_id: str
    seq: int
    """its ExecutionStarted entry"""
    because: list[Change]
    """names that are in the slice, and what it did to them"""
    reads: list[str]
    dynamic: list[str]
    """why it may have read more than that"""


class Drift(Struct, frozen=True, kw_only=True):
    """A change of a name in the slice that no execution made."""

    seq: int
    name: str
    how: str
    found: str


class Why(Struct, frozen=True, kw_only=True):
    """The slice of one name, as of one entry."""

    name: str
    incarnation: int
    present: bool
    """whether the name was bound at that moment; else this is how its last value came to be"""
    executions: list[Origin]
    """in the order in which they started"""
    drifts: list[Drift]
    unobserved: list[str]
    """executions between the first and the last of the slice, or after it, that nobody looked at"""


class _Ran:
    """An execution as far as its entries have told."""

    __slots__ = ("aborted", "observed", "order", "seq")

    def __init__(self, order: int, seq: int) -> None:
        self.order, self.seq = order, seq
        self.observed: ExecutionObserved | None = None
        self.aborted = False


_Place = tuple[int, int]
"""Where something stands: the order of an execution, and when in it. By `seq` alone it cannot be told: an
execution may be observed after the next one was started."""

_BEFORE, _READS, _CHANGES, _AFTER = range(4)


class _Event(Struct, frozen=True):
    """A change of one name."""

    place: _Place
    seq: int
    how: str
    execution_id: str | None
    found: str = ""


class History:
    """What happened to the names of each incarnation. Fed with entries in order; `why` asks."""

    def __init__(self) -> None:
        self._ran: defaultdict[int, dict[str, _Ran]] = defaultdict(dict)
        self._events: defaultdict[int, defaultdict[str, list[_Event]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._told: defaultdict[int, int] = defaultdict(lambda: -1)
        """order of the execution that was observed last"""

    def take(self, entries: Iterable[Entry]) -> None:
        """Entries of the kinds in KINDS, in order; others are passed over."""
        for entry in entries:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        fact, ran = entry.fact, self._ran[entry.incarnation]
        match fact:
            case ExecutionStarted():
                ran.setdefault(fact.execution_id, _Ran(len(ran), entry.seq))
            case ExecutionFinished(outcome="aborted") if fact.execution_id in ran:
                ran[fact.execution_id].aborted = True
            case ExecutionObserved() if fact.execution_id in ran:
                one = ran[fact.execution_id]
                one.observed = one.observed or fact
                self._told[entry.incarnation] = one.order
                self._changed(entry, fact.names, (one.order, _CHANGES), fact.execution_id)
            case NamesDrifted(found="before"):
                self._changed(entry, fact.names, (len(ran) - 1, _BEFORE), None, fact.found)
            case NamesDrifted():
                self._changed(entry, fact.names, (self._told[entry.incarnation], _AFTER), None, fact.found)

    def _changed(
        self,
        entry: Entry,
        names: dict[str, dict[str, Any]],
        place: _Place,
        execution_id: str | None,
        found: str = "",
    ) -> None:
        events = self._events[entry.incarnation]
        for name, row in names.items():
            if (how := str(row.get("how"))) != _SAME:
                insort(
                    events[name],
                    _Event(place, entry.seq, how, execution_id, found),
                    key=lambda event: event.place,
                )

    def names(self) -> list[str]:
        """Every name that anything happened to, in any incarnation."""
        return sorted({name for events in self._events.values() for name in events})

    def why(self, name: str) -> Why | None:
        """The slice of what the name was last; None: it is in no observation."""
        known = [incarnation for incarnation, events in self._events.items() if name in events]
        if not known:
            return None
        incarnation = max(known)
        events = self._events[incarnation]
        last = events[name][-1]
        slice_ = _Slice(self._ran[incarnation], events)
        # a name that is gone is asked for as it was before it went
        slice_.follow(name, last.place if last.how == _GONE else (last.place[0], _AFTER + 1))
        origins = slice_.origins()
        first = self._ran[incarnation][origins[0].execution_id].order if origins else 0
        unobserved = [
            execution_id
            for execution_id, one in self._ran[incarnation].items()
            if one.observed is None and not one.aborted and one.order >= first
        ]
        return Why(
            name=name,
            incarnation=incarnation,
            present=last.how != _GONE,
            executions=origins,
            drifts=sorted(slice_.drifts.values(), key=lambda drift: (drift.seq, drift.name)),
            unobserved=unobserved,
        )


class _Slice:
    """Back from one value."""

    def __init__(self, ran: dict[str, _Ran], events: dict[str, list[_Event]]) -> None:
        self._ran = ran
        self._events = events
        self._because: defaultdict[str, list[Change]] = defaultdict(list)
        self._done: set[tuple[str, int]] = set()
        self.drifts: dict[tuple[int, str], Drift] = {}

    def follow(self, name: str, before: _Place) -> None:
        """Take in what made the name what it was right before that."""
        pending = [(name, before)]
        while pending:
            name, before = pending.pop()
            for event in self._made(name, before):
                if (name, event.seq) in self._done:
                    continue
                self._done.add((name, event.seq))
                if event.execution_id is None:
                    self.drifts[event.seq, name] = Drift(
                        seq=event.seq, name=name, how=event.how, found=event.found
                    )
                    continue
                self._because[event.execution_id].append(Change(name=name, how=event.how))
                one = self._ran[event.execution_id]
                reads = one.observed.reads if one.observed is not None else []
                pending += [(read, (one.order, _READS)) for read in reads]

    def _made(self, name: str, before: _Place) -> list[_Event]:
        """The last binding before that, and what changed the name between."""
        found: list[_Event] = []
        for event in reversed(self._events.get(name, [])):
            if event.place >= before:
                continue
            if event.how == _GONE:
                break
            found.append(event)
            if event.how in _BINDS:
                break
        return found

    def origins(self) -> list[Origin]:
        found = []
        for execution_id, changes in self._because.items():
            one = self._ran[execution_id]
            assert one.observed is not None
            found.append(
                Origin(
                    execution_id=execution_id,
                    seq=one.seq,
                    because=sorted(changes, key=lambda change: change.name),
                    reads=one.observed.reads,
                    dynamic=one.observed.dynamic,
                )
            )
        return sorted(found, key=lambda origin: origin.seq)
