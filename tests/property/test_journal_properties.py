"""Any story of sessions, told in any batches: the tables are the fold of the entries, and hold the laws."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernel_runtime.core.projection import fold
from kernel_runtime.journal import Journal, JournalReader, verify
from kernel_runtime.journal.codec import entry_hash
from kernel_runtime.model import facts
from kernel_runtime.model.entry import Draft
from kernel_runtime.model.execution import OUTCOMES
from kernel_runtime.model.facts import Fact
from tests.unit.journal.support import FixedClock, finished, printed, queued, started, without_triggers

text = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates too
principals = st.sampled_from(["agent:a", "agent:b", "human:é", "system"])
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
evidence = st.dictionaries(text, json_values, max_size=3)
names_seen = st.dictionaries(
    st.sampled_from("xyz"),
    st.fixed_dictionaries(
        {
            "how": st.sampled_from(["bound", "rebound", "mutated", "deleted", "touched", "read"]),
            "digest": st.sampled_from(["d:1", "d:2", None]),
            "type": text,
            "bytes": st.integers(0, 100),
        }
    ),
    max_size=2,
)


class Story(RuleBasedStateMachine):
    """Appends what a supervisor could append, closes, kills and reopens, and compares."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal.db"
        self.journal = Journal.create(self.path)
        self.incarnation = 1
        self.count = 0
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.unobserved: list[str] = []
        self.batch: list[Draft] = []
        self.head = 0

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.flush(sync=True)
            self.journal.close()
            report = verify(self.path)
            assert report.ok, report.problems
            assert report.projections == "match"
            self.directory.cleanup()

    def say(self, fact: Fact, principal: str = "agent:a") -> None:
        self.batch.append(Draft(fact, principal, self.incarnation))

    @rule(
        principal=principals, source=text, keyed=st.booleans(), silent=st.booleans(), cell=st.integers(0, 3)
    )
    def queue(self, principal: str, source: str, keyed: bool, silent: bool, cell: int) -> None:
        self.count += 1
        name = f"x{self.count}"
        key = f"key {self.count}" if keyed else None
        self.say(queued(name, source, cell_id=f"c{cell}", key=key, silent=silent), principal)
        self.waiting.append(name)

    @precondition(lambda self: self.waiting)
    @rule(principal=principals)
    def start(self, principal: str) -> None:
        name = self.waiting.pop(0)
        self.say(started(name), principal)
        self.running.append(name)

    @precondition(lambda self: self.waiting)
    @rule()
    def abort(self) -> None:
        self.say(finished(self.waiting.pop(), "aborted"))

    @precondition(lambda self: self.running)
    @rule(words=text, size=st.sampled_from([1, 300]), position=st.none() | st.integers(0, 10_000))
    def print_something(self, words: str, size: int, position: int | None) -> None:
        self.say(printed(self.running[-1], facts.escape_text(words) * size, position))

    @precondition(lambda self: self.running)
    @rule(password=st.booleans(), answer=st.none() | text, prompt=text)
    def ask(self, password: bool, answer: str | None, prompt: str) -> None:
        name = self.running[0]
        self.say(facts.InputRequested(execution_id=name, prompt=prompt, password=password))
        if answer is not None:
            self.say(facts.InputAnswered(execution_id=name, value=None if password else answer))

    @precondition(lambda self: self.running)
    @rule(outcome=st.sampled_from(OUTCOMES), count=st.none() | st.integers(1, 99), evidence=evidence)
    def finish(self, outcome: str, count: int | None, evidence: dict[str, Any]) -> None:
        error = {"ename": "E", "evalue": "", "traceback": []} if outcome == "error" else None
        name = self.running.pop(0)
        self.say(finished(name, outcome, execution_count=count, evidence=evidence, error=error))
        self.unobserved.append(name)

    @precondition(lambda self: self.unobserved)
    @rule(
        names=names_seen,
        reads=st.lists(st.sampled_from("xyz"), max_size=2),
        dynamic=st.booleans(),
        volatile=st.booleans(),
        groups=st.none() | st.just([["x", "y"]]),
    )
    def observe(
        self,
        names: dict[str, dict[str, Any]],
        reads: list[str],
        dynamic: bool,
        volatile: bool,
        groups: list[list[str]] | None,
    ) -> None:
        self.say(
            facts.ExecutionObserved(
                execution_id=self.unobserved.pop(),
                names=names,
                reads=reads,
                dynamic=["exec"] * dynamic,
                volatile=["thread t"] * volatile,
                groups=groups,
            )
        )

    @rule(names=names_seen, position=st.none() | st.integers(0, 10_000))
    def drift(self, names: dict[str, dict[str, Any]], position: int | None) -> None:
        self.say(facts.NamesDrifted(names=names, found="idle", position=position))

    @rule()
    def next_incarnation(self) -> None:
        self.incarnation += 1

    @rule(principal=principals, how=st.sampled_from(["attach", "accept", "status", "refused"]))
    def meet_the_loss(self, principal: str, how: str) -> None:
        if how == "attach":
            self.say(facts.PrincipalAttached(), principal)
        elif how == "accept":
            self.say(facts.HeapLossAccepted(how=how), principal)
        else:
            self.say(facts.HeapLossTold(lost=1, how=how), principal)

    @rule(sync=st.booleans())
    def flush(self, sync: bool) -> None:
        made = self.journal.append(self.batch, sync=sync)
        assert [entry.seq for entry in made] == list(range(self.head + 1, self.head + 1 + len(self.batch)))
        self.head += len(self.batch)
        self.batch = []
        assert self.journal.head == self.head

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = Journal.open(self.path)

    @rule()
    def rebuild(self) -> None:
        self.journal.rebuild()

    @invariant()
    def tables_are_the_fold(self) -> None:
        if not hasattr(self, "journal") or self.batch:
            return
        with JournalReader.open(self.path) as reader:
            entries = reader.entries(limit=10_000)
            folded = fold(entries)
            assert reader.head() == len(entries) == self.head
            assert {x.execution_id: x for x in reader.executions()} == folded.executions
            assert {cell.cell_id: cell for cell in reader.cells()} == folded.cells
            assert reader.seen() == folded.seen
            assert {(i, s, o, h): n for i, s, o, h, n in reader.heap_counts()} == dict(+folded.counts)
            for incarnation in range(1, self.incarnation + 1):
                assert reader.position(incarnation) == folded.positions.get(incarnation)
                assert reader.heap(incarnation) == folded.heap.heaps.get(incarnation)
            for own in (False, True):
                well = ("live", "superseded") if own else ("", "live", "superseded")
                fine = {
                    c.cell_id
                    for c in folded.cells.values()
                    if (c.incarnation, c.outcome) == (self.incarnation, "ok") and c.heap in well
                }
                worst = reader.worst_cells(10, self.incarnation, own=own)
                assert {cell.cell_id for cell in worst} == folded.cells.keys() - fine
            assert {name.name: name for name in reader.all_names()} == folded.heap.names
            assert [name.name for name in reader.names()] == sorted(
                name.name for name in folded.heap.names.values() if name.present
            )
            assert reader.observations() == {k: seen for k, seen in folded.heap.observations.items() if seen}
            assert {(i, state): n for i, state, n in reader.name_counts()} == dict(+folded.heap.counts)
            for execution_id, row in folded.executions.items():
                assert reader.execution(execution_id) == row
                if row.key is not None:
                    assert reader.by_key(row.key) == row


