"""One verdict for each execution, each name, and the whole, from a plan and one or two runs of it.

Worst first: `different`, `nondeterministic` (two runs disagree), `same-normalized` (rules were needed),
`same`; `skipped` says nothing against a record, and nothing for it. An execution is judged by its outcome,
the questions that it asked and its outputs; a name by the digest of its content at the end.

Invariant: no execution is `same` whose outputs were not compared: where they are not (a tag says so, output
is missing from the record, it was redacted), the verdict is `skipped` and its reason says why.

Not promised: that a name without a digest is the same (`unreadable`), nor anything about effects: they are
told beside each other, not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kernel_runtime.replay.compare import Comparison, RuleSet, compare, texts_agree
from kernel_runtime.replay.downstream import Cause
from kernel_runtime.replay.plan import NameDigest, Plan, Ran, Run, Step
from kernel_runtime.replay.result import DIFFERENT, NONDETERMINISTIC, NORMALIZED, SAME, SKIPPED, Result

UNREADABLE, MISSING, NEW = "unreadable", "missing", "new"
"""further verdicts on names: no digest, only in the record, only in the replay"""
_ORDER = (DIFFERENT, NONDETERMINISTIC, NORMALIZED, SAME)
_NAME_WORTH = {MISSING: DIFFERENT, NEW: DIFFERENT}
_MAX_REASON = 300


def judged(
    plan: Plan,
    runs: Sequence[Run],
    causes: Mapping[int, Cause],
    rules: RuleSet | None = None,
) -> Result:
    """The result of one or two runs of a plan. Without `rules`, those that are on by default."""
    rules = RuleSet() if rules is None else rules
    judge = _Judge(plan, runs, rules)
    rows = [
        judge.row(index, step, causes.get(step.number))
        for index, step in enumerate(plan.steps)
        if not step.injected
    ]
    names = judge.names()
    return Result(
        source=plan.source,
        verdict=total(row["verdict"] for row in (*rows, *names)),
        executions=rows,
        names=names,
        kind=plan.kind,
        order=plan.order,
        notes=plan.notes,
        rules=told(rules),
        changed=[
            {
                "execution_id": row["execution_id"],
                "cell_id": row["cell_id"],
                "number": row["number"],
                "because": row["after"],
            }
            for row in rows
            if row["verdict"] in (DIFFERENT, NONDETERMINISTIC)
        ],
        sandbox=runs[0].sandbox if runs else {},
        head=plan.head,
        seconds=sum(run.seconds for run in runs),
    )


def total(verdicts: Any) -> str:
    """The worst of these verdicts; `skipped` only where nothing at all was compared."""
    found = {_NAME_WORTH.get(verdict, verdict) for verdict in verdicts} - {UNREADABLE}
    if found == {SKIPPED}:
        return SKIPPED
    return next((verdict for verdict in _ORDER if verdict in found), SAME)


def told(rules: RuleSet) -> dict[str, Any]:
    """The rules of a result, for who reads it without us."""
    return {"on": sorted(rules.on), "relative": rules.relative, "absolute": rules.absolute}


class _Judge:
    def __init__(self, plan: Plan, runs: Sequence[Run], rules: RuleSet) -> None:
        self._plan = plan
        self._runs = runs
        self._rules = rules
        self._since = _began(plan.steps)
        self._runs_since = [_began(one.step for one in run.ran if one.step is not None) for run in runs]

    def row(self, index: int, step: Step, cause: Cause | None) -> dict[str, Any]:
        """The verdict on one step, with what it stands on."""
        ran = [run.ran[index] for run in self._runs]
        first = ran[0]
        row: dict[str, Any] = {
            "execution_id": step.execution_id,
            "cell_id": step.cell_id,
            "number": step.number,
            "verdict": SAME,
            "rules": [],
            "rule_uses": [],
            "diff": None,
            "differences": [],
            "told": [],
            "reason": None,
            "outcome": {
                "recorded": step.outcome,
                "replayed": first.step.outcome if first.step is not None else None,
            },
            "remarks": [remark for one in ran for remark in one.remarks],
            "asked": [msgspec.to_builtins(asked) for asked in first.asked],
            "after": msgspec.to_builtins(cause) if cause is not None else None,
        }
        if first.step is None:
            return row | {"verdict": SKIPPED, "reason": first.skip or step.skip or "it was not run"}
        if len(ran) > 1:
            apart = self._disagreement(step, first.step, ran[1])
            if apart is not None:
                return row | apart
        return row | self._against_record(step, first.step, first)

    def _disagreement(self, step: Step, first: Step, second: Ran) -> dict[str, Any] | None:
        """How two replays of a step differ from each other."""
        if second.step is None:
            return {
                "verdict": NONDETERMINISTIC,
                "reason": f"only the first of two replays ran it: {second.skip or 'no reason is known'}",
            }
        other = second.step
        found = compare(first, other, self._rules, since=(self._runs_since[0], self._runs_since[1]))
        if first.outcome != other.outcome:
            reason = f"two replays disagree: the first was {_ending(first)}, the second {_ending(other)}"
            return {"verdict": NONDETERMINISTIC, "reason": reason, **_findings(found)}
        if found.verdict == DIFFERENT and step.uncompared is None:
            return {"verdict": NONDETERMINISTIC, "reason": "two replays disagree", **_findings(found)}
        return None

    def _against_record(self, step: Step, replayed: Step, ran: Ran) -> dict[str, Any]:
        if step.outcome is None:
            return {"verdict": SKIPPED, "reason": step.uncompared or "nothing is recorded of it"}
        if step.outcome != replayed.outcome:
            found = compare(step, replayed, self._rules, since=(self._since, self._runs_since[0]))
            reason = f"it was {_ending(step)}, and is {_ending(replayed)}"
            return {**_findings(found), "verdict": DIFFERENT, "reason": reason}
        question = self._question(ran)
        if question is not None:
            return {"verdict": DIFFERENT, "reason": question}
        if step.uncompared is not None:
            return {"verdict": SKIPPED, "reason": step.uncompared}
        found = compare(
            _with_error(step), _with_error(replayed), self._rules, since=(self._since, self._runs_since[0])
        )
        return {**_findings(found), "verdict": found.verdict}

    def _question(self, ran: Ran) -> str | None:
        """What it asked otherwise than when it was recorded."""
        for asked in ran.asked:
            if asked.recorded is None:
                return _short(f"it asks {asked.prompt!r}, a question more than the record has")
            if not texts_agree(asked.recorded, asked.prompt, self._rules):
                return _short(f"it asks {asked.prompt!r}, where it asked {asked.recorded!r}")
        if ran.unasked:
            return _short(f"it does not ask {ran.unasked[0]!r} any more")
        return None

    def names(self) -> list[dict[str, Any]]:
        """The verdict on each name that either ends with; none where nothing tells of names."""
        if self._plan.names is None or self._runs[0].names is None:
            return []
        recorded = {name.name: name for name in self._plan.names}
        replayed = {name.name: name for name in self._runs[0].names}
        again = self._runs[1].names if len(self._runs) > 1 else None
        second = None if again is None else {name.name: name for name in again}
        untold = self._bound_by_skipped()
        rows = []
        for name in sorted(recorded.keys() | replayed.keys()):
            row = _name(recorded.get(name), replayed.get(name))
            other = second.get(name) if second is not None else replayed.get(name)
            if row["verdict"] not in (SAME, UNREADABLE) and name in untold:
                row = {"verdict": SKIPPED, "reason": untold[name]}
            elif _name(replayed.get(name), other)["verdict"] not in (SAME, UNREADABLE):
                row = {"verdict": NONDETERMINISTIC, "reason": "two replays end with other content"}
            if row["verdict"] not in (SAME, UNREADABLE, SKIPPED) and "name-digests" in self._rules.on:
                row = {"verdict": NORMALIZED, "was": row["verdict"], "rules": ["name-digests"]}
            rows.append({"name": name, **row})
        return rows

    def _bound_by_skipped(self) -> dict[str, str]:
        """Names of which one side cannot tell, in the last incarnation, and why.

        A step that was not run had changed them; or a step did of which the record holds no observation,
        since the session was stopped before its kernel had looked.
        """
        found: dict[str, str] = {}
        last = max((step.incarnation for step in self._plan.steps), default=1)
        for index, step in enumerate(self._plan.steps):
            one = self._runs[0].ran[index]
            if step.incarnation != last:
                continue
            if one.step is None:
                why = f"execution {step.number} was not run: {one.skip or step.skip or 'no reason is known'}"
                found |= dict.fromkeys(step.names, why)
            elif not step.observed and not step.injected:
                why = f"the record does not tell what execution {step.number} left: nobody looked"
                found |= dict.fromkeys(one.step.names, why)
            else:
                for name, change in one.step.names.items():
                    if change.get("how") in ("bound", "rebound", "deleted"):
                        found.pop(name, None)
        return found


def _name(recorded: NameDigest | None, replayed: NameDigest | None) -> dict[str, Any]:
    if replayed is None:
        return {"verdict": MISSING if recorded is not None else SAME}
    if recorded is None:
        return {"verdict": NEW}
    if recorded.digest is None or replayed.digest is None:
        why = recorded.why or replayed.why
        return {"verdict": UNREADABLE, "reason": why} if why else {"verdict": UNREADABLE}
    return {"verdict": SAME if recorded.digest == replayed.digest else DIFFERENT}


def _findings(found: Comparison) -> dict[str, Any]:
    return {
        "rules": found.rule_names,
        "rule_uses": [msgspec.to_builtins(use) for use in found.rules],
        "diff": found.diff or None,
        "differences": [msgspec.to_builtins(difference) for difference in found.differences],
        "told": found.told,
    }


def _with_error(step: Step) -> Step:
    """A step whose error is among its outputs, where it is known and they do not show it."""
    if step.error is None or any(output.get("output_type") == "error" for output in step.outputs):
        return step
    return msgspec.structs.replace(step, outputs=[*step.outputs, {"output_type": "error", **step.error}])


def _ending(step: Step) -> str:
    error = step.error or next((one for one in step.outputs if one.get("output_type") == "error"), None)
    if error is None:
        return str(step.outcome)
    return _short(f"{step.outcome} ({error.get('ename')}: {error.get('evalue')})")


def _short(text: str) -> str:
    cut = text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"
    return cut.encode("utf-8", "backslashreplace").decode()


def _began(steps: Any) -> int | None:
    return min((step.started_at for step in steps if step.started_at is not None), default=None)
