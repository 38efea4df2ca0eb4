"""The brief: what a worker reads before it does anything, most important first, within a budget.

Pure: the same material gives the same lines. A line about something that happened cites the journal's
entries it stands on (`[#123]`); what does not fit is counted, with the command that shows it.

Invariants: the text is never longer than `max_tokens` times `LETTERS_PER_TOKEN` letters, and no line
cites an entry that the journal does not have.
Not promised: tokens of any particular model; four letters are one, as a rule of thumb.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct

from kernel_runtime.model.truth import CELL_TRUTHS

LETTERS_PER_TOKEN = 4
FINE = ("live", "superseded", "restored", "recomputed")
"""truths that need nobody's attention"""
_CITED = 3
"""entries that one line cites at most"""
_CONSIDERED = 200
"""items of one section that are looked at; the others are counted"""
_STEPS = (1, 3, 8, 20, _CONSIDERED)
"""how sections grow: all get one item before any gets three"""

Row = Mapping[str, Any]


class Line(Struct, frozen=True, kw_only=True):
    """One line and the entries it stands on; headings, and what is so only now, stand on none."""

    text: str
    entries: list[int] = []


class Material(Struct, frozen=True, kw_only=True):
    """What a brief is made of."""

    report: dict[str, Any]
    """the document of `krt status --json`; its cells may be the worst only"""
    head: int = 0
    """the journal's last entry"""
    kernel: str = ""
    cwd: str = ""
    standing: list[int] = []
    """entries that the session's state stands on"""
    recent: list[dict[str, Any]] = []
    """executions, oldest first: `execution_id`, `status`, `outcome`, `source`, `error`, `blocked`,
    `principal`, `at`"""
    executions: dict[str, list[int]] = {}
    """`execution_id → entries` of those that are spoken of"""
    described: dict[str, dict[str, Any]] = {}
    """`name → {"rows", "columns"}` where that is known"""
    handoff: dict[str, Any] | None = None
    """`{"version", "document", "complete", "entry", "principal"}`"""


class _Section:
    """Items of one kind, as many of them shown as there is room for."""

    def __init__(
        self, title: str, items: Sequence[Line], more: str, noun: str, *, total: int | None = None
    ) -> None:
        self.items = list(items[:_CONSIDERED])
        self.total = len(items) if total is None else total
        """items there are, shown or not"""
        self.noun = noun
        self.shown = 0
        self._title = title
        self._more = more
        """the command that shows them all"""
        self._sizes = list(accumulate((len(item.text) + 1 for item in self.items), initial=0))

    def lines(self) -> list[Line]:
        """An empty line, heading, items, and how many are not shown."""
        if not self.shown:
            return []
        rest = [Line(text=self._rest())] if self.total > self.shown else []
        return [Line(text=""), Line(text=f"## {self._title}"), *self.items[: self.shown], *rest]

    def size(self) -> int:
        """Letters of `lines`, each with a line end."""
        if not self.shown:
            return 0
        rest = len(self._rest()) + 1 if self.total > self.shown else 0
        return len(self._title) + 5 + self._sizes[self.shown] + rest

    def _rest(self) -> str:
        return f"… and {self.total - self.shown:,} more: {self._more}"


def compose(material: Material, max_tokens: int = 1000) -> list[Line]:
    """The lines of a brief, in all at most `max_tokens * LETTERS_PER_TOKEN` letters with line ends."""
    # a line end less than there are lines
    budget = max(1, max_tokens) * LETTERS_PER_TOKEN + 1
    cite = _Citer(material)
    head = _head(material, cite)
    sections = [section for section in _sections(material, cite) if section.items]
    while len(head) > 1 and _size(head, sections) > budget:
        head.pop()
    if _size(head, sections) > budget:
        return [Line(text=_plain(_cut(head[0].text, budget - 1)))]
    for target in _STEPS:
        for section in sections:
            while section.shown < min(target, len(section.items)):
                section.shown += 1
                if _size(head, sections) > budget:
                    section.shown -= 1
                    break
    lines = [*head, *(line for section in sections for line in section.lines()), *_hidden(sections)]
    return [Line(text=_plain(line.text), entries=line.entries) for line in lines]


