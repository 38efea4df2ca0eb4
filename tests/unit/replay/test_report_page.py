"""The page and the JUnit document of a replay: what they say, and how large they get."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from kernel_runtime.errors import MissingPackage, UsageError
from kernel_runtime.replay import report
from kernel_runtime.replay.audit import Replayed
from kernel_runtime.replay.plan import Ran, Run, Step
from kernel_runtime.replay.report import html, junit, view
from kernel_runtime.replay.report.history import Event, History
from kernel_runtime.replay.verdict import judged
from tests.unit.replay.report_samples import display, history, hostile, ordinary, printed, replayed, step


def shown(found: Any, **how: Any) -> str:
    return html.page(found, **({"history": History()} | how)).decode()


def section(page: str, name: str) -> str:
    """The text of a section, without its tags."""
    (body,) = re.findall(rf'<h2 id="{name}">(.*?)(?:<h2|</main>)', page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_the_verdict_is_on_top_in_one_sentence() -> None:
    page = shown(ordinary())
    top = page[: page.index("</header>")]
    assert "It does not come out the same" in top
    told = "Of 8 executions: 3 the same, 1 the same but for what the rules let pass, 3 different, "
    assert told + "1 not run or not compared. Of 1 name at the end: 1 different." in top


def test_what_was_replayed_and_what_is_known_of_it() -> None:
    page = shown(ordinary(), by="human:b", history=history())
    about = section(page, "about")
    for told in (
        "ab" * 32,
        "1,000",
        "executed: as they ran",
        "agent:a (7), human:b (1)",
        "Replayed by human:b",
    ):
        assert told in about
    record = section(page, "integrity")
    for told in (
        "The record was verified",
        "3 messages: step 8",
        "human:b at 2023-11-14 22:13:28 UTC, entry 81: redacted (text): a password",
        "signed up to entry 80",
        "krt verify",
    ):
        assert told in record
    assert "bubblewrap, which is a security boundary. the directory was copied" in section(page, "sandbox")
    assert "packages: numpy 1.26 2.0 version" in section(page, "environment")
    assert "int d1 d2" in section(page, "names")


def test_the_timeline_has_the_kernels_end_in_its_place() -> None:
    line = section(shown(ordinary(), history=history()), "timeline")
    order = ["kernel 1 started", "cell(1)", "cell(6)", "kernel 1 died (signal 9)", "cell(7)", "cell(8)"]
    places = [line.index(one) for one in order]
    assert places == sorted(places)


def test_equal_outputs_are_shown_once() -> None:
    page = shown(replayed([(step(1, printed("once\n")), step(1, printed("once\n")))]))
    assert page.count("once\n") == 1
    assert "Recorded, and replayed without any difference" in page


def test_two_replays_stand_beside_the_record() -> None:
    record, first, second = (step(1, printed(f"{word}\n")) for word in ("was", "one", "two"))
    found = replayed([(record, first)])
    found.runs.append(Run(ran=[Ran(number=1, step=second)]))
    page = shown(Replayed(result=judged(found.plan, found.runs, {}), plan=found.plan, runs=found.runs))
    assert "It does not come out the same twice" in page
    body = section(page, "executions")
    assert "Recorded stdout was Replayed stdout one Replayed a second time stdout two" in body


def test_what_was_set_is_in_the_timeline_and_is_no_execution() -> None:
    pairs: list[tuple[Step, Step | None]] = [
        (step(1), step(1)),
        (step(2, injected=True), step(2)),
        (step(3), step(3)),
    ]
    found = replayed(pairs)
    found.result.settings = [{"name": "rate", "value": 0.2, "number": 2, "after": 1, "why": "a tag"}]
    page = shown(found)
    assert "rate = 0.2" in section(page, "about")
    assert "set by this replay cell(2)" in section(page, "timeline")
    assert re.findall(r'<article id="step-(\d+)"', page) == ["1", "3"]


def test_a_long_timeline_keeps_what_differs() -> None:
    pairs: list[tuple[Step, Step | None]] = [(step(n), step(n)) for n in range(1, view.MOST_ROWS + 100)]
    pairs.append((step(9999, printed("a\n")), step(9999, printed("b\n"))))
    found = replayed(pairs)
    rows, left = view.timeline(found.result, found.plan, History())
    assert (len(rows), left) == (view.MOST_ROWS, 100)
    assert rows[-1]["number"] == 9999
    assert [row["number"] for row in rows[:3]] == [1, 2, 3]


def test_a_notebook_proves_nothing_and_a_damaged_record_is_called_so() -> None:
    found = ordinary()
    found.result.integrity = {"ok": False, "problems": ["entry 3: its hash is another one"]}
    assert "The record is damaged" in section(shown(found), "integrity")
    assert "entry 3: its hash is another one" in section(shown(found), "integrity")
    found.result.integrity = {"ok": None, "problems": []}
    assert "cannot be told" in section(shown(found), "integrity")
    found.result.sandbox = {"kind": "none", "boundary": False, "notes": []}
    assert "Nothing kept the replay from the world" in section(shown(found), "sandbox")


@pytest.mark.parametrize(
    "environment",
    [{}, {"known": False, "why": "no"}, {"a": {"b": [1, {"c": None}]}}, {"packages": [1]}, {"python": [{}]}],
)
def test_any_shape_of_environment_is_shown(environment: dict[str, Any]) -> None:
    found = ordinary()
    found.result.environment = environment
    assert section(shown(found), "environment")


def test_nothing_hostile_is_markup() -> None:
    page = shown(hostile(), by="<script>")
    assert not re.search(
        r"<(?:script|iframe|svg|math|style(?! *>\n:root)|link|form|object|embed|base)\b", page
    )
    body = page[page.index("<body") :]
    assert not re.search(r"<[^>]*\s(?:on\w+|style|srcset|href=\"(?!#))", body)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


@pytest.mark.parametrize("most", [html.MOST_BYTES, 2 << 20])
def test_a_thousand_cells_of_ten_megabytes_fit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output is cut with a sentence; what differs is in it, whatever else is not."""
    monkeypatch.setattr(html, "MOST_BYTES", most)
    cells = 1000
    large = "<x>\n" * 2_500_000
    pairs: list[tuple[Step, Step | None]] = [
        (step(n, printed(large)), step(n, printed(large))) for n in range(1, cells)
    ]
    pairs.append((step(cells, printed("this\n")), step(cells, printed("other\n"))))
    found = replayed(pairs)
    page = html.page(found, history=History())
    assert len(page) < most
    text = page.decode()
    assert "9,980,000 characters are left out here" in text
    assert f'id="step-{cells}"' in text
    assert text.count("<article") == cells
    assert "Its outputs and effects are left out" in text


