"""What the page shows, computed from a replay: sentences, rows and sides, no HTML but what `safe` made.

Pure but for `safe`. Every list is bounded, and says so where it was cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from kernel_runtime.core.outputs import missing
from kernel_runtime.replay.plan import Plan, Step
from kernel_runtime.replay.report.history import History
from kernel_runtime.replay.report.outputs import bounded, json, parts
from kernel_runtime.replay.report.words import first_line
from kernel_runtime.replay.result import DIFFERENT, NONDETERMINISTIC, NORMALIZED, SAME, SKIPPED, Result

MOST_ROWS = 2_000
"""of the timeline, and of the names"""
MOST_LINES = 100
"""of a list of small things: notes, environment, problems"""
MOST_WORDS = 300
"""characters of one of them"""
_MOST_NAME = 80
"""characters in a column of a table"""
CAME_OUT = {
    SAME: "the same",
    NORMALIZED: "the same but for what the rules let pass",
    DIFFERENT: "different",
    NONDETERMINISTIC: "nondeterministic: two replays disagree",
    SKIPPED: "not run or not compared",
    "missing": "not there any more",
    "new": "new",
    "unreadable": "not comparable",
}
MARKS = {SAME: "=", NORMALIZED: "≈", DIFFERENT: "≠", NONDETERMINISTIC: "?", SKIPPED: "-"}
_ORDER = tuple(CAME_OUT)


def sentence(result: Result) -> str:
    """The verdict with its counts."""
    counted = Counter(row["verdict"] for row in result.executions)
    total = len(result.executions)
    told = [f"{counted[verdict]:,} {CAME_OUT[verdict]}" for verdict in _ORDER if counted[verdict]]
    what = f"{total:,} execution{'' if total == 1 else 's'}"
    head = f"Of {what}: {', '.join(told)}." if total else "There are no executions."
    if not result.names:
        return f"{head} Names at the end were not compared."
    names = Counter(row["verdict"] for row in result.names)
    told = [f"{names[verdict]:,} {CAME_OUT[verdict]}" for verdict in _ORDER if names[verdict]]
    what = f"{len(result.names):,} name{'' if len(result.names) == 1 else 's'}"
    return f"{head} Of {what} at the end: {', '.join(told)}."


def headline(result: Result) -> str:
    """The verdict as a sentence begins."""
    return {
        SAME: "It comes out the same",
        NORMALIZED: "It comes out the same, but for what the rules let pass",
        DIFFERENT: "It does not come out the same",
        NONDETERMINISTIC: "It does not come out the same twice",
        SKIPPED: "Nothing was compared",
    }.get(result.verdict, result.verdict)


def moment(at: int | None) -> str:
    """UTC nanoseconds as people read them."""
    if at is None:
        return ""
    try:
        return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at} ns"


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None:
        return ""
    return f"{value:.3f} s" if value < 10 else f"{value:,.1f} s"


def short(text: str, most: int = MOST_WORDS) -> str:
    """The text, or its beginning."""
    return text if len(text) <= most else f"{text[:most]}…"


def some(lines: Iterable[str], most: int = MOST_LINES) -> list[str]:
    """The lines, each bounded, at most so many, and a last one about the rest."""
    found = list(lines)
    shown = [short(line) for line in found[:most]]
    return shown if len(found) <= most else [*shown, f"and {len(found) - most:,} more (--json has them)"]


def about(result: Result, plan: Plan, steps: list[Step], by: str) -> list[tuple[str, str]]:
    """What was replayed: label and text."""
    began = [step.started_at for step in plan.steps if step.started_at is not None and not step.injected]
    ended = [step.finished_at for step in plan.steps if step.finished_at is not None and not step.injected]
    again = [step.started_at for step in steps if step.started_at is not None]
    who = Counter(step.principal for step in plan.steps if step.principal and not step.injected)
    kind = {"journal": "a session's journal", "bundle": "an evidence bundle", "notebook": "a notebook"}
    order = {"executed": "as they ran", "document": "from top to bottom"}
    kernels = len({step.incarnation for step in plan.steps})
    rows = [
        ("Source", f"{result.source} ({kind.get(result.kind, result.kind)})"),
        ("Session", plan.session_id),
        ("Last entry", f"{plan.head:,}" if plan.head else ""),
        ("Its hash", plan.head_hash),
        ("Order", f"{result.order}: {order.get(result.order, '')}"),
        ("Kernel", f"{plan.kernel}, {kernels:,} of them, one after the other"),
        ("Directory", plan.cwd),
        (
            "Recorded",
            f"{moment(min(began))} to {moment(max(ended or began))}" if began else "when is not known",
        ),
        (
            "Recorded by",
            ", ".join(some((f"{name} ({n:,})" for name, n in who.most_common()), 20)) or "not known",
        ),
        ("Replayed", f"{moment(min(again))}, {seconds(result.seconds)}" if again else "nothing was run"),
        ("Replayed by", by),
        (
            "Set to other values",
            ", ".join(some(f"{one.get('name')} = {one.get('value')!r}" for one in result.settings)),
        ),
    ]
    return [(label, short(text)) for label, text in rows if text]


def integrity(result: Result, plan: Plan, history: History) -> list[str]:
    """What is known of the record itself, in sentences."""
    ok = result.integrity.get("ok")
    problems = result.integrity.get("problems")
    if ok:
        told = ["The record was verified: its chain of hashes and what is computed from it hold."]
    elif ok is None:
        told = ["A notebook carries no proof: whether it was changed since it ran cannot be told."]
    else:
        told = ["The record is damaged. What is said here is of what could be read."]
    told += some([str(problem) for problem in problems] if isinstance(problems, list) else [])
    gaps = [step for step in plan.steps if step.gaps]
    if gaps:
        where = ", ".join(some((f"step {step.number}" for step in gaps), 20))
        lost = sum(int(gap.get("messages") or 0) for step in gaps for gap in step.gaps)
        counted = f"{lost:,} messages" if lost else "how much is not known"
        told.append(f"Output is missing from the record, {counted}: {where}.")
    else:
        told.append("No gap is recorded in the output of these executions.")
    redacted = history.of("PayloadRedacted")
    told += some(
        f"{event.principal} at {moment(event.at)}, entry {event.seq}: {event.text}." for event in redacted
    )
    hidden = [step for step in plan.steps if step.redacted]
    if hidden:
        where = ", ".join(some((f"step {step.number} ({', '.join(step.redacted)})" for step in hidden), 20))
        told.append(f"Taken out of the record: {where}.")
    elif not redacted:
        told.append("Nothing was redacted.")
    if plan.kind == "notebook":
        return told
    if history.why_none:
        return [*told, f"Signatures and anchors are not known: {history.why_none}."]
    vouched = history.of("HeadSigned", "HeadAnchored", "HeadWitnessed", "SegmentSealed")
    told += some(f"{event.principal} at {moment(event.at)}: {event.text}." for event in vouched)
    if vouched:
        return [*told, "Whether these hold is said by: krt verify, with --allowed-signers and --anchor."]
    return [
        *told,
        "It was neither signed nor anchored: who holds the file could have written all of it anew.",
    ]


def sandbox(found: Mapping[str, Any]) -> list[str]:
    """What kept the replay from the world, in sentences."""
    kind = str(found.get("kind") or "")
    notes = found.get("notes")
    told = some([str(note) for note in notes] if isinstance(notes, list) else [])
    if not kind:
        return ["What kept the replay from the world is not told.", *told]
    if kind == "none":
        return ["Nothing kept the replay from the world: what it did, it did.", *told]
    boundary = "a security boundary" if found.get("boundary") else "no security boundary"
    return [f"The replay ran behind {kind}, which is {boundary}.", *told]


def environment(found: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, str, str, str]]]:
    """How the environments differ: sentences, and rows of what, recorded, replayed, why.

    Takes `environment.difference` and whatever has more fields or others than that.
    """
    told: list[str] = []
    if found.get("known") is False:
        told.append(
            f"Whether the environments differ is not known: {found.get('why') or 'one is not recorded'}."
        )
    elif found.get("same"):
        told.append("Python, platform and packages are the same as recorded.")
    elif found.get("known"):
        told.append("The environment is not the recorded one.")
    rows: list[tuple[str, str, str, str]] = []
    for part, value in found.items():
        differences = (
            value if isinstance(value, list) and all(isinstance(one, Mapping) for one in value) else []
        )
        for one in differences:
            which = str(one.get("what") or one.get("name") or "")
            sides = word(one.get("recorded")), word(one.get("replayed"))
            rows.append((short(f"{part}: {which}"), *sides, word(one.get("why"), "")))
        if value and not differences and part not in _SAID:
            told.append(f"{part}: {word(value)}")
    left = len(rows) - MOST_LINES
    if left > 0:
        rows = [*rows[:MOST_LINES], ("and more", f"{left:,} rows", "", "--json has them")]
    return some(told, 50), rows


_SAID = ("known", "same", "why", "recorded", "replayed")


def word(value: Any, nothing: str = "none") -> str:
    """Any value in a few words."""
    if value is None:
        return nothing
    if isinstance(value, list | tuple):
        value = ", ".join(word(one) for one in value[:20])
    text = value if isinstance(value, str) else json(value)
    return short(text)


def timeline(result: Result, plan: Plan, history: History) -> tuple[list[dict[str, Any]], int]:
    """Rows in the order of what happened, and how many are left out."""
    verdicts = {row["number"]: row["verdict"] for row in result.executions}
    keyed: list[tuple[tuple[int, int], dict[str, Any]]] = []
    last = 0
    for step in plan.steps:
        last = step.seq if step.seq is not None else last
        keyed.append(((last, step.number), _of_step(step, verdicts.get(step.number))))
    if plan.order == "executed":  # in another order, entries and steps have no common one
        keyed += [
            (
                (event.seq, 0),
                {
                    "event": short(event.text),
                    "at": moment(event.at),
                    "who": short(event.principal, _MOST_NAME),
                },
            )
            for event in history.events
        ]
        keyed.sort(key=lambda row: row[0])
    rows = [row for _, row in keyed]
    left = len(rows) - MOST_ROWS
    if left <= 0:
        return rows, history.left_out
    ill = [at for at, row in enumerate(rows) if row.get("verdict") in (DIFFERENT, NONDETERMINISTIC)]
    first = set(ill[:MOST_ROWS])
    rest = (at for at in range(len(rows)) if at not in first)
    kept = sorted([*first, *islice(rest, MOST_ROWS - len(first))])
    return [rows[at] for at in kept], left + history.left_out


def _of_step(step: Step, verdict: str | None) -> dict[str, Any]:
    return {
        "number": step.number,
        "at": moment(step.started_at),
        "seconds": seconds(step.seconds),
        "who": short(step.principal, _MOST_NAME),
        "kernel": step.incarnation,
        "outcome": short(step.outcome or "not recorded", _MOST_NAME),
        "verdict": verdict or ("set by this replay" if step.injected else ""),
        "code": first_line(step.source),
    }


def cell(
    row: Mapping[str, Any], step: Step, replays: list[Step | None], *, brief: bool = False
) -> dict[str, Any]:
    """One execution: what ran, what is said of it, and, if not `brief`, what came out on each side."""
    first = replays[0] if replays else None
    whole = {
        "number": step.number,
        "name": first_line(step.source),
        "source": bounded(step.source),
        "verdict": row["verdict"],
        "came_out": CAME_OUT.get(row["verdict"], row["verdict"]),
        "mark": MARKS.get(row["verdict"], ""),
        "facts": _facts(row, step, first),
        "remarks": some(_remarks(row), 50),
        "uses": some((_use(use) for use in row.get("rule_uses") or [] if isinstance(use, Mapping)), 50),
        "rules": row.get("rules") or [],
        "diff": bounded(row["diff"]) if row.get("diff") else None,
        "questions": some((_question(one) for one in row.get("asked") or [] if isinstance(one, Mapping)), 50),
        "brief": brief,
        "sides": [],
        "effects": [],
    }
    if brief:
        return whole
    sides = [_side("Recorded", step)]
    if first is not None and _equal(step, first):
        sides[0]["title"] = "Recorded, and replayed without any difference"
    else:
        sides.append(_side("Replayed", first))
    if len(replays) > 1 and replays[1] is not None and (first is None or not _equal(replays[1], first)):
        sides.append(_side("Replayed a second time", replays[1]))
    return {**whole, "sides": sides, "effects": _effects(step, first)}


def _facts(row: Mapping[str, Any], step: Step, replayed: Step | None) -> list[tuple[str, str]]:
    facts = [
        ("Execution", step.execution_id or ""),
        ("Cell", step.cell_id or ""),
        ("By", step.principal),
        ("Began", moment(step.started_at)),
        ("Took", seconds(step.seconds)),
        ("Took in the replay", seconds(replayed.seconds) if replayed is not None else ""),
        ("Kernel", str(step.incarnation)),
        ("Outcome", _outcome(row, step)),
        ("Tags", ", ".join(some(step.tags, 20))),
    ]
    return [(label, short(text)) for label, text in facts if text]


def _outcome(row: Mapping[str, Any], step: Step) -> str:
    told = row.get("outcome")
    again = told.get("replayed") if isinstance(told, Mapping) else None
    was = step.outcome or "not recorded"
    return was if again in (None, was) else f"{was}; in the replay: {again}"


def _remarks(row: Mapping[str, Any]) -> Iterable[str]:
    if row.get("reason"):
        yield str(row["reason"])
    yield from (str(remark) for remark in row.get("remarks") or [])
    after = row.get("after")
    if isinstance(after, Mapping):
        reads = "It reads" if after.get("sure", True) else "It may read"
        names, steps = after.get("names") or [], after.get("steps") or []
        since = ", ".join(some(map(str, steps), 10))
        yield f"{reads} {', '.join(some(map(str, names), 10))}, not as recorded since step {since}"
    yield from (one if isinstance(one, str) else json(one) for one in row.get("told") or [])


def _use(use: Mapping[str, Any]) -> str:
    count = use.get("count", 1)
    times = f", {count:,} times" if isinstance(count, int) and count > 1 else ""
    return f"{use.get('rule')} in {use.get('where')}{times}: {use.get('recorded')} → {use.get('replayed')}"


def _question(asked: Mapping[str, Any]) -> str:
    how = {
        "recorded": "got the recorded answer",
        "person": "a person answered",
        "end": "got the end of input",
        "waited": "nobody answered",
    }
    hidden = " (hidden)" if asked.get("password") else ""
    was = "" if asked.get("recorded") == asked.get("prompt") else f"; recorded was {asked.get('recorded')!r}"
    return f"{asked.get('prompt')!r}{hidden}: {how.get(str(asked.get('how')), asked.get('how'))}{was}"


def _side(title: str, step: Step | None) -> dict[str, Any]:
    if step is None:
        return {"title": title, "parts": [], "notes": ["It was not run."]}
    where = f"{title} output of step {step.number}"
    shown = parts(step.outputs, where)
    if step.error is not None and not any(one.get("output_type") == "error" for one in step.outputs):
        shown += parts([{"output_type": "error", **step.error}], where)
    notes = [
        f"{missing(str(gap.get('reason')), gap.get('messages') or 0, gap.get('bytes') or 0)}."
        for gap in step.gaps
    ]
    if not shown and not notes:
        notes = ["No output."]
    return {"title": title, "parts": shown, "notes": some(notes, 20)}


def _equal(one: Step, two: Step) -> bool:
    return (one.outputs, one.error, one.gaps) == (two.outputs, two.error, two.gaps)


def _effects(step: Step, replayed: Step | None) -> list[tuple[str, list[str]]]:
    sides = [("Recorded effects", step)]
    if replayed is not None and replayed.effects != step.effects:
        sides.append(("Effects of the replay", replayed))
    elif replayed is not None and step.effects is not None:
        sides = [("Effects, recorded and replayed", step)]
    return [(title, _effects_of(one.effects)) for title, one in sides]


def _effects_of(effects: Mapping[str, Any] | None) -> list[str]:
    if effects is None:
        return ["nobody looked"]
    declared = f", declared {effects['declared']}" if effects.get("declared") else ""
    seen = [_effect(one) for one in effects.get("seen") or [] if isinstance(one, Mapping)]
    unseen = [f"there may be more: {why}" for why in effects.get("unseen") or []]
    return some([f"{effects.get('verdict')}{declared}", *seen, *unseen], 30)


def _effect(effect: Mapping[str, Any]) -> str:
    rest = [f"{key} {one if isinstance(one, str) else json(one)}" for key, one in effect.items()]
    head = f"{effect.get('kind')} {effect.get('how')}"
    return ": ".join([head, ", ".join(rest[2:])] if len(rest) > 2 else [head])


def names(result: Result, plan: Plan, ends: list[Any] | None) -> tuple[list[dict[str, str]], int]:
    """Names at the end: those that are not the same first; and how many are left out."""
    was = {one.name: one for one in plan.names or []}
    now = {one.name: one for one in ends or []}
    rows = sorted(result.names, key=lambda row: (row["verdict"] == SAME, row["name"]))
    shown = [
        {
            "name": short(row["name"], _MOST_NAME),
            "verdict": row["verdict"],
            "came_out": CAME_OUT.get(row["verdict"], row["verdict"]),
            "type": _type(was.get(row["name"]), now.get(row["name"])),
            "recorded": _digest(was.get(row["name"])),
            "replayed": _digest(now.get(row["name"])),
            "why": short(
                ", ".join([str(row.get("reason") or ""), *row.get("rules", [])]).strip(", "), _MOST_NAME
            ),
        }
        for row in rows[:MOST_ROWS]
    ]
    return shown, len(rows) - len(shown)


def _type(was: Any, now: Any) -> str:
    found = [one.type for one in (was, now) if one is not None and one.type]
    return short(" → ".join(dict.fromkeys(found)), _MOST_NAME)


def _digest(name: Any) -> str:
    if name is None:
        return "not there"
    return short(name.digest or f"none: {name.why or 'its content cannot be compared'}", _MOST_NAME)
