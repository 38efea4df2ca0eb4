"""The client's part of the handoff: writing a version, reading the one that stands, testing it.

The test is made by whoever calls it with nothing but what a fresh client has: the journal and a
supervisor. It changes nothing, but for the truth of claims it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

import msgspec
from msgspec import Struct

from kernel_runtime.client.brief import LAST, handoff_of, shown
from kernel_runtime.client.claims import ClaimCalls
from kernel_runtime.core import handoff as core
from kernel_runtime.core.entries import walk
from kernel_runtime.core.execution_view import iso_time
from kernel_runtime.errors import KernelRuntimeError, NotFound, UsageError
from kernel_runtime.journal import JournalReader
from kernel_runtime.model.facts import ExecutionFinished

if TYPE_CHECKING:
    from kernel_runtime.client.session import AsyncSession
    from kernel_runtime.client.status import Status

_RAN = 10
"""executions that a handoff names"""
_NAMES = 20
_RESOURCES = 20
SEPARATOR = " :: "
"""between a claim's text and its probe"""

ClaimLike = str | tuple[str, str]


class HandoffFields(TypedDict, total=False):
    """What `handoff` takes."""

    goal: str
    completed: Sequence[str]
    next_action: str
    verification: str
    risks: Sequence[str]
    references: Sequence[str]
    claims: Sequence[ClaimLike]
    complete: bool
    replaced: Sequence[str]
    expect_version: int | None


