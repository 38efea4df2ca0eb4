"""Whether an execution had effects on the world outside the heap, by what was observed and declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernel_runtime.model.facts import EffectsObserved, ExecutionObserved

EFFECT_FREE, EFFECTFUL, DECLARED = "effect-free", "effectful", "declared"


def verdict(effects: Sequence[dict[str, Any]], unseen: Sequence[str], declared: str | None) -> str:
    """`effect-free`, `effectful`, or `declared` where its author said which.

    Effect-free needs that none was seen and that nothing hints at one that was not. That a native
    extension was imported hints at nothing: it is a caveat, and stays in `unseen`.
    """
    if declared in (EFFECT_FREE, EFFECTFUL):
        return DECLARED
    hints = [why for why in unseen if not why.startswith("extension:")]
    return EFFECTFUL if effects or hints else EFFECT_FREE


def effects_document(facts: Iterable[ExecutionObserved | EffectsObserved]) -> dict[str, Any] | None:
    """`{"verdict", "declared", "seen", "unseen"}` of one execution; None while nobody has looked.

    `seen` are its effects, those of threads it left behind included (docs/effects.md).
    """
    observed = False
    declared: str | None = None
    seen: list[dict[str, Any]] = []
    unseen: list[str] = []
    for fact in facts:
        seen += fact.effects
        if isinstance(fact, ExecutionObserved):
            observed = True
            declared = fact.declared
            unseen += fact.unseen
    if not observed:
        return None
    return {
        "verdict": verdict(seen, unseen, declared),
        "declared": declared,
        "seen": seen,
        "unseen": unseen,
    }
