"""Laws of comparing, for any outputs that a notebook can hold, and for texts full of what rules are for."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernel_runtime.replay.compare import NAMES, STRICT, RuleSet, compare_outputs
from kernel_runtime.replay.compare.markup import scan
from kernel_runtime.replay.compare.sets import order_sets
from kernel_runtime.replay.compare.tokens import tokens
from tests.unit.replay.comparing import WINDOWS, judge, shown, stream

ANY_TEXT = st.text(max_size=30)  # lone surrogates too
PARTS = st.sampled_from(
    [
        "<A at 0x7f0000000001>",
        "{'b', 'a'}",
        "{'a', 'b'}",
        "[1.  2.5]",
        "[1. 2.5]",
        "0.30000000000000004",
        "0.3",
    ]
    + [
        "took 0.1 s",
        "took 3 s",
        "/tmp/tmpab12cd34/x",
        "/tmp/tmpzz12cd34/x",
        "\x1b[31m",
        "\x1b[0m",
        "\r",
        "\b",
    ]
    + ["2023-11-14 22:13:21", "2025-11-30 00:56:58", "pid 7", "pid 8", " 50%|█ | 1/2 [00:01<00:01, 1it/s]"]
    + [
        "{",
        "}",
        "'",
        "[",
        "]",
        "(",
        ",",
        ":",
        "<",
        ">",
        "&",
        '"',
        "-",
        ".",
        "1e5",
        "nan",
        "x",
        " ",
        "  ",
        "\n",
    ]
)
TEXT = st.one_of(ANY_TEXT, st.lists(PARTS, max_size=8).map("".join))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
MIMES = st.sampled_from(
    ["text/plain", "text/html", "image/svg+xml", "image/png", "image/gif", "application/json", "text/latex"]
    + ["application/vnd.vegalite.v5+json", "application/vnd.plotly.v1+json", "application/pdf", "x"]
)
OUTPUT: st.SearchStrategy[Any] = st.one_of(
    st.builds(stream, TEXT, st.sampled_from(["stdout", "stderr"])),
    st.fixed_dictionaries({"output_type": st.just("stream"), "text": JSON | st.binary(max_size=9)}),
    st.fixed_dictionaries(
        {
            "output_type": st.sampled_from(["display_data", "execute_result"]),
            "data": st.dictionaries(MIMES, TEXT | JSON | st.binary(max_size=9), max_size=2),
            "metadata": JSON,
        }
    ),
    st.fixed_dictionaries(
        {
            "output_type": st.just("error"),
            "ename": st.sampled_from(["A", "B"]) | JSON,
            "evalue": TEXT,
            "traceback": st.lists(
                TEXT | st.sampled_from(["Cell In[1], line 1", "----> 1 x", "File /a.py:3, in f()"])
            )
            | JSON,
        }
    ),
    JSON,
)
OUTPUTS = st.lists(OUTPUT, max_size=3)
RULE_SETS = st.sets(st.sampled_from(NAMES)).map(lambda on: RuleSet().only(on))


@settings(max_examples=60)
@given(OUTPUTS, OUTPUTS, RULE_SETS)
def test_any_two_lists_have_a_verdict_that_does_not_depend_on_the_side(one: Any, two: Any, rules: RuleSet):
    there = compare_outputs(one, two, rules, windows=WINDOWS)
    back = compare_outputs(two, one, rules, windows=WINDOWS[::-1])
    assert there.verdict == back.verdict
    assert there.verdict in ("same", "same-normalized", "different")
    if there.verdict != "different":
        assert there.rule_names == back.rule_names
        assert not there.diff
    else:
        assert there.diff
        assert there.differences
    assert len(there.diff) < 9_000
    there.diff.encode()


@settings(max_examples=40)
@given(OUTPUTS, RULE_SETS)
def test_outputs_are_the_same_as_themselves(outputs: Any, rules: RuleSet):
    found = compare_outputs(outputs, outputs, rules, windows=WINDOWS)
    assert (found.verdict, found.rules) == ("same", [])


@settings(max_examples=150)
@given(TEXT, TEXT, RULE_SETS, st.sampled_from(["text/plain", "text/html", "stream"]))
def test_the_rules_that_are_told_suffice_and_none_can_be_left_out(
    one: str, two: str, rules: RuleSet, kind: str
):
    pair = (stream(one), stream(two)) if kind == "stream" else (shown(one, kind), shown(two, kind))
    verdict, used = judge(*pair, rules)
    strict = judge(*pair, STRICT)
    assert strict[0] in ("same", "different")
    assert set(used) <= rules.on
    if strict[0] == "same":
        assert (verdict, used) == ("same", [])
    if verdict == "same-normalized":
        assert used
        assert judge(*pair, RuleSet().only(used))[0] == "same-normalized"
        for rule in used:
            assert judge(*pair, RuleSet().only(set(used) - {rule}))[0] == "different"


WORDS = st.text("abcxyz", min_size=1, max_size=6)


@settings(max_examples=60)
@given(st.lists(PARTS, max_size=5), WORDS, WORDS, st.lists(PARTS, max_size=5))
def test_a_word_that_changed_is_different(before: list[str], one: str, two: str, after: list[str]):
    """Whatever stands around it, on a line of its own (so that no cursor passes over it)."""
    assume(one != two)
    left, right = "".join(before), "".join(after)
    pair = tuple(stream(f"{left}\n{word}\n{right}") for word in (one, two))
    assert judge(pair[0], pair[1])[0] == "different"


@settings(max_examples=60)
@given(st.from_regex(r"[1-9][0-9]{0,2}\.[0-9]{1,5}", fullmatch=True), st.data())
def test_a_digit_that_changed_beyond_the_tolerance_is_different(shown_number: str, data: st.DataObject):
    digits = [at for at, character in enumerate(shown_number) if character.isdigit()]
    at = data.draw(st.sampled_from(digits))
    other = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != shown_number[at]]))
    changed = shown_number[:at] + other + shown_number[at + 1 :]
    frame = data.draw(
        st.sampled_from(
            [
                "{}",
                "mean = {}",
                "array([{}, 2.5])",
                "   fare\n0  {}",
                "{{'a': {}}}",
                "{{{}, 'a'}}",
                "loss: {}it",
            ]
        )
    )
    assert judge(stream(frame.format(shown_number)), stream(frame.format(changed)))[0] == "different"
    for mime in ("text/html", "text/plain"):
        one, two = (f"<td>{frame.format(number)}</td>" for number in (shown_number, changed))
        assert judge(shown(one, mime), shown(two, mime))[0] == "different"
    assert (
        judge(
            shown({"x": [float(shown_number)]}, "application/json"),
            shown({"x": [float(changed)]}, "application/json"),
        )[0]
        == "different"
    )


@settings(max_examples=150)
@given(TEXT)
def test_cutting_loses_nothing(text: str):
    assert "".join(token.text for token in tokens(text)) == text
    assert "".join(piece.raw for piece in scan(text)) == text
    assert order_sets(order_sets(text)) == order_sets(text)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["'a'", "'b, c'", "1", "2.5", "('x', 'y')", "None"]), min_size=2, unique=True)
)
def test_any_order_of_a_set_is_one_order(elements: list[str]):
    mixed = elements[::-1]
    pair = stream("{" + ", ".join(elements) + "}"), stream("{" + ", ".join(mixed) + "}")
    assert judge(*pair) == ("same-normalized", ["set-order"])


def test_json_of_any_depth_has_a_verdict():
    one: Any = 1
    two: Any = 2
    for _ in range(5_000):
        one, two = [one], [two]
    pair = shown(one, "application/json"), shown(two, "application/json")
    assert judge(*pair)[0] == "different"
    assert judge(pair[0], pair[0])[0] == "same"


HARD = {
    "digits": "1" * 30_000,
    "dots": "1." * 15_000,
    "open brackets": "([{" * 10_000,
    "open sets": "{'a', " * 5_000,
    "quotes": "{" + "'\\" * 15_000,
    "tags": "<a " * 10_000,
    "attributes": "<a " + "b='" * 10_000,
    "comments": "<!--" * 7_500,
    "scripts": "<script>" * 4_000,
    "escapes": "\x1b[" * 15_000,
    "links": "\x1b]8" * 10_000,
    "slashes": "/a" * 15_000,
    "temporary": "/tmp/" + "_a" * 15_000,
    "dashes": "----> " * 5_000,
    "files": "File " * 6_000 + ":1",
    "bars": "1%|" * 10_000,
    "returns": "ab\r" * 10_000,
    "spaces": " " * 30_000,
    "lines": "\n" * 30_000,
    "entities": "&#1" * 10_000,
    "words": "took " * 6_000,
    "times": "00:00:" * 5_000,
    "minus": "-" * 30_000,
    "hexadecimal": "0x" + "f" * 30_000,
    "surrogates": "\ud800" * 30_000,
    "lists": "[" + "0.1, " * 6_000,
    "sets": "{" + "'a', " * 6_000 + "}",
}


@pytest.mark.slow
def test_no_text_takes_long():
    """30,000 characters of what is hard for a scanner take some times as long as plain ones: in
    quadratic time, each would take a thousand times as long.
    """

    def seconds(text: str) -> float:
        began = time.process_time()
        for make in (
            stream,
            lambda source: shown(source, "text/html"),
            lambda source: {"output_type": "error", "ename": "E", "evalue": "", "traceback": [source]},
        ):
            assert judge(make("a" + text + "x"), make("b" + text + "y"))[0] == "different"
            judge(make(text + "1.0000000001"), make(text + "1.0000000002"))
        return time.process_time() - began

    plain = seconds("plain text, and 12 numbers. " * 1_100)
    ratios = {name: seconds(text) / plain for name, text in HARD.items()}
    assert max(ratios.values()) < 100, ratios


@pytest.mark.slow
def test_ten_megabytes_take_linear_time():
    def seconds(lines: int) -> float:
        numbers = random.Random(1)
        rows = [f"{n} {numbers.random():.12f} <A at 0x7f{n:010x}>" for n in range(lines)]
        one, two = "\n".join(rows), "\n".join(row.replace("0x7f", "0x7e") for row in rows)
        began = time.process_time()
        assert judge(stream(one), stream(two)) == ("same-normalized", ["addresses"])
        return time.process_time() - began

    small, large = seconds(25_000), seconds(250_000)
    assert large < 20 * small