def test_executions_that_do_not_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs is there, though it ran last."""
    monkeypatch.setattr(html, "MOST_BYTES", html._SLACK + 150_000)
    pairs: list[tuple[Step, Step | None]] = [(step(n, source="y" * 9_000), step(n)) for n in range(1, 51)]
    pairs.append((step(51, printed("this\n")), step(51, printed("other\n"))))
    page = html.page(replayed(pairs), history=History())
    assert len(page) < html.MOST_BYTES
    text = page.decode()
    assert 'id="step-51"' in text
    shown = text.count("<article")
    assert 5 < shown < 20
    assert f"{51 - shown} executions are left out: this file has reached its size" in text
    assert '<a href="#step-51">' in text
    assert '<a href="#step-50">' not in text


@pytest.mark.slow
def test_the_frame_stays_within_its_part() -> None:
    """Names and rows as many and as long as they may get."""
    wide = "\u202e" * 5000
    pairs: list[tuple[Step, Step | None]] = [
        (step(n, execution_id=wide, source=wide, principal=wide), None) for n in range(1, 6001)
    ]
    found = replayed(pairs)
    found.result.names = [{"name": wide, "verdict": "different", "reason": wide}] * 6000
    found.result.notes = found.result.sandbox["notes"] = [wide] * 6000
    found.result.environment = {"packages": [{"name": wide, "recorded": wide, "replayed": wide}] * 6000}
    events = [Event(seq=n, at=n, principal=wide, kind="KernelDied", text=wide) for n in range(2000)]
    page = html.page(found, by=wide, history=History(events=events))
    assert len(page) < html.MOST_BYTES
    assert "6,000 rows are left out here" in page.decode()
    assert "4,000 names are left out here" in page.decode()


def test_what_is_missing_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("nh3", "PIL") else there(name)
    )
    with pytest.raises(MissingPackage, match="nh3, pillow") as caught:
        report.check_packages()
    assert caught.value.hint == "pip install 'kernel-runtime[replay]'"


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    report.check_places(None, tmp_path / "r.html")
    for path in (tmp_path, tmp_path / "no" / "r.html"):
        with pytest.raises(UsageError, match=re.escape(str(path))):
            report.check_places(path)


# -- JUnit

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase"},
    "properties": {"property"},
    "property": set(),
    "testcase": {"failure", "skipped"},
    "failure": set(),
    "skipped": set(),
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "skipped": {"message"},
}
"""of the schema that Jenkins' xUnit plugin publishes as junit-10.xsd, what a document of ours uses"""