class Handoff(Struct, frozen=True, kw_only=True):
    """A version of the handoff."""

    session: str
    version: int
    document: core.Document
    complete: bool
    entry: int
    principal: str
    at: str

    def markdown(self) -> str:
        about = f"Written by {self.principal} at {self.at} [#{self.entry}]."
        return core.markdown(
            self.document, session=self.session, version=self.version, complete=self.complete, about=about
        )

    def json(self) -> dict[str, Any]:
        """`{"session", "version", "complete", "entry", "principal", "at", "document"}`."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


class Tested(Struct, frozen=True, kw_only=True):
    """Whether a fresh client can resume from a handoff."""

    session: str
    version: int
    failures: list[dict[str, Any]]
    """`{"what", "problem"}` of each thing that stands in the way"""
    notes: list[str]
    """what to know, and what is no failure"""
    checked: dict[str, int]
    """how many references and claims were checked"""

    @property
    def ok(self) -> bool:
        return not self.failures

    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.to_builtins(self)
        return {"ok": self.ok, **document}


class HandoffCalls(ClaimCalls):
    """Methods of a session that are about its handoff."""

    async def _need_journal(self) -> None:
        """As `AsyncSession` does."""
        raise NotImplementedError

    async def handoff(self, **fields: Unpack[HandoffFields]) -> Handoff:
        """Write the next version; without arguments, the version that stands.

        Texts take the place of the old ones, items are added to the lists; fields named in `replaced`
        become what is given here, even if that is nothing. What ran, what lives and what the names are
        is added from the journal and the session.

        Args:
            goal: what it is all for.
            completed: steps that are done.
            next_action: the one thing to do next.
            verification: what has been checked, how, and what has not.
            risks: what may go wrong.
            references: `entry:N`, `execution:ID`, `cell:ID`, `name:NAME`, `file:PATH`, `process:ID`,
                `url:URL`.
            claims: `"TEXT :: PROBE"` or `(text, probe)`; each is made and checked.
            complete: the worker declares that another can go on from here.
            replaced: names of fields.
            expect_version: refuse if another version stands.

        Raises:
            NotFound: no arguments, and no handoff.
            UsageError: complete without a next action, or a field or reference that is none.
            BadProbe: a claim's probe.
            SessionBusy: `expect_version` is not the version that stands.
        """
        complete = fields.get("complete", False)
        replaced = list(fields.get("replaced", ()))
        claims = list(fields.get("claims", ()))
        given = core.Document(
            goal=fields.get("goal", ""),
            completed=list(fields.get("completed", ())),
            next_action=fields.get("next_action", ""),
            verification=fields.get("verification", ""),
            risks=list(fields.get("risks", ())),
            references=list(fields.get("references", ())),
        )
        if not (complete or replaced or claims or given != core.Document()):
            return await self._standing()
        session = cast("AsyncSession", self)
        core.change(core.Document(), given)  # refuse what is no handoff before anything is written
        pairs = [split_claim(claim) for claim in claims]
        await self._need_journal()
        if complete:
            before = handoff_of(session.journal)
            known = core.read(before["document"]) if before is not None else core.Document()
            core.require_complete(core.change(known, given, replaced=replaced), session.name)
        made = [await self.claim(text, probe=probe) for text, probe in pairs]
        claimed = [core.Claimed(text=c.text, probe=c.probe, claim_id=c.claim_id) for c in made]
        given = msgspec.structs.replace(given, claims=claimed)
        document = {
            "set": {
                key: value for key, value in msgspec.to_builtins(given).items() if value and key != "observed"
            },
            "replaced": replaced,
            "observed": await _observe(session),
        }
        arguments: dict[str, Any] = {"document": document, "complete": complete}
        if fields.get("expect_version") is not None:
            arguments["expect_version"] = fields["expect_version"]
        await self._line.request("handoff", arguments)
        return await self._standing()

    async def _standing(self) -> Handoff:
        session = cast("AsyncSession", self)
        await self._need_journal()
        found = handoff_of(session.journal)
        if found is None:
            raise NotFound(
                f"session {session.name}: no handoff was written",
                hint=f"krt handoff {session.name} --goal '…' --next '…'",
                session=session.name,
            )
        return Handoff(session=session.name, **{**found, "document": core.read(found["document"])})

    async def test_handoff(self) -> Tested:
        """Whether a fresh client can go on from the handoff that stands.

        Every reference is there, every claim of it holds, and the next action says one thing to do.

        Raises:
            NotFound: there is none.
        """
        session = cast("AsyncSession", self)
        found = await self._standing()
        document = found.document
        failures: list[dict[str, Any]] = [
            {"what": "next action", "problem": problem} for problem in core.ambiguities(document.next_action)
        ]
        for reference in document.references:
            problem = await self._missing(session, reference)
            if problem:
                failures.append({"what": f"reference {reference}", "problem": problem})
        standing = {claim.claim_id: claim for claim in await self.claims()} if document.claims else {}
        for claimed in document.claims:
            claim = standing.get(claimed.claim_id)
            what = f"claim {claimed.claim_id} {claimed.text!r}"
            if claim is None:
                failures.append({"what": what, "problem": "it was withdrawn"})
            elif not claim.holds:
                failures.append({"what": what, "problem": f"it is {claim.truth}", "evidence": claim.evidence})
        return Tested(
            session=session.name,
            version=found.version,
            failures=failures,
            notes=_notes(session.journal, found),
            checked={"references": len(document.references), "claims": len(document.claims)},
        )

    async def _missing(self, session: AsyncSession, text: str) -> str:
        """Why a reference leads nowhere; empty when it does not."""
        try:
            reference = core.parse_reference(text)
            probe = core.probe_of(reference)
            if probe is not None:
                checked = await self.check(probe)
                reason = checked.evidence.get("reason") or checked.evidence.get("error")
                return "" if checked.truth == "true" else str(reason or "it is not there")
            if reference.kind == "entry":
                head = session.journal.head()
                return "" if 1 <= int(reference.what) <= head else f"the journal ends at {head}"
            if reference.kind == "execution":
                await session.find(reference.what)
                return ""
            rows = session.journal.executions(cell_id=reference.what, last=1)
            return "" if rows else "no such cell was ever run"
        except KernelRuntimeError as error:
            return error.message


def split_claim(claim: ClaimLike) -> tuple[str, str]:
    """Text and probe of `"TEXT :: PROBE"`.

    Raises:
        UsageError: there is no `::` in it.
    """
    if not isinstance(claim, str):
        return claim
    text, separator, probe = claim.partition(SEPARATOR)
    if not separator:
        raise UsageError(
            f"{claim[:80]!r} is no claim with a probe",
            hint=f"'server on :3000{SEPARATOR}port 3000 listens'",
        )
    return text.strip(), probe.strip()


def _notes(journal: JournalReader, found: Handoff) -> list[str]:
    notes: list[str] = []
    if not found.complete:
        notes.append("whoever wrote it has not declared it complete")
    if not found.document.goal:
        notes.append("it does not say what it is for (goal)")
    since = journal.entries(found.entry, kinds=("ExecutionStarted",), limit=1000)
    if since:
        notes.append(f"{len(since)} executions started since it was written")
    was = found.document.observed.get("incarnation")
    now = journal.entries(0, last=1)
    if now and isinstance(was, int) and now[0].incarnation != was:
        notes.append(f"it was written in incarnation {was}; the heap of that one is gone")
    return notes


# -- what the journal and the session add


async def _observe(session: AsyncSession) -> dict[str, Any]:
    status = await session.status(limit=0)
    journal = session.journal
    before = handoff_of(journal)
    after = before["entry"] if before is not None else 0
    head = journal.head()
    return {
        "incarnation": status.incarnation,
        "state": status.state,
        "kernel": session.file.kernel,
        "cwd": session.file.cwd,
        "notebook": str(session.file.notebook),
        "cells": {truth: n for truth, n in status.counts.items() if n},
        "since": {
            "entries": [after + 1, head],
            "outcomes": _outcomes(journal, after),
            "handoff": before["version"] if before is not None else None,
        },
        "ran": _ran(journal, after),
        "names": _names(status),
        "resources": _resources(status),
    }


def _outcomes(journal: JournalReader, after: int) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for entry in walk(journal, after, kinds=("ExecutionFinished",)):
        if isinstance(entry.fact, ExecutionFinished):
            counts[entry.fact.outcome] += 1
    return dict(counts)


def _ran(journal: JournalReader, after: int) -> list[dict[str, Any]]:
    rows = [row for row in journal.executions(last=LAST) if row.queued_seq > after][-_RAN:]
    return [
        {
            "execution_id": row.execution_id,
            "cell_id": row.cell_id,
            "outcome": row.outcome or row.status,
            "source": shown(journal.source(row.execution_id)),
            "entry": row.finished_seq or row.queued_seq,
            "at": iso_time(row.finished_at or row.queued_at),
        }
        for row in rows
    ]


def _names(status: Status) -> list[dict[str, Any]]:
    rows = [row for row in status.report.names if row.get("type") != "module"]
    rows = [row for row in rows if not str(row.get("name")).startswith("_")]
    rows.sort(key=lambda row: (-(row.get("bytes") or 0), str(row.get("name"))))
    return [{key: row.get(key) for key in ("name", "truth", "type", "bytes")} for row in rows[:_NAMES]]


def _resources(status: Status) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in status.report.resources:
        if row.get("truth") != "true" or row.get("kind") not in ("process", "socket") or not row.get("pid"):
            continue
        command = " ".join(map(str, row.get("command") or []))
        port = f" port {row['port']} {row.get('state', '')}" if row.get("port") else ""
        found.append(
            {
                "kind": row["kind"],
                "pid": row["pid"],
                "text": shown(f"{row['kind']} pid {row['pid']} {command}{port}", 120),
                "started_by": row.get("started_by"),
            }
        )
    return found[:_RESOURCES]