def text_of(lines: Iterable[Line]) -> str:
    """Lines as Markdown."""
    return "\n".join(line.text for line in lines)


def _hidden(sections: Iterable[_Section]) -> list[Line]:
    hidden = [f"{section.total:,} {section.noun}" for section in sections if not section.shown]
    if not hidden:
        return []
    return [Line(text=""), Line(text=f"… no room for {', '.join(hidden)}: raise max_tokens")]


def _size(head: Sequence[Line], sections: Sequence[_Section]) -> int:
    around = sum(len(line.text) + 1 for line in (*head, *_hidden(sections)))
    return around + sum(section.size() for section in sections)


class _Citer:
    """Makes lines; cites only entries that are there."""

    def __init__(self, material: Material) -> None:
        self._head = material.head
        self._executions = material.executions

    def line(self, text: str, *entries: Any, execution_id: Any = None) -> Line:
        found: list[int] = []
        for entry in (*entries, *self._executions.get(str(execution_id), ())):
            known = type(entry) is int and 1 <= entry <= self._head
            if known and entry not in found:
                found.append(entry)
        found = found[:_CITED]
        cited = " [" + ", ".join(f"#{entry}" for entry in found) + "]" if found else ""
        return Line(text=f"{text}{cited}", entries=found)


# -- what is said


def _head(material: Material, cite: _Citer) -> list[Line]:
    report = material.report
    why = report.get("why") or {}
    counts = report.get("counts") or {}
    told = ", ".join(f"{counts[truth]:,} {truth}" for truth in CELL_TRUTHS if counts.get(truth))
    summary = (
        f"# {report.get('session')}: incarnation {report.get('incarnation')}, {report.get('state')}; "
        f"{told or 'no cells'}"
    )
    head = [Line(text=summary)]
    if reason := _reason(why):
        head.append(cite.line(reason, why.get("entry"), execution_id=why.get("execution_id")))
    if material.kernel or material.cwd:
        place = f"kernel {shown(material.kernel)}, cwd {shown(material.cwd, 120)}, journal at {material.head}"
        head.append(cite.line(place, *material.standing))
    return head


def _reason(why: Row) -> str:
    """Why the state is what it is."""
    kind = why.get("kind")
    if kind is not None:
        parts = [str(kind)]
        parts += [
            f"{key} {shown(str(why[key]), 60)}"
            for key in ("reason", "signal", "exit_status", "by_user_code")
            if why.get(key) not in (None, "", False)
        ]
        evidence = why.get("evidence")
        if isinstance(evidence, Mapping) and evidence:
            parts += [f"{key} {shown(str(value), 60)}" for key, value in list(evidence.items())[:2]]
        return f"why: {', '.join(parts)}"
    activity = why.get("activity")
    if isinstance(activity, Mapping) and activity.get("doing"):
        return f"why: the running cell is {shown(str(activity['doing']))}"
    if "names" in why:
        return f"names: {shown(str(why['names']), 120)}"
    return ""