TestStory = Story.TestCase
TestStory.settings = settings(max_examples=40, stateful_step_count=30)


@given(st.tuples(st.integers(), st.integers(), st.integers(), st.integers()), text, text, st.none() | text)
def test_the_hashed_line_is_what_any_json_library_writes(
    numbers: tuple[int, int, int, int], principal: str, kind: str, execution_id: str | None
):
    """So that a journal can be checked by hand, in any language."""
    import hashlib
    import json

    numbers = tuple(n % 2**63 for n in numbers)  # type: ignore[assignment]
    principal, kind = facts.escape_text(principal), facts.escape_text(kind)
    execution_id = execution_id and facts.escape_text(execution_id)
    line = json.dumps(
        [*numbers, principal, kind, execution_id, "d", "p"], ensure_ascii=False, separators=(",", ":")
    )
    expected = hashlib.sha256(line.encode()).hexdigest()
    assert entry_hash(*numbers, principal, kind, execution_id, "d", "p") == expected


@given(st.builds(finished, st.just("a"), text, evidence=evidence) | st.builds(queued, text, text))
def test_what_is_encoded_is_decoded(fact: Fact):
    stored, payload = facts.prepare(fact)
    assert facts.decode(type(fact).__name__, payload) == stored
    assert facts.encode(stored) == payload


