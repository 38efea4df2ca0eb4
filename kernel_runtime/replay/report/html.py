"""The page: one file that explains a replay to somebody who was not there. No script, nothing is loaded.

Bounded: `MOST_BYTES` whatever was recorded. Executions that differ are shown first of all, so that what
does not fit is what came out the same; a sentence says what is left out, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernel_runtime.replay.audit import Replayed
from kernel_runtime.replay.plan import Run
from kernel_runtime.replay.report import safe, view
from kernel_runtime.replay.report.history import History, history_of
from kernel_runtime.replay.result import DIFFERENT, NONDETERMINISTIC, NORMALIZED, SAME, SKIPPED
from kernel_runtime.version import __version__

MOST_BYTES = 32 << 20
"""of the file"""
_SLACK = 1 << 18
"""bytes of it for links to the executions that are in it"""
_URGENCY = {DIFFERENT: 0, NONDETERMINISTIC: 0, NORMALIZED: 1, SKIPPED: 2, SAME: 3}


def page(replayed: Replayed, *, by: str = "", history: History | None = None) -> bytes:
    """The page as UTF-8.

    Args:
        replayed: what was replayed, and what came of it.
        by: the principal that asked for the replay.
        history: what else the record tells; None: it is read from the record.
    """
    result, plan, runs = replayed.result, replayed.plan, replayed.runs
    history = history_of(plan) if history is None else history
    templates = _templates()
    first = runs[0] if runs else Run()
    again = [one.step for one in first.ran if one.step is not None]
    rows, more_rows = view.timeline(result, plan, history)
    names, more_names = view.names(result, plan, first.names)
    environment, differences = view.environment(result.environment)
    template = templates.get_template("page.html")
    frame = {
        "headline": view.headline(result),
        "sentence": view.sentence(result),
        "source": result.source,
        "verdict": result.verdict,
        "mark": view.MARKS.get(result.verdict, ""),
        "about": view.about(result, plan, again, by),
        "notes": view.some([*result.notes, *([history.why_none] if history.why_none else [])]),
        "integrity": view.integrity(result, plan, history),
        "sandbox": view.sandbox(result.sandbox),
        "environment": environment,
        "differences": differences,
        "environments": _environments(plan.environment, first.environment),
        "timeline": rows,
        "more_rows": more_rows,
        "names": names,
        "more_names": more_names,
        "compared": bool(result.names),
        "rules": result.rules,
        "version": __version__,
    }
    bare = template.render(frame, shown=(), cells=[], left_out=0)
    cells = _cells(replayed, templates, MOST_BYTES - _SLACK - _size(bare))
    text = template.render(
        frame,
        shown=cells.keys(),
        cells=[cells[row["number"]] for row in result.executions if row["number"] in cells],
        left_out=len(result.executions) - len(cells),
    )
    return _encoded(text)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _size(text: str) -> int:
    return len(_encoded(text))


def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("kernel_runtime.replay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=safe.visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _cells(replayed: Replayed, templates: Environment, left: int) -> dict[int, Markup]:
    """Executions by their number, as they fit into so many bytes.

    What differs is put in whole, then all others without their outputs, then the outputs of these.
    """
    result, plan, runs = replayed.result, replayed.plan, replayed.runs
    template = templates.get_template("cell.html")
    steps = {step.number: step for step in plan.steps}
    replays = [{one.number: one.step for one in run.ran} for run in runs]
    found: dict[int, Markup] = {}

    def put(row: Mapping[str, Any], *, brief: bool) -> bool:
        nonlocal left
        number = row["number"]
        again = [one.get(number) for one in replays]
        text = template.render(cell=view.cell(row, steps[number], again, brief=brief))
        more = _size(text) - _size(found.get(number, ""))
        if more > left:
            return False
        left -= more
        found[number] = Markup(text)  # noqa: S704 - rendered by an escaping template
        return True

    rows = sorted(result.executions, key=lambda row: (_URGENCY.get(row["verdict"], 0), row["number"]))
    ill = [row for row in rows if not _URGENCY.get(row["verdict"], 0)]
    well = rows[len(ill) :]
    if all(put(row, brief=False) or put(row, brief=True) for row in ill):
        briefly = list(takewhile(lambda row: put(row, brief=True), well))
        list(takewhile(lambda row: put(row, brief=False), briefly))
    return found


def _environments(
    recorded: Mapping[str, Any] | None, replayed: Mapping[str, Any] | None
) -> list[tuple[str, str, str]]:
    """Both in a few words, side by side."""
    if recorded is None and replayed is None:
        return []
    was, now = _words(recorded), _words(replayed)
    return [
        (label, was.get(label, "not recorded"), now.get(label, "not recorded")) for label in {**was, **now}
    ]


def _words(environment: Mapping[str, Any] | None) -> dict[str, str]:
    if environment is None:
        return {}
    python, platform = environment.get("python"), environment.get("platform")
    packages, git = environment.get("packages"), environment.get("git")
    told: dict[str, str] = {}
    if isinstance(python, Mapping):
        told["Python"] = f"{python.get('implementation', '')} {python.get('version', '')}".strip()
    if isinstance(platform, Mapping):
        told["Platform"] = view.word(list(platform.values()))
    if isinstance(packages, Mapping):
        told["Packages"] = f"{len(packages):,}"
    if isinstance(git, Mapping):
        told["Git"] = f"{git.get('commit')}{', with changes' if git.get('dirty') else ''}"
    told["Fingerprint"] = str(environment.get("fingerprint") or "none")
    return told