def _sections(material: Material, cite: _Citer) -> list[_Section]:
    report = material.report
    session = str(report.get("session"))
    cells = [cell for cell in report.get("cells") or [] if cell.get("truth") not in FINE]
    counts = report.get("counts") or {}
    not_fine = sum(n for truth, n in counts.items() if truth not in FINE)
    names = list(report.get("names") or [])
    odd = [
        name for name in names if name.get("truth") not in ("live", "unreadable", "restored", "recomputed")
    ]
    known = _worth_knowing([name for name in names if name not in odd and _is_worth(name)])
    resources = [row for row in report.get("resources") or [] if row.get("kind") != "env"]
    resources = [*_by_kind(row for row in resources if row.get("truth") == "true" and row.get("pid"))]
    failed = [claim for claim in report.get("claims") or [] if claim.get("truth") != "true"]
    failed.sort(key=lambda claim: claim.get("truth") != "false")
    now = [row for row in material.recent if row.get("status") != "done"]
    done = [row for row in reversed(material.recent) if row.get("status") == "done"]
    plan = [
        step
        for step in report.get("plan") or []
        if step.get("target") == session and step.get("action") != "keep"
    ]
    handoff = _handoff(material.handoff, cite)
    return [
        _Section("Now", [_now(row, session, cite) for row in now], f"krt log {session}", "executions"),
        _Section(
            "Next",
            [*handoff, *(Line(text=f"- {step['action']}: {shown(str(step['reason']))}") for step in plan)],
            f"krt handoff {session}",
            "lines of the handoff",
        ),
        _Section(
            "Not live",
            [_cell(cell, cite) for cell in cells[:_CONSIDERED]],
            f"krt status {session} --all",
            "cells that are not live",
            total=max(not_fine, len(cells)),
        ),
        _Section(
            "Names that are not as they were left",
            [_name(name, material, cite) for name in odd[:_CONSIDERED]],
            f"krt status {session}",
            "names that are not as they were left",
            total=len(odd),
        ),
        _Section(
            "Claims that do not hold",
            [_claim(claim, cite) for claim in failed],
            f"krt claims {session}",
            "claims that do not hold",
        ),
        _Section(
            "Names worth knowing",
            [_name(name, material, cite) for name in known[:_CONSIDERED]],
            f"krt status {session}",
            "names",
            total=len(known),
        ),
        _Section(
            "Resources",
            [_resource(row, cite) for row in resources[:_CONSIDERED]],
            f"krt ps {session}",
            "resources",
            total=len(resources),
        ),
        _Section(
            "Last executions, newest first",
            [_past(row, cite) for row in done],
            f"krt log {session}",
            "executions",
        ),
    ]


def _now(row: Row, session: str, cite: _Citer) -> Line:
    who = f"{_id(row.get('execution_id'))}, {shown(str(row.get('principal')))}"
    blocked = row.get("blocked")
    source = shown(str(row.get("source") or ""))
    if not blocked:
        return cite.line(f"- {row.get('status')}: {source} ({who})", execution_id=row.get("execution_id"))
    asks = f"asks {shown(str(blocked.get('prompt') or ''))!r}"
    if blocked.get("pid"):
        command = blocked.get("command")
        by = shown(shlex.join(command), 60) if isinstance(command, list) and command else "a process"
        asks = f"{by} (pid {blocked['pid']}) {asks}"
    answer = f"answer it: krt answer {session} TEXT"
    return cite.line(f"- blocked: {source} ({who}); {asks}; {answer}", execution_id=row.get("execution_id"))


def _handoff(handoff: Row | None, cite: _Citer) -> list[Line]:
    if not handoff:
        return []
    document = handoff.get("document") or {}
    entry = handoff.get("entry")
    lines: list[Line] = []
    fields = (("next_action", "next action"), ("goal", "goal"), ("verification", "verification"))
    for field, label in fields:
        if document.get(field):
            lines.append(cite.line(f"- {label}: {shown(str(document[field]), 160)}", entry))
    lines += [cite.line(f"- risk: {shown(str(risk), 120)}", entry) for risk in document.get("risks") or []]
    if lines:
        by = f"handoff version {handoff.get('version')} by {shown(str(handoff.get('principal')))}"
        state = "complete" if handoff.get("complete") else "not declared complete"
        lines.append(cite.line(f"- {by}, {state}", entry))
    return lines


def _cell(cell: Row, cite: _Citer) -> Line:
    evidence = cell.get("evidence") or {}
    source = shown(str(evidence.get("source") or cell.get("cell_id")))
    text = f"- {cell.get('truth')}: {source} ({_id(cell.get('execution_id'))})"
    entries: list[Any] = []
    changed = evidence.get("changed")
    if isinstance(changed, Mapping):
        parts = []
        for name, change in list(changed.items())[:3]:
            by = change.get("by") if isinstance(change, Mapping) else None
            parts.append(f"{shown(str(name), 40)} changed" + (f" by {_id(by)}" if by else ""))
            entries.append(change.get("seq") if isinstance(change, Mapping) else None)
        text += f"; {', '.join(parts)}"
    elif evidence.get("reason"):
        text += f"; {shown(str(evidence['reason']))}"
    return cite.line(text, *entries, execution_id=cell.get("execution_id"))


def _is_worth(name: Row) -> bool:
    # what was imported is in the source of the cell that imported it
    return not str(name.get("name", "_")).startswith("_") and name.get("type") != "module"