def suite(found: Any) -> ET.Element:
    """The one suite of a document, whose elements are all where the schema has them."""
    root = ET.fromstring(junit.document(found))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        assert REQUIRED.get(element.tag, set()) <= element.attrib.keys()
    (one,) = root
    assert re.fullmatch(r"\d+\.\d{3}", one.attrib["time"])
    cases = one.findall("testcase")
    assert int(one.attrib["tests"]) == len(cases)
    assert int(one.attrib["failures"]) == sum(case.find("failure") is not None for case in cases)
    assert int(one.attrib["skipped"]) == sum(case.find("skipped") is not None for case in cases)
    return one


def test_a_test_case_for_each_execution() -> None:
    found = suite(ordinary())
    cases = {case.attrib["name"]: case for case in found.findall("testcase")}
    failure = cases["step 1: cell(1)"].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "different"
    assert "-one\n+two" in (failure.text or "")
    skipped = cases["step 6: cell(6)"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "the kernel died while it ran"
    assert len(cases["step 3: cell(3)"]) == 0
    assert cases["name x"].find("failure") is not None
    assert {case.attrib["classname"] for case in cases.values()} == {"s"}
    told = {one.attrib["name"]: one.attrib["value"] for one in found.iter("property")}
    assert (told["verdict"], told["step 2"]) == ("different", "same-normalized: addresses")
    assert (told["sandbox"], told["integrity"], told["head_hash"]) == ("bubblewrap", "ok", "ab" * 32)


def test_hostile_text_is_valid_xml() -> None:
    """Control characters, surrogates and markup in names, reasons and differences."""
    found = suite(hostile())
    assert int(found.attrib["failures"]) > 50
    assert junit.text("a\x00\x1b\ud800\ufffe\tb") == "a\\x00\\x1b\\ud800\\ufffe\tb"


# -- JSON


class Execution(msgspec.Struct):
    execution_id: str | None
    cell_id: str | None
    verdict: str
    rules: list[str]
    diff: str | None
    reason: str | None


class Name(msgspec.Struct):
    name: str
    verdict: str


class Document(msgspec.Struct):
    source: str
    verdict: str
    executions: list[Execution]
    environment: dict[str, Any]
    names: list[Name]


def test_the_json_is_what_the_interface_says() -> None:
    for found in (ordinary(), hostile()):
        document = msgspec.json.decode(msgspec.json.encode(found.result), type=Document)
        allowed = {"same", "same-normalized", "different", "nondeterministic", "skipped"}
        assert {one.verdict for one in document.executions} | {document.verdict} <= allowed
        assert all(one.execution_id or one.cell_id for one in document.executions)
        assert len(document.executions) == len(found.plan.steps)


def test_moments_and_durations() -> None:
    assert view.moment(1_700_000_000 * 10**9) == "2023-11-14 22:13:20 UTC"
    assert view.moment(10**30) == f"{10**30} ns"
    assert (view.seconds(0.5), view.seconds(75.26), view.seconds(None)) == ("0.500 s", "75.3 s", "")


def test_a_display_names_what_else_it_holds() -> None:
    data = {"text/html": "<b>x</b>", "text/plain": "x", "application/vnd.widget+json": {"a": 1}}
    page = shown(replayed([(step(1, display("text/html", "<b>x</b>", **data)), None)]))
    assert "other representations: text/plain, application/vnd.widget+json" in page
