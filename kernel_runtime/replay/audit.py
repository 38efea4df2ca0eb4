"""`replay`: the whole of a replay as one call, for programs and for `krt replay`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from kernel_runtime import places
from kernel_runtime.client import session_files
from kernel_runtime.client.kernelspecs import runnable
from kernel_runtime.core.listing import some
from kernel_runtime.errors import Refused, SessionExists, UsageError
from kernel_runtime.replay import workspace
from kernel_runtime.replay.compare import RuleSet, choose
from kernel_runtime.replay.downstream import downstream
from kernel_runtime.replay.driver import Ask, How, Progress, run, with_skips
from kernel_runtime.replay.environment import difference, rebuilt
from kernel_runtime.replay.gaps import with_gaps
from kernel_runtime.replay.leftovers import note_of
from kernel_runtime.replay.plan import Plan, Run, Step
from kernel_runtime.replay.result import Result
from kernel_runtime.replay.sandbox import allowed
from kernel_runtime.replay.sources import load
from kernel_runtime.replay.verdict import judged
from kernel_runtime.replay.what_if import parse_settings, with_settings

_SHOWN = 3


class Replayed(Struct, frozen=True, kw_only=True):
    """A result with what it stands on, for reports: rows and steps have the same numbers."""

    result: Result
    plan: Plan
    runs: list[Run]


def replay(source: str | Path, **how: Unpack[Options]) -> Result:
    """The result of `replayed`, which says what the arguments mean and what is raised."""
    return replayed(source, **how).result


class Options(TypedDict, total=False):
    """How a record is replayed; see `replayed`."""

    order: Literal["executed", "document"] | None
    until: int | None
    keep: str | None
    settings: Mapping[str, Any] | Sequence[str]
    two_times: bool
    rules: RuleSet | None
    inputs: Literal["recorded", "ask", "none"]
    secrets: Literal["ask", "skip"]
    timeout: float | None
    kernel: str | None
    env: Literal["current", "recorded"]
    allow: Sequence[str]
    force: bool
    principal: str | None
    ask: Ask | None
    progress: Progress | None


def replayed(
    source: str | Path,
    *,
    order: Literal["executed", "document"] | None = None,
    until: int | None = None,
    keep: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    two_times: bool = False,
    rules: RuleSet | None = None,
    inputs: Literal["recorded", "ask", "none"] = "recorded",
    secrets: Literal["ask", "skip"] = "skip",
    timeout: float | None = None,
    kernel: str | None = None,
    env: Literal["current", "recorded"] = "current",
    allow: Sequence[str] = (),
    force: bool = False,
    principal: str | None = None,
    ask: Ask | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Run a record's executions again in a fresh kernel and judge each one.

    Args:
        source: a session's name, the path of a `.ipynb` or of a bundle.
        order: `executed`, as they ran, or `document`, from top to bottom; None: as the source tells.
        until: a `seq`: only what had ended by that entry.
        keep: leave a live session of that name in this KRT_HOME, at that point of history. It is not
            confined: it needs `allow=["all"]` if the record shows effects.
        settings: names to set to other values, as a mapping or as `name=literal` texts.
        two_times: run it twice; what differs between the two is `nondeterministic`.
        rules: what the comparison lets pass (`compare.choose`); None: the rules that are on by default.
        inputs: what `input()` gets: the recorded answers, a person's, or none (these steps are not run).
        secrets: whether a person is asked for what the record does not hold, or these steps are not run.
        timeout: seconds for each step, 0 for no bound; by default ten times what was recorded, 60 at least.
        kernel: kernelspec to run it in instead of the recorded one.
        env: run it in the present environment, or in the recorded one, which is built anew (uv).
        allow: what may really happen: `net`, `write:PATH`, `processes`, `all` (replay/sandbox.py).
        force: replay a damaged record too.
        principal: who acts in a session that is kept.
        ask: called with a prompt and whether the answer is hidden; gives the answer, None for end of input.
        progress: called with the number of steps that have ended, and of all.

    Raises:
        NoSuchSession, NoSuchNotebook, NoSuchExecution, InvalidNotebook, UsageError, UnknownKernelSpec.
        SessionExists: a session `keep` is there already; nothing was run.
        Refused: `keep`, and the record shows effects that would happen again.
        JournalCorrupt: the record is damaged, and `force` is false.
        EnvironmentFault: no kernel, no space; nothing is left behind.
    """
    if keep is not None:
        places.check_name(keep)
        if session_files.exists(keep):
            raise SessionExists(
                f"session {keep} exists already; nothing was run",
                hint="--keep makes a new session: choose another name",
                session=keep,
            )
        if two_times:
            raise UsageError("--two-times and --keep exclude each other", hint="a kept session runs once")
    if ask is None and (inputs == "ask" or secrets == "ask"):
        raise UsageError("there is nobody to ask", hint="run it at a terminal, or pass `ask`")
    chosen = settings if isinstance(settings, Mapping) else parse_settings(settings)
    may = allowed(allow)
    workspace.sweep()
    found = load(source, order=order, until=until, force=force)
    plan, put = with_settings(found.plan, chosen)
    if kernel is not None:
        plan = replace(plan, kernel=kernel)
    if plan.kernel != session_files.DEFAULT_KERNEL:
        plan = replace(plan, kernel=runnable(plan.kernel))
    python, missing = (sys.executable, []) if env == "current" else rebuilt(plan.environment)
    how = How(
        inputs=inputs,
        secrets=secrets,
        timeout=timeout,
        keep=keep,
        allowed=may,
        python=python,
        ask=ask,
        progress=progress,
    )
    if keep is not None:
        how = replace(how, principal=principal or places.principal())
    plan = with_skips(plan, how)
    if keep is not None and not may.everything:
        _refuse_effects(plan, keep)
    runs = [run(plan, how)]
    if two_times:
        runs.append(run(plan, how))
    causes = downstream(plan, runs[0].ran)
    plan = with_gaps(plan, runs)
    result = judged(plan, runs, causes, _placed(choose() if rules is None else rules, plan, runs[0]))
    result = replace(
        result,
        integrity=found.integrity,
        settings=put,
        kept=keep,
        environment=difference(plan.environment, runs[0].environment) | {"of": env},
        notes=[*result.notes, *note_of(plan), *missing],
    )
    return Replayed(result=result, plan=plan, runs=runs)


def _placed(rules: RuleSet, plan: Plan, run: Run) -> RuleSet:
    """The rules, with where the cells ran if that was beside the recorded directory."""
    where = run.sandbox.get("cwd", plan.cwd)
    return rules if where == plan.cwd else replace(rules, directory=(plan.cwd, where))


def _refuse_effects(plan: Plan, keep: str) -> None:
    """A kept session is not confined: what its steps do to the world, they do again."""
    acting = [step for step in plan.steps if step.skip is None and not step.injected and _acts(step)]
    if acting:
        shown = some([step.execution_id or step.cell_id or step.number for step in acting], _SHOWN)
        raise Refused(
            f"--keep {keep}: {len(acting)} executions have effects outside the kernel, or may have: "
            f"{shown}; nothing was run",
            hint="a session that stays is not confined: --allow all lets all of it happen again",
            executions=[step.execution_id or step.cell_id for step in acting],
        )


def _acts(step: Step) -> bool:
    """Whether it may do something outside the heap; also where nobody looked."""
    if step.effects is None:
        return True
    declared = step.effects.get("declared")
    return (declared or step.effects.get("verdict")) != "effect-free"
