"""What an observation says of a probe."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.core.claim_grammar import parse
from kernel_runtime.core.claims import is_cheap, is_command, judge

HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
PROCESS = {"start_time": 77, "boot_id": "b", "command": ["/usr/bin/npm", "run", "dev"]}
MEANT = {"start_time": 77, "boot_id": "b"}
FRAME = {"exists": True, "type": "pandas.core.frame.DataFrame", "rows": 12, "columns": 3}


@pytest.mark.parametrize(
    "probe, seen, truth",
    [
        ("port 1 listens", {"listening": []}, "false"),
        ("port 1 listens", {"listening": [{"address": "::", "port": 1}]}, "true"),
        ("pid 7 runs", {"process": None, "meant": MEANT}, "false"),
        ("pid 7 runs", {"process": PROCESS, "meant": MEANT}, "true"),
        ("pid 7 runs", {"process": PROCESS, "meant": {"start_time": 78, "boot_id": "b"}}, "false"),
        ("pid 7 runs", {"process": PROCESS, "meant": {"start_time": 77, "boot_id": "a"}}, "false"),
        ("pid 7 runs", {"process": PROCESS, "meant": None}, "false"),
        ('pid 7 is "npm run dev"', {"process": PROCESS, "meant": MEANT}, "true"),
        ('pid 7 is "npm run"', {"process": PROCESS, "meant": MEANT}, "false"),
        ('pid 7 contains "run dev"', {"process": PROCESS, "meant": MEANT}, "true"),
        ('pid 7 contains "yarn"', {"process": PROCESS, "meant": MEANT}, "false"),
        ("process p1 runs", {"alive": True}, "true"),
        ("process p1 runs", {"alive": False, "exit_status": 1}, "false"),
        ("file f exists", {"exists": True, "kind": "directory"}, "true"),
        ("file f exists", {"exists": False}, "false"),
        ("file f missing", {"exists": False}, "true"),
        ("file f missing", {"exists": True, "bytes": 1}, "false"),
        ("file f 3 bytes", {"exists": True, "bytes": 3}, "true"),
        ("file f 3 bytes", {"exists": True, "bytes": 4}, "false"),
        ("file f 3 bytes", {"exists": True, "kind": "directory"}, "false"),
        (f"file f sha256 {HEX}", {"exists": True, "sha256": HEX}, "true"),
        (f"file f sha256 {HEX}", {"exists": True, "sha256": HEX[::-1]}, "false"),
        (f"file f sha256 {HEX}", {"exists": True}, "unknown"),
        ("http 200 at http://localhost", {"status": 200}, "true"),
        ("http 200 at http://localhost", {"status": 302, "location": "/x"}, "false"),
        ("http 200 at http://localhost", {"error": "connection refused"}, "false"),
        ("http answers at http://localhost", {"status": 500}, "true"),
        ("name df exists", FRAME, "true"),
        ("name df exists", {"exists": False}, "false"),
        ("name df has 12 rows", FRAME, "true"),
        ("name df has 13 rows", FRAME, "false"),
        ("name df has 3 columns", FRAME, "true"),
        ("name df has 3 columns", {"exists": True, "type": "list", "rows": 3}, "unknown"),
        ("name df is DataFrame", FRAME, "true"),
        ("name df is pandas.core.frame.DataFrame", FRAME, "true"),
        ("name df is pandas.DataFrame", FRAME, "true"),
        ("name df is Frame", FRAME, "false"),
        ("name df is core.DataFrame", FRAME, "false"),
        ("name df == 1", FRAME, "unknown"),
        ("name x == [1, 2]", {"exists": True, "type": "list", "literal": "[1, 2]"}, "true"),
        ("name x == [1, 2]", {"exists": True, "type": "list", "literal": "[1, 3]"}, "false"),
        ("name x == 1", {"exists": True, "type": "list", "literal": "[1, ..."}, "unknown"),
        ("expr x", {"value": True, "type": "bool"}, "true"),
        ("expr x", {"value": False, "type": "bool"}, "false"),
        ("expr x", {"value": None, "repr": "np.True_", "type": "bool_"}, "true"),
        ("expr x", {"value": 1, "repr": "1", "type": "int"}, "unknown"),
        ("expr x", {"value": None, "repr": "None", "type": "NoneType"}, "unknown"),
        ("expr x", {"error": {"ename": "NameError", "evalue": "x"}}, "unknown"),
    ],
)
def test_what_was_seen_decides(probe: str, seen: dict[str, Any], truth: str) -> None:
    found, evidence = judge(parse(probe), seen)
    assert found == truth, evidence
    if truth == "unknown":
        assert evidence["reason"]


@pytest.mark.parametrize(
    "probe",
    ["port 1 listens", "pid 7 runs", "process p runs", "file f missing", "http 200 at http://localhost",
     "name df exists", "name df == 1", "env A exists", "expr x"],
)  # fmt: skip
def test_what_could_not_be_seen_is_unknown_and_says_why(probe: str) -> None:
    assert judge(parse(probe), {"unknown": "dark"}) == ("unknown", {"reason": "dark"})


def test_evidence_names_what_is_there_instead() -> None:
    assert (
        "another process"
        in judge(parse("pid 7 runs"), {"process": PROCESS, "meant": {"start_time": 1}})[1]["reason"]
    )
    said = judge(parse('pid 7 is "run dev"'), {"process": PROCESS, "meant": MEANT})[1]
    assert "contains" in said["reason"]
    assert said["command"] == PROCESS["command"]


@pytest.mark.parametrize(
    "argv, command, same",
    [
        (["python3", "x.py"], "python3 x.py", True),
        (["/usr/bin/python3", "x.py"], "python3 x.py", True),
        (["python3", "a b.py"], "python3 'a b.py'", True),
        (["python3", "a b.py"], "python3 a b.py", True),
        (["npm run dev", ""], "npm run dev", True),
        (["python3", "/x.py"], "python3 x.py", False),
        (["python3"], "python3 'x", False),
        ([], "", True),
    ],
)
def test_a_command_line_is_compared_without_the_directory_of_its_program(
    argv: list[str], command: str, same: bool
) -> None:
    assert is_command(argv, command) is same


def test_what_needs_neither_kernel_nor_a_whole_file_is_cheap() -> None:
    cheap = ["port 1 listens", "pid 7 runs", "process p runs", "file f exists", "file f 3 bytes"]
    dear = [
        f"file f sha256 {HEX}",
        "name df exists",
        "expr x",
        "env A exists",
        "http 200 at http://localhost",
    ]
    assert all(is_cheap(parse(probe)) for probe in cheap)
    assert not any(is_cheap(parse(probe)) for probe in dear)


def test_evidence_shows_no_secret_of_a_command_line() -> None:
    """The journal keeps evidence; what is compared is the command line itself."""
    process = {**PROCESS, "command": ["psql", "--password=hunter2", "db"]}
    seen = {"process": process, "meant": MEANT}
    truth, evidence = judge(parse('pid 7 is "psql --password=hunter2 db"'), seen)
    assert truth == "true"
    assert "hunter2" not in str(evidence)
    assert "hunter2" not in str(
        judge(parse("expr x"), {"value": "password=hunter2", "repr": "'password=hunter2'"})
    )


def test_a_value_is_shown_only_where_it_was_asked_for_and_is_no_secret() -> None:
    seen = {"exists": True, "type": "str", "literal": "'hunter2'"}
    assert judge(parse("name x exists"), seen) == ("true", {"exists": True, "type": "str"})
    assert judge(parse("name x == 'a'"), seen)[1]["value"] == "'hunter2'"
    truth, evidence = judge(parse("name password == 'hunter2'"), seen)
    assert truth == "true"
    assert "hunter2" not in str(evidence)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ASKED = ["name x exists", "name x has 1 row", "name x is int", "name x == 1", "expr x", "env A exists"]
TOLD = ["exists", "type", "rows", "literal", "why", "value", "repr", "error", "unknown", "z"]


@given(st.sampled_from(ASKED), st.dictionaries(st.sampled_from(TOLD), JSON))
def test_whatever_a_kernel_answers_there_is_a_verdict(probe: str, seen: dict[str, Any]) -> None:
    """The kernel is the user's process: what it answers may be anything."""
    truth, evidence = judge(parse(probe), seen)
    assert truth in ("true", "false", "unknown")
    if truth == "unknown":
        assert isinstance(evidence["reason"], str)
