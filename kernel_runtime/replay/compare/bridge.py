"""What one comparison of two outputs writes down: which rules it needed, and where the outputs differ.

Comparers walk both sides together. Where the two differ they ask whether a rule that is on lets this
difference pass, and say so (`use`), or say that it is a difference (`differ`). Nothing is compared twice
as "normalized text": what a rule passed is known by its place and its two spellings.

A trial that fails is taken back as a whole (`mark`, `take_back`), so that a rule is only told where it
led to an agreement.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kernel_runtime.replay.compare.rules import RuleSet

MAX_EXAMPLE = 160
"""characters of an example"""
MAX_DIFFERENCES = 50
"""differences of one output that are told one by one"""


class Window(Struct, frozen=True):
    """When something ran, UTC nanoseconds: the step itself, and the run up to its end."""

    start: int
    end: int
    since: int
    """when the run began; `start` where that is not known"""


class RuleUse(Struct, kw_only=True, omit_defaults=True):
    """A rule that was needed, with an example of what it let pass."""

    rule: str
    where: str
    """of the example: `stdout`, `error`, a mime type"""
    recorded: str
    replayed: str
    output: int = 0
    """of the example: index in the recorded outputs"""
    count: int = 1
    """how many differences it let pass in that output"""


class Difference(Struct, kw_only=True, omit_defaults=True):
    """One place in which an output differs."""

    where: str
    recorded: str
    replayed: str
    output: int = 0
    why: str = ""
    place: dict[str, Any] = {}
    """for programs: `line`, `row`, `column`, `path`, `pixels`, …"""


class Differs(Exception):
    """The first difference, where only the answer yes or no is wanted."""


class Bridge:
    """Rules, times of both runs, and what was found so far in one pair of outputs.

    With `quick` the first difference raises `Differs`.
    """

    def __init__(
        self,
        rules: RuleSet,
        *,
        recorded: Window | None = None,
        replayed: Window | None = None,
        quick: bool = False,
    ) -> None:
        self.rules = rules
        self.recorded = recorded
        self.replayed = replayed
        self.quick = quick
        self.where = ""
        self.uses: dict[str, RuleUse] = {}
        self.differences: list[Difference] = []
        self.count = 0
        """all differences, also those beyond what is told"""
        self._renamed: dict[str, str] = {}
        self._renamed_back: dict[str, str] = {}

    def on(self, rule: str) -> bool:
        return rule in self.rules.on

    def use(self, rule: str, recorded: str, replayed: str) -> None:
        known = self.uses.get(rule)
        if known is not None:
            known.count += 1
            return
        self.uses[rule] = RuleUse(
            rule=rule, where=self.where, recorded=shorten(recorded), replayed=shorten(replayed)
        )

    def differ(self, recorded: str, replayed: str, *, why: str = "", **place: Any) -> None:
        """Write down a difference.

        Raises:
            Differs: `quick` is on.
        """
        if self.quick:
            raise Differs
        self.count += 1
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(
                Difference(
                    where=self.where,
                    recorded=shorten(recorded),
                    replayed=shorten(replayed),
                    why=why,
                    place=place,
                )
            )

    def rename(self, recorded: str, replayed: str) -> bool:
        """Whether these two are names for one thing, as far as this output shows: one to one."""
        if self._renamed.setdefault(recorded, replayed) != replayed:
            return False
        return self._renamed_back.setdefault(replayed, recorded) == recorded

    def mark(self) -> tuple[Any, ...]:
        uses = {rule: use.count for rule, use in self.uses.items()}
        return uses, len(self.differences), self.count, dict(self._renamed), dict(self._renamed_back)

    def take_back(self, mark: tuple[Any, ...]) -> None:
        """Forget what was found since `mark`."""
        uses, told, self.count, self._renamed, self._renamed_back = mark
        del self.differences[told:]
        self.uses = {rule: self.uses[rule] for rule in uses}
        for rule, count in uses.items():
            self.uses[rule].count = count


def shorten(text: str, limit: int = MAX_EXAMPLE) -> str:
    """The text on one line within `limit` characters, valid UTF-8."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.encode("utf-8", "backslashreplace").decode().replace("\n", "⏎").replace("\r", "␍")
