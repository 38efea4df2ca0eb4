"""The handoff: the document that lets the next worker continue, and what makes one good.

A worker sets `goal`, `completed`, `next_action`, `verification`, `risks`, `references` and `claims`; what
the journal and the session show at that moment is kept beside it as `observed`. Pure: changing,
judging and rendering take documents and give documents.

Invariants: a change never drops what it does not name; a handoff is complete only with a next action;
whatever `references` hold can be checked. Not promised: that following the next action is wise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kernel_runtime.errors import UsageError

TEXTS = ("goal", "next_action", "verification")
LISTS = ("completed", "risks", "references", "claims")
LONGEST = 2_000
"""letters of one text or item"""
MOST = 500
"""items of one list"""
REFERENCES = ("entry", "execution", "cell", "name", "file", "process", "url")


class Claimed(Struct, frozen=True, kw_only=True):
    """A claim that the handoff rests on."""

    text: str
    probe: str
    claim_id: str = ""


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A handoff's content."""

    goal: str = ""
    completed: list[str] = []
    next_action: str = ""
    verification: str = ""
    risks: list[str] = []
    references: list[str] = []
    """`KIND:WHAT`, see REFERENCES"""
    claims: list[Claimed] = []
    observed: dict[str, Any] = {}
    """what was so when it was written; from the journal and the session, not from the worker"""


class Reference(Struct, frozen=True):
    """Something that a handoff points at."""

    kind: str
    what: str


def read(document: Mapping[str, Any]) -> Document:
    """A document as somebody wrote it.

    Raises:
        UsageError: a field that is none, or of another type.
    """
    try:
        return msgspec.convert(dict(document), Document)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the handoff cannot be read: {error}",
            hint=f"fields are {', '.join((*TEXTS, *LISTS))}; see docs/handoff.md",
        ) from None


def change(
    before: Document,
    given: Document,
    *,
    replaced: Iterable[str] = (),
    observed: Mapping[str, Any] | None = None,
) -> Document:
    """The next version: texts that are given take the place of the old, items of lists are added.

    Fields in `replaced` are what `given` has, even if that is nothing.

    Raises:
        UsageError: too long, too many, or a reference that is none.
    """
    replaced = set(replaced)
    fields: dict[str, Any] = {}
    for name in TEXTS:
        text = getattr(given, name).strip()
        fields[name] = text if text or name in replaced else getattr(before, name)
    for name in LISTS:
        old = [] if name in replaced else getattr(before, name)
        fields[name] = _without_repeats([*old, *getattr(given, name)])
    after = Document(**fields, observed=dict(observed if observed is not None else before.observed))
    _check(after)
    return after


