"""Claims: the questions that a probe can ask, and what an observation says of each.

`core.claim_grammar` makes a question of a probe's text. The supervisor observes, and `judge` holds
the question against what it saw: `true`, `false` or `unknown`, with the evidence.

Invariant: `true` and `false` are said of what was observed and of nothing else; an observation that
could not be made is `unknown`, and its evidence has a `reason`.
Not promised: that the text of a claim and its probe mean the same. Whoever wrote them says so.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kernel_runtime.core.masking import mask_argv, mask_text, mask_value

_REASON = 500
"""letters of what an expression raised"""

Observation = Mapping[str, Any]
"""What was seen, as the parts of `judge` expect it; `{"unknown": REASON, …}` when nothing could be."""
Verdict = tuple[str, dict[str, Any]]
"""`(truth, evidence)`"""

TIMEOUT = 5.0
"""seconds a probe has, unless the claim says otherwise"""
LONGEST_TIMEOUT = 60.0


class Port(Struct, frozen=True):
    """`port [HOST:]NUMBER[/udp] listens`. Without a host: reachable on this machine's loopback."""

    number: int
    host: str = ""
    protocol: str = "tcp"


class Pid(Struct, frozen=True):
    """`pid N is|contains "COMMAND"`, `pid N runs`."""

    pid: int
    how: str
    command: str = ""


class Managed(Struct, frozen=True):
    """`process ID runs`: one that `krt spawn` or `krt term` started."""

    process_id: str


class Name(Struct, frozen=True):
    """`name NAME exists | has N rows | has N columns | is TYPE | == LITERAL`."""

    name: str
    question: str
    """`exists`, `rows`, `columns`, `type`, `equals`"""
    number: int = 0
    text: str = ""
    """the type, or the literal as written"""


class File(Struct, frozen=True):
    """`file PATH exists [sha256 HEX] [N bytes]`, `file PATH missing`."""

    path: str
    exists: bool = True
    sha256: str = ""
    bytes: int | None = None


class Http(Struct, frozen=True):
    """`http STATUS at URL`, `http answers at URL`."""

    url: str
    status: int | None = None


class Environment(Struct, frozen=True):
    """`env NAME is VALUE`, `env NAME exists`: of the kernel's process, now."""

    name: str
    value: str | None = None


class Expression(Struct, frozen=True):
    """`expr PYTHON`: evaluated in the kernel; its author says that it has no side effects."""

    source: str


Probe = Port | Pid | Managed | Name | File | Http | Environment | Expression


def is_cheap(probe: Probe) -> bool:
    """Whether it is answered on this machine, without the kernel and without reading a whole file."""
    return isinstance(probe, Port | Pid | Managed) or (isinstance(probe, File) and not probe.sha256)


def judge(probe: Probe, seen: Observation) -> Verdict:
    """The truth of a probe by what was seen, with its evidence."""
    evidence = {key: value for key, value in seen.items() if key != "unknown" and value is not None}
    if "unknown" in seen:
        return "unknown", {"reason": str(seen["unknown"]), **evidence}
    match probe:
        case Port():
            return _said(bool(seen.get("listening"))), evidence
        case Pid():
            return _judge_pid(probe, seen)
        case Managed():
            return _said(bool(seen.get("alive"))), evidence
        case File():
            return _judge_file(probe, evidence)
        case Http():
            return _judge_http(probe, evidence)
        case Name():
            return _judge_name(probe, evidence)
        case Environment() | Expression():
            return _judge_value(evidence)


def _said(holds: bool) -> str:  # noqa: FBT001 - the one thing it is asked
    return "true" if holds else "false"


def _judge_pid(probe: Pid, seen: Observation) -> Verdict:
    """`seen`: `process` (`start_time`, `boot_id`, `command`) or None, and `meant`: who had this pid then."""
    now, meant = seen.get("process"), seen.get("meant")
    if now is None:
        return "false", {"reason": f"no process {probe.pid}"}
    evidence: dict[str, Any] = {"command": mask_argv(now["command"])}
    if meant is None:
        return "false", {**evidence, "reason": "there was no such process when the claim was made"}
    if (now["start_time"], now["boot_id"]) != (meant.get("start_time"), meant.get("boot_id")):
        return "false", {**evidence, "reason": f"pid {probe.pid} is another process by now"}
    if probe.how == "runs":
        return "true", evidence
    if probe.how == "contains":
        return _said(
            probe.command in shlex.join(now["command"]) or probe.command in " ".join(now["command"])
        ), (evidence)
    if is_command(now["command"], probe.command):
        return "true", evidence
    if probe.command in " ".join(now["command"]):
        evidence["reason"] = "its command line contains that and is not that: say `contains`"
    return "false", evidence