@example(b"\t0")
@example(b' {"a": 1}\r\n')
@given(st.binary(max_size=60) | json_values.map(lambda v: msgspec.json.encode(facts._escaped(v))))
def test_whatever_a_kernel_sent_can_be_read_again(raw: bytes):
    """Mechanism of the first examples: space around a message is no part of what is read, and was part of
    what was stored, so that who wrote and who read did not have the same fact.
    """
    fact = facts.OutputRecorded(messages=[msgspec.Raw(raw)], execution_id="a")
    read = facts.decode("OutputRecorded", facts.encode(fact))
    assert isinstance(read, facts.OutputRecorded)
    (kept,) = read.messages
    assert facts.encode(read) == facts.encode(fact)
    msgspec.json.decode(kept)


TABLES = {
    "entries": ("seq", "at mono incarnation principal kind execution_id payload digest prev_hash hash"),
    "payloads": ("rowid", "digest size codec checksum data"),
    "executions": (
        "queued_seq",
        (
            "execution_id cell_id principal msg_id source_digest queued_at key incarnation status outcome "
            "execution_count started_at finished_at finished_seq error evidence blocked"
        ),
    ),
    "cells": (
        "cell_id",
        (
            "position execution_id source_digest incarnation status outcome executions heap held adrift "
            "gone changed unsure open"
        ),
    ),
    "cell_counts": ("incarnation, status, outcome, heap", "n"),
    "names": (
        "name",
        (
            "incarnation present type bytes digest why token changed_seq bound_by bound_in changed_by "
            "drifted unbound shaky"
        ),
    ),
    "name_counts": ("incarnation, state", "n"),
    "heaps": ("incarnation", "seq changed_seq blind_seq groups unfollowed volatile awaited"),
    "observations": ("cell_id", "execution_id incarnation seq bound mutated reads dynamic"),
    "reads": ("incarnation, name, token, cell_id", ""),
    "seen": ("principal", "incarnation accepted"),
    "positions": ("incarnation", "position"),
}
"""per table its key, which is damaged too, and its other columns"""


@cache
def small_journal() -> bytes:
    """A journal with every column filled somewhere."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.db"
        with Journal.create(path, FixedClock()) as journal:
            for name, outcome in (("a", "ok"), ("b", "error")):
                error = {"ename": "E", "evalue": "", "traceback": []}
                said: list[Fact] = [queued(name, key=name), started(name), printed(name, name * 6000, 7)]
                said += [finished(name, outcome, execution_count=1, evidence={"why": "x"}, error=error)]
                said += [facts.PrincipalAttached(), facts.HeapLossAccepted(how="accept")]
                names: dict[str, dict[str, object]] = {
                    "x": {"how": "bound", "type": "int", "bytes": 28, "digest": f"d:{name}"},
                    name: {"how": "bound", "type": "big", "why": "too large"},
                }
                said += [facts.ExecutionObserved(execution_id=name, names=names, reads=["x"])]
                journal.append([Draft(fact, "agent:é", 1) for fact in said], sync=False)
            asks = facts.InputRequested(execution_id="c", prompt="?", password=False)
            journal.append(
                [Draft(fact, "agent:b", 2) for fact in (queued("c"), started("c"), asks)], sync=False
            )
        return path.read_bytes()


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_any_flipped_bit_of_any_value_is_found(data: st.DataObject):
    table = data.draw(st.sampled_from(sorted(TABLES)))
    key, others = TABLES[table]
    column = data.draw(
        st.sampled_from([*key.split(", "), *others.split()]).filter(lambda name: name != "rowid")
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "journal.db"
        path.write_bytes(small_journal())
        with without_triggers(path) as plain:
            plain.text_factory = bytes
            rows = plain.execute(
                f"SELECT {column}, typeof({column}), {key} FROM {table} WHERE {column} IS NOT NULL"
            )
            old, kind, *keys = data.draw(st.sampled_from(rows.fetchall()))
            conditions = [
                f"{name} = {'CAST(? AS TEXT)' if isinstance(k, bytes) else '?'}"
                for name, k in zip(key.split(", "), keys, strict=True)
            ]
            new = flipped(data, old)
            value = "CAST(? AS TEXT)" if kind == b"text" else "?"
            changed = plain.execute(
                f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {' AND '.join(conditions)}",
                (new, *keys),
            )
            # a second row of the same key is what the table itself refuses
            assume(changed.rowcount == 1)
        report = verify(path)
        assert not report.ok
        if table not in ("entries", "payloads"):
            assert report.projections == "differ"
            assert {problem.where for problem in report.problems} == {table}


def flipped(data: st.DataObject, old: int | bytes) -> int | bytes:
    if isinstance(old, int):
        return old ^ (1 << data.draw(st.integers(0, 62)))
    if not old:
        return b"x"
    new = bytearray(old)
    new[data.draw(st.integers(0, len(old) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(new)
