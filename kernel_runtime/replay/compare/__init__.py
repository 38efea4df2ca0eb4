"""Whether what an execution showed when it was recorded is what it shows when it runs again.

`compare(recorded, replayed, rules)` gives `same` (equal), `same-normalized` (equal by rules, which are
named) or `different` (with a diff). Outputs are compared as what they are: text by words and numbers,
tables by cells, JSON and HTML by structure, images by pixels, errors by their frames.

Laws: a step compared with itself is `same`; the verdict does not depend on which side is which; what is
`same` without rules is `same` with any; the rules that are told suffice, and none of them can be left out.
Never raises on what a notebook can hold, and takes time linear in it, apart from the diff, which is bounded.

Pure: no file, no network, no clock. Not promised: that every difference that does not matter has a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from kernel_runtime.replay.compare import differences, values
from kernel_runtime.replay.compare.bridge import Bridge, Difference, RuleUse, Window
from kernel_runtime.replay.compare.outputs import Unit, by_stream, units
from kernel_runtime.replay.compare.outputs import compare as compare_units
from kernel_runtime.replay.compare.rules import NAMES, RULES, STRICT, Rule, RuleSet, choose
from kernel_runtime.replay.compare.text import attempt
from kernel_runtime.replay.plan import Output, Step

__all__ = [
    "NAMES",
    "RULES",
    "STRICT",
    "Comparison",
    "Difference",
    "Rule",
    "RuleSet",
    "RuleUse",
    "Window",
    "choose",
    "compare",
    "compare_outputs",
    "texts_agree",
]

_MAX_USES = 200
_MAX_TOLD = 20


class Comparison(Struct, kw_only=True, omit_defaults=True):
    """What came of holding one step's two outputs against each other."""

    verdict: str
    """`same`, `same-normalized`, `different`"""
    rules: list[RuleUse] = []
    """those that were needed, per output, with an example; of outputs that agree"""
    diff: str = ""
    """for people; empty if nothing differs"""
    differences: list[Difference] = []
    """the same for programs, the first of them"""
    told: list[str] = []
    """what else is not the same and is never compared: execution counts, metadata"""

    @property
    def rule_names(self) -> list[str]:
        return sorted({use.rule for use in self.rules})


def compare(
    recorded: Step,
    replayed: Step,
    rules: RuleSet | None = None,
    *,
    since: tuple[int | None, int | None] = (None, None),
) -> Comparison:
    """Compare the outputs of a step with those of its replay. Outcomes are for `verdict`.

    `since` is when the record and the replay began (UTC nanoseconds): a time that a step shows may be that
    of an earlier one.
    """
    found = compare_outputs(
        recorded.outputs,
        replayed.outputs,
        rules,
        windows=(window(recorded, since[0]), window(replayed, since[1])),
    )
    if recorded.execution_count != replayed.execution_count:
        found.told.insert(0, f"execution count {recorded.execution_count} is {replayed.execution_count}")
    return found


def compare_outputs(
    recorded: Sequence[Output],
    replayed: Sequence[Output],
    rules: RuleSet | None = None,
    *,
    windows: tuple[Window | None, Window | None] = (None, None),
) -> Comparison:
    """Compare two lists of nbformat outputs. Without `rules`, those that are on by default."""
    rules = RuleSet() if rules is None else rules
    return _Lists(units(recorded), units(replayed), rules, windows).comparison(_told(recorded, replayed))


def texts_agree(recorded: str, replayed: str, rules: RuleSet | None = None) -> bool:
    """Whether two texts beside the outputs (a prompt, a message) are the same by the rules."""
    stream = [{"output_type": "stream", "name": "stdout", "text": text} for text in (recorded, replayed)]
    return compare_outputs(stream[:1], stream[1:], rules).verdict != "different"


def window(step: Step, since: int | None = None) -> Window | None:
    """When a step ran, as far as it is known."""
    if step.started_at is None:
        return None
    start = step.started_at
    return Window(start, max(start, step.finished_at or start), min(start, since or start))


