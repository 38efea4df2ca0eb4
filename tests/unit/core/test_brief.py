"""The brief: what comes first, what it cites, and that it keeps to its budget."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_runtime.core.brief import LETTERS_PER_TOKEN, Material, compose, shown, size, text_of

NOTHING: dict[str, Any] = {"session": "alice", "incarnation": 1, "state": "idle", "counts": {"live": 2}}


def text(max_tokens: int = 1000, **of: Any) -> str:
    report = {**NOTHING, **of.pop("report", {})}
    return text_of(compose(Material(report=report, head=100, **of), max_tokens))


def test_a_quiet_session_takes_two_lines() -> None:
    assert text(kernel="python3", cwd="/data", standing=[4]) == (
        "# alice: incarnation 1, idle; 2 live\nkernel python3, cwd /data, journal at 100 [#4]"
    )


def test_why_a_kernel_is_dead_is_said_with_its_entry() -> None:
    why = {"entry": 17, "kind": "KernelDied", "signal": 9, "evidence": {"oom": True}}
    assert "why: KernelDied, signal 9, oom True [#17]" in text(report={"state": "dead", "why": why})


def test_what_is_blocked_comes_first_with_what_it_asks_and_how_to_answer() -> None:
    blocked = {
        "on": "terminal-password",
        "prompt": "[sudo] password: ",
        "pid": 12,
        "command": ["sudo", "apt"],
    }
    row = {"execution_id": "e" * 36, "status": "blocked", "source": "!sudo apt", "blocked": blocked,
           "principal": "agent:a"}  # fmt: skip
    lines = text(recent=[row], executions={"e" * 36: [9]}).splitlines()
    assert lines[2:4] == ["", "## Now"] or lines[1:3] == ["", "## Now"]
    line = next(line for line in lines if line.startswith("- blocked"))
    assert "sudo apt (pid 12) asks '[sudo] password:'" in line
    assert "krt answer alice TEXT" in line
    assert line.endswith("[#9]")


def test_a_stale_cell_says_which_read_changed_and_cites_the_change() -> None:
    cell = {
        "cell_id": "c", "truth": "stale", "execution_id": "a" * 36,
        "evidence": {"source": "y = x + 1", "changed": {"x": {"by": "b" * 36, "seq": 31}}},
    }  # fmt: skip
    found = text(report={"cells": [cell], "counts": {"stale": 1, "live": 3}}, executions={"a" * 36: [12, 11]})
    assert "- stale: y = x + 1 (aaaaaaaa); x changed by bbbbbbbb [#31, #12, #11]" in found


def test_superseded_cells_are_not_listed() -> None:
    cell = {"cell_id": "c", "truth": "superseded", "execution_id": "a" * 36, "evidence": {}}
    assert "Not live" not in text(report={"cells": [cell], "counts": {"superseded": 1}})


def test_names_worth_knowing_are_the_large_and_the_new() -> None:
    names = [
        {"name": f"n{i}", "truth": "live", "type": "int", "bytes": 28, "evidence": {"seq": i}}
        for i in range(1, 30)
    ]
    names.append({"name": "df", "truth": "live", "type": "pandas.DataFrame", "bytes": 42_000_000,
                  "evidence": {"seq": 99}, "bound_by": "a" * 36, "shares_with": ["view"]})  # fmt: skip
    names.append({"name": "np", "truth": "live", "type": "module", "evidence": {"seq": 100}})
    names.append({"name": "_private", "truth": "live", "type": "x", "bytes": 10**9})
    found = text(report={"names": names}, described={"df": {"rows": 336_776, "columns": 19}})
    shown_names = re.findall(r"^- (\w+):", found, flags=re.MULTILINE)
    assert shown_names[:2] == ["df", "n29"]
    assert not {"_private", "np"} & set(shown_names)
    assert (
        "- df: pandas.DataFrame, 336,776 rows, 19 columns, 42.0 MB, shares with view, bound by aaaaaaaa [#99]"
        in found
    )


def test_names_that_drifted_or_are_lost_are_apart() -> None:
    names = [{"name": "x", "truth": "drifted", "type": "list", "evidence": {"seq": 50}}]
    found = text(report={"names": names})
    assert "## Names that are not as they were left\n- x: list, drifted [#50]" in found


def test_the_handoff_leads_and_claims_that_fail_are_told() -> None:
    handoff = {
        "version": 3, "entry": 40, "principal": "agent:a", "complete": True,
        "document": {"goal": "fit", "next_action": "fit the model", "risks": ["disk is small"]},
    }  # fmt: skip
    claims = [
        {"claim_id": "c1", "text": "up", "probe": "port 1 listens", "truth": "true"},
        {
            "claim_id": "c2",
            "text": "slow",
            "probe": "expr x",
            "truth": "unknown",
            "evidence": {"reason": "why"},
        },
        {
            "claim_id": "c3",
            "text": "on :3000",
            "probe": "port 3000 listens",
            "truth": "false",
            "entries": [41],
        },
    ]
    found = text(report={"claims": claims}, handoff=handoff)
    assert "- next action: fit the model [#40]" in found
    assert "- handoff version 3 by agent:a, complete [#40]" in found
    failed = found[found.index("## Claims that do not hold") :].splitlines()
    assert failed[1] == "- false: on :3000 (`port 3000 listens`, c3) [#41]"
    assert failed[2] == "- unknown: slow (`expr x`, c2); why"
    assert "port 1 listens" not in found
    assert found.index("## Next") < found.index("## Claims")


def test_resources_say_what_they_are_and_who_started_them() -> None:
    rows = [
        {"kind": "socket", "truth": "true", "pid": 7, "protocol": "tcp", "address": "127.0.0.1", "port": 3000,
         "state": "listening", "started_by": None},
        {"kind": "process", "truth": "true", "pid": 7, "command": ["npm", "run", "dev"], "ports": [3000],
         "started_by": "a" * 36},
        {"kind": "process", "truth": "false", "pid": 8, "command": ["gone"], "started_by": None},
        {"kind": "env", "truth": "true", "name": "cwd", "value": "/"},
    ]  # fmt: skip
    found = text(report={"resources": rows}, executions={"a" * 36: [5]})
    listed = found[found.index("## Resources") :].splitlines()[1:]
    assert listed == [
        "- process pid 7 npm run dev ports 3000, started by aaaaaaaa [#5]",
        "- socket tcp 127.0.0.1:3000 listening pid 7",
    ]


def test_what_does_not_fit_is_counted_with_the_command_that_shows_it() -> None:
    cells = [
        {"cell_id": f"c{i}", "truth": "lost", "execution_id": f"{i:036}", "evidence": {"source": "x" * 70}}
        for i in range(20)
    ]
    done = [{"execution_id": f"{i:036}", "status": "done", "outcome": "ok", "source": "1"} for i in range(20)]
    found = text(100, report={"cells": cells, "counts": {"lost": 500}}, recent=done)
    assert re.search(r"… and 49\d more: krt status alice --all", found)
    assert "… and" in found
    assert len(found) <= 400
    little = text(30, report={"cells": cells, "counts": {"lost": 500}}, recent=done)
    assert "no room for" in little
    assert len(little) <= 120


def test_an_entry_that_the_journal_does_not_have_is_not_cited() -> None:
    claims = [
        {"claim_id": "c1", "text": "t", "probe": "p", "truth": "false", "entries": [101, 0, -1, True, "5", 7]}
    ]
    assert "c1) [#7]" in text(report={"claims": claims})


@pytest.mark.parametrize(
    "count, said",
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 kB"), (42_000_000, "42.0 MB"), (10**10, "10.0 GB")],
)
def test_sizes(count: int, said: str) -> None:
    assert size(count) == said


def test_text_is_one_line_without_control_characters() -> None:
    assert shown("\n  a\x1b[31mb\n c") == "a\N{REPLACEMENT CHARACTER}[31mb"
    assert shown("x" * 100) == "x" * 79 + "…"


# -- laws

WORDS = st.text(max_size=30)
SEQ = st.integers(min_value=-5, max_value=300)
IDS = st.sampled_from(["a" * 36, "b" * 36, "c" * 36])
CELLS = st.fixed_dictionaries(
    {
        "cell_id": WORDS,
        "truth": st.sampled_from(["lost", "partial", "stale", "live", "unknown", "superseded"]),
        "execution_id": st.none() | IDS,
        "evidence": st.fixed_dictionaries(
            {},
            optional={
                "source": WORDS,
                "reason": WORDS,
                "changed": st.dictionaries(
                    WORDS, st.fixed_dictionaries({"by": st.none() | IDS, "seq": SEQ}), max_size=4
                ),
            },
        ),
    }
)
NAMES = st.fixed_dictionaries(
    {"name": WORDS, "truth": st.sampled_from(["live", "drifted", "lost"]), "type": st.none() | WORDS},
    optional={"bytes": st.none() | st.integers(0, 10**12), "bound_by": IDS,
              "evidence": st.fixed_dictionaries({"seq": SEQ}),
              "shares_with": st.lists(WORDS, max_size=4) | st.none()},
)  # fmt: skip
RESOURCES = st.fixed_dictionaries(
    {"kind": st.sampled_from(["process", "socket", "file", "env", "odd"]), "truth": st.just("true")},
    optional={"pid": st.integers(1, 9), "command": st.lists(WORDS, max_size=3), "started_by": st.none() | IDS,
              "port": st.integers(1, 9), "path": WORDS, "mode": WORDS,
              "ports": st.lists(st.integers(), max_size=3)},
)  # fmt: skip
CLAIMS = st.fixed_dictionaries(
    {
        "claim_id": WORDS,
        "text": WORDS,
        "probe": WORDS,
        "truth": st.sampled_from(["true", "false", "unknown"]),
    },
    optional={"entries": st.lists(SEQ, max_size=5), "evidence": st.fixed_dictionaries({"reason": WORDS})},
)
EXECUTIONS = st.fixed_dictionaries(
    {"execution_id": IDS, "status": st.sampled_from(["queued", "blocked", "done"]),
     "outcome": st.none() | WORDS, "source": WORDS, "principal": WORDS, "at": WORDS},
    optional={"error": st.none() | st.fixed_dictionaries({"ename": WORDS, "evalue": WORDS}),
              "blocked": st.none()
              | st.fixed_dictionaries({"prompt": WORDS, "pid": st.none() | st.integers(1, 9)})},
)  # fmt: skip
MATERIAL = st.builds(
    Material,
    report=st.fixed_dictionaries(
        {"session": WORDS, "incarnation": st.integers(0, 9), "state": WORDS},
        optional={
            "cells": st.lists(CELLS, max_size=12),
            "names": st.lists(NAMES, max_size=12),
            "resources": st.lists(RESOURCES, max_size=10),
            "claims": st.lists(CLAIMS, max_size=10),
            "counts": st.dictionaries(st.sampled_from(["lost", "live", "stale"]), st.integers(0, 10**6)),
            "why": st.dictionaries(st.sampled_from(["entry", "kind", "signal", "names"]), WORDS | SEQ),
        },
    ),
    head=st.integers(0, 200),
    kernel=WORDS,
    cwd=WORDS,
    standing=st.lists(SEQ, max_size=2),
    recent=st.lists(EXECUTIONS, max_size=8),
    executions=st.dictionaries(IDS, st.lists(SEQ, max_size=4)),
    handoff=st.none()
    | st.fixed_dictionaries(
        {"version": st.integers(1, 9), "entry": SEQ, "principal": WORDS, "complete": st.booleans(),
         "document": st.fixed_dictionaries({}, optional={"goal": WORDS, "next_action": WORDS,
                                                         "risks": st.lists(WORDS, max_size=5)})}
    ),
)  # fmt: skip


@settings(max_examples=100)
@given(MATERIAL, st.integers(-1, 800))
def test_never_over_budget_never_a_false_citation_always_the_same(
    material: Material, max_tokens: int
) -> None:
    lines = compose(material, max_tokens)
    found = text_of(lines)
    assert lines
    assert len(found) <= max(1, max_tokens) * LETTERS_PER_TOKEN
    assert all("\n" not in line.text for line in lines)
    for line in lines:
        assert all(1 <= entry <= material.head for entry in line.entries)
        if line.entries:
            cited = re.search(r"\[(#\d+(?:, #\d+)*)\]$", line.text)
            assert cited is not None
            assert [int(number) for number in re.findall(r"\d+", cited.group(1))] == line.entries
    copy = msgspec.json.decode(msgspec.json.encode(material), type=Material)
    assert compose(copy, max_tokens) == lines
