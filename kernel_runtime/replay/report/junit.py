r"""JUnit XML of a replay, for continuous integration: one test suite, one test case for each execution.

Elements and attributes are those that JUnit's own reporters write, so that every reader knows them. What XML
1.0 cannot hold is written out (`\x1b`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from kernel_runtime.replay.audit import Replayed
from kernel_runtime.replay.plan import Step
from kernel_runtime.replay.report.words import first_line
from kernel_runtime.replay.result import DIFFERENT, NONDETERMINISTIC, SAME, SKIPPED, Result

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FAILURES = (DIFFERENT, NONDETERMINISTIC, "missing", "new")


def document(replayed: Replayed) -> bytes:
    """The XML document, UTF-8 with its declaration."""
    result, plan, runs = replayed.result, replayed.plan, replayed.runs
    steps = {step.number: step for step in plan.steps}
    again = {one.number: one.step for one in runs[0].ran} if runs else {}
    cases = [
        _case(result.source, row, steps[row["number"]], again.get(row["number"])) for row in result.executions
    ]
    cases += [_name(result.source, row) for row in result.names if row["verdict"] != SAME]
    suite = ET.Element(
        "testsuite",
        name=text(f"krt replay {result.source}"),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors="0",
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{result.seconds:.3f}",
    )
    began = [step.started_at for step in again.values() if step is not None and step.started_at is not None]
    if began:
        suite.set("timestamp", datetime.fromtimestamp(min(began) // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    _properties(suite, _of_replay(replayed) | _of_executions(result))
    suite.extend(cases)
    suites = ET.Element("testsuites")
    suites.append(suite)
    return bytes(ET.tostring(suites, encoding="utf-8", xml_declaration=True))


def text(value: str) -> str:
    """The text as XML can hold it."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), value)


def _of_replay(replayed: Replayed) -> dict[str, str]:
    result, plan = replayed.result, replayed.plan
    told = {
        "verdict": result.verdict,
        "kind": result.kind,
        "order": result.order,
        "head": str(plan.head or ""),
        "head_hash": plan.head_hash,
        "integrity": "unknown"
        if result.integrity.get("ok") is None
        else "ok"
        if result.integrity["ok"]
        else "damaged",
        "sandbox": str(result.sandbox.get("kind") or ""),
        "rules": " ".join(result.rules.get("on") or []),
    }
    return {name: value for name, value in told.items() if value}


def _of_executions(result: Result) -> dict[str, str]:
    """Verdict and rules of each: Jenkins' schema allows no properties of a test case."""
    return {
        f"step {row['number']}": ": ".join(
            [row["verdict"], *([" ".join(row["rules"])] if row.get("rules") else [])]
        )
        for row in result.executions
    }


def _properties(parent: ET.Element, values: Mapping[str, str]) -> None:
    properties = ET.SubElement(parent, "properties")
    for name, value in values.items():
        ET.SubElement(properties, "property", name=name, value=text(value))


def _case(source: str, row: Mapping[str, Any], step: Step, replayed: Step | None) -> ET.Element:
    took = replayed.seconds if replayed is not None else None
    name = f"step {row['number']}: {first_line(step.source)}"
    case = ET.Element("testcase", classname=text(source), name=text(name), time=f"{took or 0:.3f}")
    reason = str(row.get("reason") or row["verdict"])
    if row["verdict"] == SKIPPED:
        ET.SubElement(case, "skipped", message=text(reason))
    elif row["verdict"] in _FAILURES:
        failure = ET.SubElement(case, "failure", message=text(reason), type=row["verdict"])
        failure.text = text("\n".join([*map(str, row.get("remarks") or []), str(row.get("diff") or reason)]))
    return case


def _name(source: str, row: Mapping[str, Any]) -> ET.Element:
    """A name at the end that is not the same."""
    case = ET.Element("testcase", classname=text(source), name=text(f"name {row['name']}"), time="0.000")
    reason = str(row.get("reason") or f"at the end it is {row['verdict']}")
    if row["verdict"] in _FAILURES:
        ET.SubElement(case, "failure", message=text(reason), type=row["verdict"]).text = text(reason)
    elif row["verdict"] in (SKIPPED, "unreadable"):
        ET.SubElement(case, "skipped", message=text(reason))
    return case