class _Lists:
    def __init__(
        self,
        recorded: list[Unit],
        replayed: list[Unit],
        rules: RuleSet,
        windows: tuple[Window | None, Window | None],
    ) -> None:
        self._recorded = recorded
        self._replayed = replayed
        self._rules = rules
        self._windows = windows

    def comparison(self, told: list[str]) -> Comparison:
        pairs = _pairs(self._recorded, self._replayed)
        if pairs is not None and (found := self._agreement(pairs)) is not None:
            return _agreed(found, told)
        if "interleaving" in self._rules.on and _has_both_streams(self._recorded):
            grouped = _pairs(by_stream(self._recorded), by_stream(self._replayed))
            if grouped is not None and (found := self._agreement(grouped)) is not None:
                one, two = (_order(found_units) for found_units in (self._recorded, self._replayed))
                use = RuleUse(rule="interleaving", where="stdout, stderr", recorded=one, replayed=two)
                return _agreed([use, *found], told)
            pairs = grouped if pairs is None else pairs
        return self._disagreement(pairs, told)

    def _agreement(self, pairs: list[tuple[Unit, Unit]]) -> list[RuleUse] | None:
        """The rules that make all pairs agree, as few as do; None where they do not."""
        apart = [(one, two) for one, two in pairs if not _equal(one, two)]
        found = self._uses(apart, self._rules)
        if found is None:
            return None
        enough = self._rules.only({use.rule for use in found})
        if len(enough.on) > 1:
            for rule in sorted(enough.on):
                fewer = self._uses(apart, enough.without(rule))
                if fewer is not None:
                    enough = enough.without(rule)
                    found = fewer
        return found

    def _uses(self, pairs: list[tuple[Unit, Unit]], rules: RuleSet) -> list[RuleUse] | None:
        found: list[RuleUse] = []
        for one, two in pairs:
            bridge = self._bridge(rules)
            if not attempt(bridge, lambda a=one, b=two, on=bridge: compare_units(on, a, b)):  # type: ignore[misc]
                return None
            for use in bridge.uses.values():
                use.output = one.index
                found.append(use)
        return found

    def _bridge(self, rules: RuleSet) -> Bridge:
        return Bridge(rules, recorded=self._windows[0], replayed=self._windows[1])

    def _disagreement(self, pairs: list[tuple[Unit, Unit]] | None, told: list[str]) -> Comparison:
        if pairs is None:
            listed = differences.of_lists(self._recorded, self._replayed)
            parts = [
                "\n".join(
                    [
                        f"@@ {one.why} @@",
                        *([f"-{one.recorded}"] * bool(one.recorded)),
                        *([f"+{one.replayed}"] * bool(one.replayed)),
                    ]
                )
                for one in listed
            ]
            return Comparison(
                verdict="different", diff=differences.bounded(parts), differences=listed, told=told
            )
        uses: list[RuleUse] = []
        listed, parts = [], []
        for one, two in pairs:
            bridge = self._bridge(self._rules)
            compare_units(bridge, one, two)
            if bridge.count:
                for difference in bridge.differences:
                    difference.output = one.index
                listed += bridge.differences
                parts.append(differences.of_pair(bridge, one, two))
            else:
                agreed = self._agreement([(one, two)]) or []
                uses += agreed
        return Comparison(
            verdict="different",
            rules=uses[:_MAX_USES],
            diff=differences.bounded(parts),
            differences=listed[:_MAX_USES],
            told=told,
        )


def _pairs(recorded: list[Unit], replayed: list[Unit]) -> list[tuple[Unit, Unit]] | None:
    """Outputs side by side, or None where their number, kind or mime types differ."""
    if len(recorded) != len(replayed):
        return None
    pairs = list(zip(recorded, replayed, strict=True))
    return pairs if all(one.shape() == two.shape() for one, two in pairs) else None


def _equal(one: Unit, two: Unit) -> bool:
    """Whether two outputs of one shape are equal texts. JSON is not asked: there, `1 == True`."""
    if one.kind == "stream":
        return one.text == two.text
    if one.kind == "error":
        return one.data == two.data
    both = (*one.data.values(), *two.data.values())
    return one.kind != "other" and all(isinstance(value, str) for value in both) and one.data == two.data


def _agreed(found: list[RuleUse], told: list[str]) -> Comparison:
    verdict = "same-normalized" if found else "same"
    return Comparison(verdict=verdict, rules=found[:_MAX_USES], told=told)


def _has_both_streams(found: list[Unit]) -> bool:
    return len({unit.name for unit in found if unit.kind == "stream"}) > 1


def _order(found: list[Unit]) -> str:
    return ", ".join(unit.label() for unit in found[:12])[:160]


def _told(recorded: Sequence[Output], replayed: Sequence[Output]) -> list[str]:
    """What differs beside the content of outputs."""
    if len(recorded) != len(replayed):
        return []
    told: list[str] = []
    for index, (one, two) in enumerate(zip(recorded, replayed, strict=True)):
        if len(told) >= _MAX_TOLD:
            break
        if not values.equal(_metadata(one), _metadata(two)):
            told.append(f"metadata of output {index} differs")
    return told


def _metadata(output: Any) -> Any:
    return (output.get("metadata") or None) if isinstance(output, dict) else None
