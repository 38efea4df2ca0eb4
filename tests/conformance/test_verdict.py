"""The law that conformance runs are held to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.__main__ import _as_counted
from tests.conformance.suites import Suite, exemptions, read_report, suites
from tests.conformance.verdict import FAILED, MISSING, PASSED, SKIPPED, UNSTEADY, Exemption, judge


@pytest.mark.parametrize(
    "theirs,mine,fine",
    [
        (PASSED, PASSED, True),
        (PASSED, UNSTEADY, True),
        (PASSED, FAILED, False),
        (PASSED, SKIPPED, False),
        (PASSED, None, False),
        (UNSTEADY, FAILED, False),
        (FAILED, FAILED, True),
        (FAILED, PASSED, True),
        (FAILED, None, True),
        (SKIPPED, SKIPPED, True),
        (SKIPPED, PASSED, True),
        (SKIPPED, FAILED, False),
    ],
)
def test_what_stock_does_ours_does(theirs: str, mine: str | None, fine: bool) -> None:
    verdict = judge("s", {"t": theirs}, {} if mine is None else {"t": mine}, [])
    assert verdict.ok is fine
    if not fine:
        assert verdict.regressions == [f"t ({theirs} on stock, {mine or MISSING} here)"]


def test_an_exception_covers_its_tests_and_is_reported() -> None:
    exemption = Exemption("s", "a.py::test_x*", "why")
    verdict = judge("s", {"a.py::test_x[1]": PASSED}, {"a.py::test_x[1]": FAILED}, [exemption])
    assert verdict.ok
    assert verdict.excepted == {"a.py::test_x[1]": "why"}


def test_an_exception_that_covers_nothing_has_to_go() -> None:
    verdict = judge(
        "s", {"t": PASSED}, {"t": PASSED}, [Exemption("s", "t", "why"), Exemption("other", "t", "why")]
    )
    assert not verdict.ok
    assert verdict.unused == ["t"]


def test_a_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase file="tests/a.py" classname="tests.a.TestX" name="one"/>'
        '<testcase file="tests/a.py" classname="tests.a" name="two"><failure/></testcase>'
        '<testcase file="tests/a.py" classname="tests.a" name="three"><skipped/></testcase>'
        '<testcase file="tests/a.py" classname="tests.a" name="four"/>'
        '<testcase file="tests/a.py" classname="tests.a" name="four"><error/></testcase>'
        "</testsuite></testsuites>"
    )
    assert read_report(report) == {
        "tests/a.py::TestX::one": PASSED,
        "tests/a.py::two": FAILED,
        "tests/a.py::three": SKIPPED,
        "tests/a.py::four": FAILED,
    }


def test_every_exception_names_a_suite_and_a_reason() -> None:
    assert all(e.suite in suites() and e.test and e.reason for e in exemptions())


def test_where_stock_is_not_run_a_test_that_is_not_there_is_missed() -> None:
    """A suite of which nothing was collected has no failures, and is not well for that."""
    suite = Suite(name="some", version="1", sha256="", tests=[], passed=3)
    whole = {"a": "passed", "b": "passed", "c": "passed", "d": "skipped"}
    assert judge("some", _as_counted(suite, whole), whole, []).ok
    for ours in ({}, {"a": "passed", "b": "passed"}, {**whole, "c": "failed"}):
        assert not judge("some", _as_counted(suite, ours), ours, []).ok
