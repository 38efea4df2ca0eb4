"""The handoff: how versions follow each other, what a reference is, when a next action says one thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.core.claim_grammar import parse
from kernel_runtime.core.handoff import (
    LONGEST,
    Claimed,
    Document,
    Reference,
    ambiguities,
    change,
    markdown,
    parse_reference,
    probe_of,
    read,
    require_complete,
)
from kernel_runtime.errors import UsageError

FIRST = Document(
    goal="fares by hour",
    completed=["loaded flights"],
    next_action="group df by hour",
    risks=["the disk is small"],
    references=["name:df"],
    observed={"incarnation": 1},
)


def test_texts_replace_and_lists_grow() -> None:
    after = change(FIRST, Document(next_action=" plot it by hour ", completed=["loaded flights", "grouped"]))
    assert after.goal == "fares by hour"
    assert after.next_action == "plot it by hour"
    assert after.completed == ["loaded flights", "grouped"]
    assert after.risks == FIRST.risks
    assert after.observed == FIRST.observed


def test_what_is_replaced_is_what_is_given_even_nothing() -> None:
    after = change(FIRST, Document(risks=[]), replaced=["risks", "goal"], observed={"incarnation": 2})
    assert (after.risks, after.goal, after.observed) == ([], "", {"incarnation": 2})
    assert after.completed == FIRST.completed


def test_without_a_next_action_it_is_not_complete() -> None:
    require_complete(FIRST, "alice")
    with pytest.raises(UsageError) as refused:
        require_complete(change(FIRST, Document(), replaced=["next_action"]), "alice")
    assert "--next" in refused.value.hint
    assert refused.value.fields["missing"] == ["next_action"]


@pytest.mark.parametrize(
    "document",
    [
        {"goal": 1}, {"completed": "x"}, {"nonsense": "x"}, {"claims": ["x"]}, {"references": [1]},
    ],
)  # fmt: skip
def test_what_is_no_handoff_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(document)


@pytest.mark.parametrize(
    "given",
    [
        Document(goal="x" * (LONGEST + 1)),
        Document(risks=["x" * (LONGEST + 1)]),
        Document(completed=[str(i) for i in range(501)]),
        Document(completed=[" "]),
        Document(claims=[Claimed(text="", probe="port 1 listens")]),
        Document(references=["df"]),
    ],
)
def test_bounds(given: Document) -> None:
    with pytest.raises(UsageError):
        change(Document(), given)


@pytest.mark.parametrize(
    "text, kind, probe",
    [
        ("entry:123", "entry", None),
        ("execution:3f2a9c01", "execution", None),
        ("cell:3f2a", "cell", None),
        ("name:df", "name", "name df exists"),
        ("file:my data/out.csv", "file", 'file "my data/out.csv" exists'),
        ('file:a"b\\c', "file", r'file "a\"b\\c" exists'),
        ("process:p1", "process", 'process "p1" runs'),
        ("url:http://127.0.0.1:3000/x", "url", 'http answers at "http://127.0.0.1:3000/x"'),
    ],
)
def test_a_reference_can_be_checked(text: str, kind: str, probe: str | None) -> None:
    reference = parse_reference(text)
    assert reference == Reference(kind, text.partition(":")[2])
    assert probe_of(reference) == probe
    if probe is not None:
        parse(probe)


@pytest.mark.parametrize(
    "text", ["", "df", "df:", "entry:", "entry:x", "name:a b", "url:ftp://x", "nothing:1", "file: "]
)
def test_what_is_no_reference_is_refused_with_what_one_is(text: str) -> None:
    with pytest.raises(UsageError, match="is no reference: one "):
        parse_reference(text)


@pytest.mark.parametrize(
    "action",
    [
        "group df by hour and plot the mean fare",
        "run `make test or fail` in the repository",
        "rename the column 'then' to 'later'",
        "answer the password prompt of execution 3f2a9c01",
        "finish the migration of table users from row 4000",
        "continue the migration at row 4,000 of users",
        "compare train and test error of model v2.1",
        "ask the owner of the order table for write access",
    ],
)
def test_one_thing_to_do(action: str) -> None:
    assert ambiguities(action) == []


@pytest.mark.parametrize(
    "action, why",
    [
        ("", "no next action"),
        ("  ", "no next action"),
        ("plot", "one word"),
        ("continue", "goes on"),
        ("continue with it", "goes on"),
        ("Keep going", "goes on"),
        ("fit the model, etc.", "vague"),
        ("clean up the rest", "vague"),
        ("do it as discussed", "vague"),
        ("fit a tree or a forest", "choice"),
        ("either retry or give up", "choice"),
        ("fix and/or remove the test", "choice"),
        ("maybe fit the model", "done or not"),
        ("drop the index if needed", "done or not"),
        ("fit the model then plot it", "more than one step"),
        ("fit the model; plot it", "more than one sentence"),
        ("Fit the model. Plot it.", "more than one sentence"),
        ("1. fit the model", "a list"),
        ("- fit the model", "a list"),
        ("fit the model\nplot it", "several lines"),
        ("fit the model?", "question"),
        ("fit the model...", "dots"),
    ],
)
def test_what_leaves_it_open_is_told(action: str, why: str) -> None:
    assert any(why in problem for problem in ambiguities(action)), ambiguities(action)


def test_markdown_has_everything() -> None:
    observed = {
        "incarnation": 2,
        "state": "idle",
        "kernel": "python3",
        "cwd": "/d",
        "notebook": "n.ipynb",
        "since": {"entries": [3, 9], "outcomes": {"ok": 2}},
        "cells": {"live": 2, "lost": 0},
        "ran": [{"outcome": "ok", "source": "x = 1", "execution_id": "a" * 36, "entry": 8}],
        "names": [{"name": "df", "type": "DataFrame", "truth": "live"}],
        "resources": [{"text": "process pid 7"}],
    }
    claim = Claimed(text="up", probe="port 1 listens", claim_id="c1")
    document = change(FIRST, Document(claims=[claim]), observed=observed)
    text = markdown(document, session="alice", version=3, complete=True, about="Written by agent:a.")
    for part in (
        "# Handoff of alice, version 3 (complete)",
        "fares by hour",
        "group df by hour",
        "- loaded flights",
        "- the disk is small",
        "- name:df",
        "- up (`port 1 listens`, c1)",
        "(not said)",
        "entries 3 to 9: 2 ok",
        "cells: 2 live\n",
        "- ran: ok: x = 1 (aaaaaaaa) [#8]",
        "- name df: DataFrame, live",
        "- alive: process pid 7",
    ):
        assert part in text, part


@given(st.text(max_size=200))
def test_any_text_is_judged(text: str) -> None:
    assert isinstance(ambiguities(text), list)
    try:
        parse_reference(text)
    except UsageError as error:
        hint = error.hint
    else:
        hint = "-"
    assert hint