def is_command(argv: list[str], command: str) -> bool:
    """Whether a command line is the one written down; the directory of its program does not count."""
    if " ".join(argv).strip() == command.strip():
        return True
    try:
        meant = shlex.split(command)
    except ValueError:
        return False
    return bool(argv and meant) and [_base(argv[0]), *argv[1:]] == [_base(meant[0]), *meant[1:]]


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _judge_file(probe: File, evidence: dict[str, Any]) -> Verdict:
    """`evidence`: `exists`, and of one that does `kind`, `bytes`, `sha256` where it was asked for."""
    exists = bool(evidence.get("exists"))
    if not probe.exists or not exists:
        return _said(exists == probe.exists), evidence
    if probe.bytes is not None and probe.bytes != evidence.get("bytes"):
        return "false", {**evidence, "reason": f"it has {evidence.get('bytes')} bytes"}
    if probe.sha256:
        if "sha256" not in evidence:
            return "unknown", {"reason": "its content was not read", **evidence}
        if evidence["sha256"] != probe.sha256:
            return "false", {**evidence, "reason": "its content has another sha256"}
    return "true", evidence


def _judge_http(probe: Http, evidence: dict[str, Any]) -> Verdict:
    """`evidence`: `status`, or `error` when whoever listens there (or nobody) gave no answer."""
    status = evidence.get("status")
    if status is None:
        return "false", evidence
    return _said(probe.status is None or status == probe.status), evidence


def _judge_name(probe: Name, evidence: dict[str, Any]) -> Verdict:
    """`evidence`: what `describe` of the kernel says of it."""
    literal, why = evidence.pop("literal", None), evidence.pop("why", None)
    evidence.pop("name", None)
    if not evidence.get("exists"):
        evidence.setdefault("reason", f"no name {probe.name}")
        return "false", evidence
    if probe.question == "exists":
        return "true", evidence
    if probe.question in ("rows", "columns"):
        found = evidence.get(probe.question)
        if not isinstance(found, int):
            why = f"how many {probe.question} a {evidence.get('type')} has is not known: say it with `expr`"
            return "unknown", {"reason": why, **evidence}
        return _said(found == probe.number), evidence
    if probe.question == "type":
        full = str(evidence.get("type", ""))
        last, root = full.rpartition(".")[2], full.partition(".")[0]
        # as people import it: libraries define their types in modules that they move about
        return _said(probe.text in (full, last, f"{root}.{last}")), evidence
    if not isinstance(literal, str):
        reason = why or f"a {evidence.get('type')} is not compared with a literal: say it with `expr`"
        return "unknown", {"reason": str(reason), **evidence}
    try:
        same = ast.literal_eval(literal) == ast.literal_eval(probe.text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return "unknown", {"reason": "its value cannot be read back", **evidence}
    return _said(bool(same)), {**evidence, "value": mask_value(probe.name, _short(literal))}


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


_BOOLS = {"True": True, "False": False, "np.True_": True, "np.False_": False}


def _judge_value(evidence: dict[str, Any]) -> Verdict:
    """`evidence`: `value`, `repr`, `type`, `error` as the kernel evaluated it."""
    error = evidence.get("error")
    given = evidence.pop("repr", None)
    if error:
        return "unknown", {"reason": f"it raised {mask_text(str(error))[:_REASON]}"}
    value = evidence.get("value")
    if not isinstance(value, bool):
        value = _BOOLS.get(str(given))
    if value is None:
        why = f"it gave a {evidence.get('type')}, neither True nor False: write what should hold of it"
        return "unknown", {"reason": why, "gave": mask_text(_short(str(given)))}
    return _said(value), {"value": value}