def _without_repeats(items: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _check(document: Document) -> None:
    for name in (*TEXTS, *LISTS):
        value = getattr(document, name)
        items = [value] if isinstance(value, str) else value
        if len(items) > MOST:
            raise UsageError(f"the handoff has {len(items):,} {name}", hint=f"at most {MOST}")
        for item in items:
            text = item.text if isinstance(item, Claimed) else item
            if len(text) > LONGEST:
                raise UsageError(
                    f"the handoff's {name} has {len(text):,} letters in one item",
                    hint=f"at most {LONGEST:,}; put it in a file and refer to it with file:PATH",
                )
            if not text.strip() and not isinstance(value, str):
                raise UsageError(f"the handoff's {name} has an empty item", hint="leave it out")
    for reference in document.references:
        parse_reference(reference)


def require_complete(document: Document, session: str) -> None:
    """Refuse to call it complete without a next action.

    Raises:
        UsageError: it has none.
    """
    if not document.next_action.strip():
        raise UsageError(
            f"session {session}: a handoff without a next action is not complete",
            hint=f"krt handoff {session} --next 'what to do first' --complete",
            session=session,
            missing=["next_action"],
        )


# -- references


def parse_reference(text: str) -> Reference:
    """What a reference points at.

    Raises:
        UsageError: it is none; says what was expected.
    """
    kind, colon, what = text.partition(":")
    problem = ""
    if not colon or kind not in REFERENCES:
        problem = f"begins with one of {', '.join(f'{kind}:' for kind in REFERENCES)}"
    elif not what.strip() or "\0" in what:
        problem = f"says which {kind}"
    elif kind == "entry" and not (what.isascii() and what.isdigit()):
        problem = "has the number of an entry, e.g. entry:123"
    elif kind == "name" and not what.isidentifier():
        problem = "has a Python name, e.g. name:df"
    elif kind == "url" and not what.startswith(("http://", "https://")):
        problem = "has a URL, e.g. url:http://127.0.0.1:3000"
    if problem:
        raise UsageError(
            f"{text[:80]!r} is no reference: one {problem}",
            hint="e.g. entry:123, execution:3f2a9c01, name:df, file:out.csv, process:p1",
            reference=text,
        )
    return Reference(kind, what)


def probe_of(reference: Reference) -> str | None:
    """The probe that checks whether it is there; None: the journal tells."""
    what = reference.what
    quoted = '"' + what.replace("\\", "\\\\").replace('"', '\\"') + '"'
    match reference.kind:
        case "name":
            return f"name {what} exists"
        case "file":
            return f"file {quoted} exists"
        case "process":
            return f"process {quoted} runs"
        case "url":
            return f"http answers at {quoted}"
    return None


# -- the next action

_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_CHOICE = ("or", "either", "and/or", "whether", "alternatively", "otherwise")
_PERHAPS = ("maybe", "perhaps", "possibly", "optionally", "if needed", "if necessary", "if possible", "might")
_VAGUE = (
    "etc", "and so on", "and so forth", "as discussed", "as before", "as above", "see above", "tbd", "todo",
    "the rest", "something", "somehow", "whatever", "stuff", "things", "what is left", "where i left off",
)  # fmt: skip
_ONWARD = (
    "continue", "keep going", "go on", "carry on", "proceed", "resume", "finish", "finish up", "wrap up",
    "move on", "keep working", "work on",
)  # fmt: skip
"""a next action that begins so says that work goes on, and not with what"""
_SEVERAL = ("then", "and then", "after that", "afterwards", "next", "finally", "and also")


def ambiguities(action: str) -> list[str]:
    """Why a next action does not say one thing to do; empty when it does. docs/handoff.md has the rule.

    What stands in quotes or backticks is not judged: it is code, or a name.
    """
    text = action.strip()
    if not text:
        return ["there is no next action"]
    found: list[str] = []
    if "\n" in text:
        found.append("it has several lines: one step, in one line")
    plain = _QUOTED.sub(" QUOTED ", text).lower()
    words = re.findall(r"[\w/'-]+", plain)
    if len(words) < 2:
        found.append("one word does not say what to do with what")
    if "?" in plain:
        found.append("it is a question")
    if re.search(r"\.\.\.|…", plain):
        found.append("it ends in dots: what follows is left open")
    if re.match(r"\s*([-*•]|\d+[.)])\s", plain) or ";" in plain or re.search(r"[.!]\s+\w", plain):
        found.append("it is a list, or more than one sentence: one step")
    phrase = f" {' '.join(words)} "
    for what, terms in (
        ("it leaves a choice open", _CHOICE),
        ("it may be done or not", _PERHAPS),
        ("it is vague", _VAGUE),
        ("it has more than one step", _SEVERAL),
    ):
        hit = next((term for term in terms if f" {term} " in phrase), None)
        if hit is not None:
            found.append(f"{what}: {hit!r}")
    for term in sorted(_ONWARD, key=len, reverse=True):
        if phrase.startswith(f" {term} "):
            rest = len(words) - len(term.split())
            # `finish the migration of table users` says what; `continue with it` does not
            if rest < 3:
                found.append(f"{term!r} says that work goes on, not with what")
            break
    return found


# -- as Markdown


def markdown(document: Document, *, session: str, version: int, complete: bool, about: str = "") -> str:
    """The handoff for people; `about` says who wrote it and when."""
    state = "complete" if complete else "not declared complete"
    lines = [f"# Handoff of {session}, version {version} ({state})"]
    if about:
        lines += ["", about]
    lines += ["", "## Goal", "", document.goal or "(not said)"]
    lines += ["", "## Next action", "", document.next_action or "(not said)"]
    for title, items in (
        ("Completed", document.completed),
        ("Risks", document.risks),
        ("References", document.references),
        ("Claims", [f"{claim.text} (`{claim.probe}`, {claim.claim_id})" for claim in document.claims]),
    ):
        if items:
            lines += ["", f"## {title}", "", *(f"- {_item(item)}" for item in items)]
    lines += ["", "## Verification", "", document.verification or "(not said)"]
    if document.observed:
        lines += ["", "## Observed when it was written", "", *_observed(document.observed)]
    return "\n".join(lines) + "\n"


def _item(text: str) -> str:
    return text.replace("\n", "\n  ")


def _observed(observed: Mapping[str, Any]) -> list[str]:
    life = f"incarnation {observed.get('incarnation')}, {observed.get('state')}"
    lines = [f"- session: {life}, kernel {observed.get('kernel')}, cwd {observed.get('cwd')}"]
    if observed.get("notebook"):
        lines.append(f"- notebook: {observed['notebook']}")
    if since := observed.get("since"):
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in (since.get("outcomes") or {}).items())
        first, last = since.get("entries") or (None, None)
        lines.append(f"- entries {first} to {last}: {outcomes or 'nothing ran'}")
    if counts := observed.get("cells"):
        lines.append("- cells: " + ", ".join(f"{n} {truth}" for truth, n in counts.items() if n))
    for row in observed.get("ran") or []:
        who = str(row.get("execution_id"))[:8]
        lines.append(f"- ran: {row.get('outcome')}: {row.get('source')} ({who}) [#{row.get('entry')}]")
    lines += [
        f"- name {row.get('name')}: {row.get('type')}, {row.get('truth')}"
        for row in observed.get("names") or []
    ]
    lines += [f"- alive: {row.get('text')}" for row in observed.get("resources") or []]
    return lines