def _worth_knowing(names: Sequence[Row]) -> list[Row]:
    """The large and the new first: by the sum of both ranks, where twice as large is one rank."""
    sizes = sorted({_magnitude(name) for name in names}, reverse=True)
    ages = sorted({_changed(name) or 0 for name in names}, reverse=True)
    by_size = {size: place for place, size in enumerate(sizes)}
    by_age = {age: place for place, age in enumerate(ages)}
    return sorted(
        names,
        key=lambda name: (
            by_size[_magnitude(name)] + by_age[_changed(name) or 0],
            str(name.get("name")),
        ),
    )


def _magnitude(name: Row) -> int:
    count = name.get("bytes")
    return count.bit_length() if isinstance(count, int) else 0


def _changed(name: Row) -> int | None:
    """The entry that changed it last."""
    seq = (name.get("evidence") or {}).get("seq")
    return seq if type(seq) is int else None


def _name(name: Row, material: Material, cite: _Citer) -> Line:
    label = str(name.get("name"))
    parts = [shown(str(name.get("type") or "?"), 60)]
    described = material.described.get(label, {})
    units = [unit for unit in ("rows", "columns") if isinstance(described.get(unit), int)]
    parts += [f"{described[unit]:,} {unit}" for unit in units]
    if isinstance(name.get("bytes"), int):
        parts.append(size(name["bytes"]))
    if name.get("shares_with"):
        parts.append("shares with " + shown(", ".join(map(str, name["shares_with"][:3])), 60))
    if name.get("truth") != "live":
        parts.append(str(name.get("truth")))
    if name.get("bound_by"):
        parts.append(f"bound by {_id(name['bound_by'])}")
    text = f"- {shown(label, 60)}: {', '.join(parts)}"
    return cite.line(text, _changed(name), execution_id=name.get("bound_by"))


def size(count: int) -> str:
    """Bytes as people say them."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


_KINDS = ("process", "socket", "terminal", "file")


def _by_kind(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: _KINDS.index(row["kind"]) if row.get("kind") in _KINDS else 9)


def _resource(row: Row, cite: _Citer) -> Line:
    command = row.get("command")
    shown_command = shlex.join(map(str, command)) if isinstance(command, list) else ""
    what = [str(row.get("kind"))]
    if row.get("process_id"):
        what.append(shown(str(row["process_id"])))
    if row.get("port"):
        what.append(
            f"{row.get('protocol', '')} {row.get('address', '')}:{row['port']} {row.get('state', '')}".strip()
        )
    if row.get("path"):
        what.append(f"{row['path']} ({row.get('mode')})" if row.get("mode") else str(row["path"]))
    if row.get("pid"):
        what.append(f"pid {row['pid']}")
    if shown_command:
        what.append(shown_command)
    if row.get("ports"):
        what.append("ports " + " ".join(map(str, row["ports"][:5])))
    by = f", started by {_id(row['started_by'])}" if row.get("started_by") else ""
    return cite.line(
        f"- {shown(' '.join(what), 120)}{by}", row.get("entry"), execution_id=row.get("started_by")
    )


def _claim(claim: Row, cite: _Citer) -> Line:
    evidence = claim.get("evidence") or {}
    reason = f"; {shown(str(evidence['reason']))}" if evidence.get("reason") else ""
    text = (
        f"- {claim.get('truth')}: {shown(str(claim.get('text')))} "
        f"(`{shown(str(claim.get('probe')))}`, {claim.get('claim_id', 'claim')}){reason}"
    )
    return cite.line(text, *(claim.get("entries") or []))


def _past(row: Row, cite: _Citer) -> Line:
    error = row.get("error") or {}
    raised = f" {error.get('ename')}: {shown(str(error.get('evalue')), 60)}" if error else ""
    source = shown(str(row.get("source") or ""))
    who = f"{_id(row.get('execution_id'))}, {shown(str(row.get('principal')))}, {row.get('at')}"
    return cite.line(
        f"- {row.get('outcome')}{raised}: {source} ({who})", execution_id=row.get("execution_id")
    )


def _id(execution_id: Any) -> str:
    """The first letters of an id: enough for every command that takes one."""
    return str(execution_id)[:8] if execution_id else "-"


def shown(text: str, limit: int = 80) -> str:
    """The first line with anything on it, without control characters, cut to `limit`."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    return _cut(_plain(line), limit)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
