"""What if a name had had another value: `--set name=value` puts one more step into the plan.

Where: after each cell tagged `parameters` (papermill's word); without one, after the first step of each
incarnation that binds the name; without one of these, before the first step, which is told. A value is a
Python literal: it is written into the source as Python writes it, and nothing in it is ever called.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from kernel_runtime.errors import UsageError
from kernel_runtime.replay.plan import Plan, Step

TAG = "parameters"
_BINDS = ("bound", "rebound")


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["rate=0.2", "names=['a']"]` as values by name.

    Raises:
        UsageError: no name, no `=`, a value that is no literal, or a name given twice.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier() or keyword.iskeyword(name):
            raise UsageError(
                f"--set {setting!r} does not set a name", hint="as in --set rate=0.2 or --set city=\"'Oslo'\""
            )
        if name in found:
            raise UsageError(f"--set names {name} twice", hint="a name has one value")
        try:
            found[name] = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise UsageError(
                f"--set {name}: {text.strip()!r} is no Python literal",
                hint="a number, a quoted text, a list, dict, set or tuple of these, True, False or None; "
                f"for a text: --set {name}=\"'{text.strip()}'\"",
                name=name,
            ) from None
    return found


def with_settings(plan: Plan, settings: Mapping[str, Any]) -> tuple[Plan, list[dict[str, Any]]]:
    """The plan with steps that set these names, and where each was put.

    Returns:
        The plan, its steps numbered anew, and `[{"name", "value", "number", "after", "why"}]`: the number
        of the step that sets it, and of the step before that, None at the beginning.

    Raises:
        UsageError: the kernel does not speak Python.
    """
    if not settings:
        return plan, []
    if plan.language not in ("", "python", "ipython"):
        raise UsageError(
            f"--set writes Python, and the kernel of {plan.source} speaks {plan.language}",
            hint="change the source and run it in a session",
        )
    put: dict[int, list[tuple[str, str]]] = {}
    for name in settings:
        for place, why in _places(plan.steps, name):
            put.setdefault(place, []).append((name, why))
    steps: list[Step] = []
    told: list[dict[str, Any]] = []
    number_of = {0: 0}
    for step in [Step(number=0), *plan.steps]:
        place = step.number
        if place:
            steps.append(replace(step, number=len(steps) + 1))
            number_of[place] = len(steps)
        chosen = put.get(place, [])
        if chosen:
            nearest = step if place else (plan.steps[0] if plan.steps else step)
            source = "\n".join(f"{name} = {settings[name]!r}" for name, _ in chosen)
            steps.append(
                Step(
                    number=len(steps) + 1,
                    incarnation=nearest.incarnation,
                    source=source,
                    injected=True,
                    names={name: {"how": "bound"} for name, _ in chosen},
                )
            )
            told += [
                {
                    "name": name,
                    "value": settings[name],
                    "number": len(steps),
                    "after": number_of[place] or None,
                    "why": why,
                }
                for name, why in chosen
            ]
    for step in steps:
        step.waits = [replace(wait, number=number_of[wait.number]) for wait in step.waits]
    waits = [replace(wait, number=number_of[wait.number]) for wait in plan.waits]
    return replace(plan, steps=steps, waits=waits), told


def _places(steps: Sequence[Step], name: str) -> list[tuple[int, str]]:
    """Numbers of the steps after which the name is set, 0 for the beginning; each with the reason."""
    tagged = [step.number for step in steps if TAG in step.tags and step.skip is None]
    if tagged:
        return [(number, f"the cell is tagged {TAG}") for number in tagged]
    first: dict[int, int] = {}
    for step in steps:
        if step.skip is None and step.incarnation not in first and _binds(step, name):
            first[step.incarnation] = step.number
    if first:
        return [(number, f"it binds {name} first") for number in first.values()]
    return [(0, f"no cell is tagged {TAG}, and none is known to bind {name}")]


def _binds(step: Step, name: str) -> bool:
    if step.observed:
        return step.names.get(name, {}).get("how") in _BINDS
    return name in _bound_in(step.source)


def _bound_in(source: str) -> set[str]:
    """Names that a cell's own level binds, as its text tells; magics and shell lines tell nothing."""
    plain = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
    try:
        tree = ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    left: list[ast.AST] = list(tree.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            left += ast.iter_child_nodes(node)
    return found
