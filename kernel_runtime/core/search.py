"""Finding entries of a journal by what they say: who, how it ended, names, effects, time, text.

Conditions about executions are met by an execution as a whole: its principal stands in one entry, its
outcome in another, a text in a third. So a search goes over the entries twice: `see` all of them, then ask
of each whether it is `wanted`. An entry of no execution has to meet every condition by itself.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime.core.effects import verdict
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Entry
from kernel_runtime.model.facts import (
    EffectsObserved,
    ExecutionFinished,
    ExecutionObserved,
    ExecutionQueued,
    NamesDrifted,
    OutputRecorded,
)


class Query(Struct, frozen=True, kw_only=True):
    """What is looked for; None is no condition. `since` and `until` are UTC nanoseconds, both included."""

    principal: str | None = None
    """a glob: who queued the execution, or who did what another entry tells"""
    outcome: str | None = None
    name: str | None = None
    """a variable that it bound, changed, deleted or read"""
    effect: str | None = None
    """`KIND` or `KIND:TEXT`, TEXT being part of what the effect tells; or `effectful`, `effect-free`"""
    text: str | None = None
    """part of its source, what it printed or showed, its error, or what another entry tells; any case"""
    since: int | None = None
    until: int | None = None

    @property
    def is_empty(self) -> bool:
        return self == Query()


class Search:
    """One search. `see` every entry in order, then `wants` says which are found."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._text = None if query.text is None else query.text.casefold()
        asked = [query.principal, query.outcome, query.name, query.effect, self._text]
        self._all = sum(1 << at for at, value in enumerate(asked) if value is not None)
        self._met: dict[str, int] = {}
        self._tails: dict[tuple[str, str], str] = {}
        """the end of what each execution printed so far on each stream: a text may go on in the next chunk"""

    def see(self, entry: Entry) -> None:
        if entry.execution_id is not None and self._all:
            self._met[entry.execution_id] = self._met.get(entry.execution_id, 0) | self._meets(entry)

    def wants(self, entry: Entry) -> bool:
        query = self._query
        if query.since is not None and entry.at < query.since:
            return False
        if query.until is not None and entry.at > query.until:
            return False
        met = self._meets(entry) if entry.execution_id is None else self._met.get(entry.execution_id, 0)
        return met & self._all == self._all

    def _meets(self, entry: Entry) -> int:
        """Bit by bit in the order of `asked`."""
        query, fact = self._query, entry.fact
        met = 0
        if query.principal is not None:
            # the supervisor tells how it went; who ran it is who queued it
            own = entry.execution_id is None or isinstance(fact, ExecutionQueued)
            met |= own and fnmatch.fnmatchcase(entry.principal, query.principal)
        if query.outcome is not None:
            met |= (isinstance(fact, ExecutionFinished) and fact.outcome == query.outcome) << 1
        if query.name is not None:
            met |= _tells_of(fact, query.name) << 2
        if query.effect is not None:
            met |= _has_effect(fact, query.effect) << 3
        if self._text is not None:
            met |= self._says(entry, self._text) << 4
        return met

    def _says(self, entry: Entry, text: str) -> bool:
        return any(text in said for said in self._texts(entry, len(text)))

    def _texts(self, entry: Entry, length: int) -> Iterator[str]:
        fact = entry.fact
        if not isinstance(fact, OutputRecorded):
            yield from map(str.casefold, _strings(msgspec.to_builtins(fact)))
            return
        for raw in fact.messages:
            message = msgspec.json.decode(raw)
            content = message.get("content") if isinstance(message, dict) else None
            if not isinstance(content, dict):
                continue
            if message.get("type") == "stream" and isinstance(content.get("text"), str):
                stream = (entry.execution_id or "", str(content.get("name")))
                said = self._tails.get(stream, "") + content["text"].casefold()
                self._tails[stream] = said[-(length - 1) :] if length > 1 else ""
                yield said
            else:
                yield from map(str.casefold, _strings(content))


def _tells_of(fact: facts.Fact, name: str) -> bool:
    if isinstance(fact, ExecutionObserved):
        return name in fact.names or name in fact.reads
    return isinstance(fact, NamesDrifted) and name in fact.names


def _has_effect(fact: facts.Fact, wanted: str) -> bool:
    if not isinstance(fact, ExecutionObserved | EffectsObserved):
        return False
    if wanted in ("effectful", "effect-free"):
        if isinstance(fact, EffectsObserved):
            return wanted == "effectful"
        said = verdict(fact.effects, fact.unseen, None)
        return (fact.declared or said) == wanted
    kind, _, part = wanted.partition(":")
    part = part.casefold()
    for effect in fact.effects:
        if effect.get("kind") != kind:
            continue
        if not part or any(part in text.casefold() for text in _strings(effect)):
            return True
    return False


def _strings(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)
