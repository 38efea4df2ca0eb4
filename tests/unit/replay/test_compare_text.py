"""Each rule on text from both sides: what it lets pass, and the really different result beside it."""

from __future__ import annotations

import pytest

from kernel_runtime.replay.compare import RULES, STRICT, RuleSet, choose
from tests.unit.replay.comparing import judge, stream

TIMEIT = "{} µs ± {} ns per loop (mean ± std. dev. of {} runs, {} loops each)"
SLOWEST = (
    "The slowest run took 4.50 times longer than the fastest. This could mean that an intermediate result "
    "is being cached.\n"
)

PASSES = [
    ("addresses", "<__main__.A object at 0x7f3a12345678>", "<__main__.A object at 0x7f0011223344>"),
    ("addresses", "<function f at 0x55d0c0ffee00>", "<function f at 0x7f0011223344>"),
    (
        "addresses",
        "<bound method A.f of <A object at 0x7f3a1234>>",
        "<bound method A.f of <A object at 0x7f3b5678>>",
    ),
    ("process-ids", "I am pid 4711", "I am pid 815"),
    ("process-ids", "Process(pid=4711, name='x')", "Process(pid=12, name='x')"),
    (
        "process-ids",
        "<Thread(Thread-5 (f), started 140111222333)>",
        "<Thread(Thread-5 (f), started 140444555666)>",
    ),
    ("process-ids", "<Thread(Thread-5 (f), initial)>", "<Thread(Thread-7 (f), initial)>"),
    ("ports", "listening on 127.0.0.1:40001", "listening on 127.0.0.1:51234"),
    ("ports", "('127.0.0.1', 40001)", "('127.0.0.1', 51234)"),
    ("temp-paths", "wrote /tmp/tmpab12cd3_/part-1.csv", "wrote /tmp/tmpzz99yy88/part-1.csv"),
    ("temp-paths", "/tmp/run_a1b2c3d4.json", "/tmp/run_z9y8x7w6.json"),
    ("temp-paths", "in /tmp/tmpab12cd3_/a", "in /tmp/krt-replay-0/tmp0xlj2khe/tmp/tmpzz99yy88/a"),
    (
        "temp-paths",
        "/tmp/ipykernel_77/123456.py:3: UserWarning: x",
        "/tmp/ipykernel_12/998.py:3: UserWarning: x",
    ),
    (
        "library-paths",
        "/opt/a/lib/python3.11/site-packages/pandas/core/frame.py:12: UserWarning: x",
        "/home/b/.venv/lib/python3.12/site-packages/pandas/core/frame.py:12: UserWarning: x",
    ),
    ("uuids", "id 0b3c1f5e-9d6a-4c1b-8a2f-0123456789ab", "id 7d1e2f3a-1b2c-4d3e-9f4a-abcdef012345"),
    ("now", "started 2023-11-14 22:13:21", "started 2025-11-30 00:56:58"),
    ("now", "2023-11-14T22:13:21.123456+00:00", "2025-11-30T00:56:58.000001+00:00"),
    ("now", "local: 2023-11-14 23:13:21", "local: 2025-11-30 01:56:58"),
    ("now", "Tue Nov 14 22:13:20 2023", "Sun Nov 30 00:56:57 2025"),
    ("now", "Date: Tue, 14 Nov 2023", "Date: Sun, 30 Nov 2025"),
    (
        "now",
        "datetime.datetime(2023, 11, 14, 22, 13, 20, 5)",
        "datetime.datetime(2025, 11, 30, 0, 56, 57, 77)",
    ),
    ("now", "run 20231114_221321", "run 20251130_005658"),
    ("now", "at 22:13:21", "at 00:56:58"),
    ("now", "1700000000.25", "1764464218.5"),
    ("now", "1700000000250", "1764464218500"),
    (
        "timings",
        "CPU times: user 3.2 ms, sys: 1 ms, total: 4.2 ms",
        "CPU times: user 1.1 s, sys: 0 ns, total: 1.1 s",
    ),
    ("timings", "Wall time: 7.15 µs", "Wall time: 1min 2s"),
    ("timings", TIMEIT.format("1.2", "4", 7, "1,000,000"), TIMEIT.format("13", "99", 7, "100,000")),
    (
        "timings",
        TIMEIT.format("1.2", "4", 7, "100").replace("µ", "u").replace("±", "+-"),
        TIMEIT.format("1.3", "4", 7, "10").replace("µ", "u").replace("±", "+-"),
    ),
    ("timings", TIMEIT.format("1", "4", 7, "10"), SLOWEST + TIMEIT.format("9", "4", 7, "10")),
    ("timings", "training took 0.12s", "training took 12.9 s"),
    ("timings", "elapsed: 0.1234", "elapsed: 2.5"),
    ("timings", "3 passed in 0.12s", "3 passed in 1.4s"),
    ("timings", "10/10 - 0s 3ms/step - loss: 0.25", "10/10 - 1s 98ms/step - loss: 0.25"),
    ("set-order", "{'b', 'a', 'c'}", "{'a', 'c', 'b'}"),
    ("set-order", "frozenset({('x', 1), ('y', 2)})", "frozenset({('y', 2), ('x', 1)})"),
    ("set-order", "{'k': {'a', 'b'}, 'l': 1}", "{'k': {'b', 'a'}, 'l': 1}"),
    ("set-order", "[{frozenset({'a', 'b'}), 'c'}]", "[{'c', frozenset({'b', 'a'})}]"),
    ("set-order", "{'it, is',\n 'a } brace'}", "{'a } brace',\n 'it, is'}"),
    ("set-order", "{<Color.RED: 1>, <Color.BLUE: 2>}", "{<Color.BLUE: 2>, <Color.RED: 1>}"),
    ("number-tolerance", "mean 0.30000000000000004", "mean 0.3"),
    ("number-tolerance", "[1.00000000001e-05 -2.5]", "[1.00000000002e-05 -2.5]"),
    ("number-tolerance", "(1+2.0000000000001j)", "(1+2.0000000000002j)"),
    ("number-tolerance", "-0.00", "0.00"),
    ("carriage-returns", "10%\r50%\rdone\n", "90%\rdone\n"),
    ("ansi", "\x1b[31mred\x1b[0m", "red"),
    ("ansi", "\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
    (
        "progress-bars",
        "load: 100%|██████████| 10/10 [00:01<00:00,  9.83it/s, loss=0.25]",
        "load: 100%|████▌     | 10/10 [00:09<00:00,  1.10it/s, loss=0.25]  ",
    ),
    ("progress-bars", "10it [00:00, 812.3it/s]", "10it [00:02, 4.1it/s]"),
]

DIFFERS = [
    ("a hexadecimal number is a result", "0x7f3a12345678", "0x7f0011223344"),
    ("an address in a listing", "found at 0x00401000", "found at 0x00402000"),
    ("a node's parent", "Node(parent=3)", "Node(parent=4)"),
    ("a process's place", "process 3 of 5", "process 4 of 5"),
    ("how many began", "started 3 workers", "started 4 workers"),
    (
        "one UUID that became two",
        "0b3c1f5e-9d6a-4c1b-8a2f-0123456789ab 0b3c1f5e-9d6a-4c1b-8a2f-0123456789ab",
        "7d1e2f3a-1b2c-4d3e-9f4a-abcdef012345 8d1e2f3a-1b2c-4d3e-9f4a-abcdef012345",
    ),
    (
        "one directory that became two",
        "/tmp/tmpab12cd34 /tmp/tmpab12cd34",
        "/tmp/tmpzz12cd34 /tmp/tmpyy12cd34",
    ),
    ("a short number after at", "at 0x1f", "at 0x2f"),
    ("another class at an address", "<A object at 0x7f3a12345678>", "<B object at 0x7f3a12345678>"),
    ("a count beside a pid", "pid 12 has 3 children", "pid 13 has 4 children"),
    ("another thread's task", "<Thread(Thread-5 (f), initial)>", "<Thread(Thread-5 (g), initial)>"),
    ("a chosen port", "127.0.0.1:8000", "127.0.0.1:8001"),
    ("a chosen port and a free one", "port 8000", "port 50000"),
    ("another host", "10.0.0.1:40001", "10.0.0.2:40001"),
    ("another file in a temporary directory", "/tmp/tmpab12cd34/a.csv", "/tmp/tmpab12cd34/b.csv"),
    ("a date in a temporary name", "/tmp/report_20240101.csv", "/tmp/report_20240102.csv"),
    ("a word in a temporary name", "/tmp/data_training", "/tmp/data_testing1"),
    ("another module of a library", "/a/site-packages/x/one.py", "/b/site-packages/x/two.py"),
    ("a path that is the user's", "/home/a/data.csv", "/home/b/data.csv"),
    (
        "a UUID that is a digest of a name",
        "0b3c1f5e-9d6a-5c1b-8a2f-0123456789ab",
        "7d1e2f3a-1b2c-5d3e-9f4a-abcdef012345",
    ),
    ("a date of the data", "first flight 2013-01-01", "first flight 2013-01-02"),
    ("a date of the data that is a day off now", "2023-11-14 10:03:20 x", "2023-11-14 10:04:20 x"),
    ("an old date where now was", "2023-11-14 22:13:21", "2013-01-01 05:00:00"),
    ("a time of day of the data", "departs 22:13", "departs 22:14"),
    ("a number like a time", "1600000000", "1600000001"),
    ("a duration of the data", "the pendulum swings in 2.01 s", "the pendulum swings in 2.07 s"),
    ("a word that is no duration", "half-life 3.2 h", "half-life 3.3 h"),
    ("a count that was needed", "it took 12 rounds", "it took 13 rounds"),
    ("the unit of a quantity", "2.0 ms", "2.0 s"),
    ("other runs of %timeit", TIMEIT.format("1", "4", 7, "10"), TIMEIT.format("1", "4", 8, "10")),
    ("another label in %time", "CPU times: user 3 ms, sys: 1 ms", "GPU times: user 3 ms, sys: 1 ms"),
    ("another element", "{'b', 'a'}", "{'a', 'c'}"),
    ("an element more", "{'a', 'b'}", "{'b', 'a', 'a'}"),
    ("the order of a dict", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"),
    ("the order of a list", "['a', 'b']", "['b', 'a']"),
    ("the order of a tuple in a set", "{('a', 'b'), 'c'}", "{('b', 'a'), 'c'}"),
    ("braces in code", "from m import {b, a}", "from m import {a, b}"),
    ("braces in LaTeX", r"\frac{'b', 'a'}", r"\frac{'a', 'b'}"),
    ("a whole number", "336776 rows", "336777 rows"),
    ("a large whole number", "1000000000000", "1000000000001"),
    ("a digit beyond the tolerance", "0.3000001", "0.3000002"),
    ("a float that became whole", "3.0", "3"),
    ("the type of an array", "array([1., 2.], dtype=float32)", "array([1., 2.], dtype=float64)"),
    ("the shape of an array", "(3, 4)", "(4, 3)"),
    ("rows of a table", "[5 rows x 3 columns]", "[6 rows x 3 columns]"),
    ("a version", "numpy 1.20", "numpy 1.2"),
    ("a price", "1.5", "1.50"),
    ("a sign", "-1.5", "1.5"),
    ("not a number", "nan", "0.0"),
    ("infinity", "1e999", "1e308"),
    ("what stayed on the screen", "10%\rdone\n", "10%\rdead\n"),
    ("a word under colours", "\x1b[31mred\x1b[0m", "\x1b[31mrot\x1b[0m"),
    ("how far a bar came", " 50%|█  | 5/10 [00:01<00:01, 5it/s]", " 60%|█  | 6/10 [00:01<00:01, 5it/s]"),
    ("the label of a bar", "a: 100%|█| 1/1 [00:01<00:00, 1it/s]", "b: 100%|█| 1/1 [00:01<00:00, 1it/s]"),
    ("what a bar tells", "100%|█| 1/1 [00:01<00:00, 1it/s, a=1]", "100%|█| 1/1 [00:01<00:00, 1it/s, a=2]"),
    ("the indentation of code", "if x:\n    y = 1\n", "if x:\n  y = 1\n"),
    ("space between words", "a b", "ab"),
    ("an empty cell elsewhere", "   a  b  c\n0  x     y\n1  u  v  w", "   a  b  c\n0  x  y   \n1  u  v  w"),
    (
        "an empty cell elsewhere beside numbers",
        "   a  b  c\n0  1     2\n1  3  4  5",
        "   a  b  c\n0  1  2   \n1  3  4  5",
    ),
    ("the column of a head", "   a  b\n0  1  2", "a  b\n0  1  2"),
    ("spaces between words", "a  b", "a b"),
    ("an empty line", "a\n\nb", "a\nb"),
    ("a line more", "1.0\n2.0\n", "1.0\n2.0\n3.0\n"),
    ("upper case", "Done", "done"),
]


@pytest.mark.parametrize("rule", sorted({rule for rule, _, _ in PASSES}))
def test_what_a_rule_lets_pass(rule: str):
    """With it, and it alone, both are the same; without it, or without any, they are different."""
    for recorded, replayed in ((one, two) for name, one, two in PASSES if name == rule):
        pair = stream(recorded), stream(replayed)
        assert judge(*pair) == ("same-normalized", [rule]), pair
        assert judge(*pair, RuleSet().only({rule})) == ("same-normalized", [rule]), pair
        assert judge(*pair, RuleSet().without(rule))[0] == "different", pair
        assert judge(*pair, STRICT)[0] == "different", pair


def test_what_no_rule_lets_pass():
    passed = [
        what
        for what, recorded, replayed in DIFFERS
        for pair in ((stream(recorded), stream(replayed)), (stream(replayed), stream(recorded)))
        if judge(*pair)[0] != "different"
    ]
    assert passed == []


def test_each_rule_on_text_has_an_example():
    elsewhere = {"interleaving", "working-directory", "durations", "last-digit", "alignment"}
    on_text = {rule.name for rule in RULES if {"stream", "JSON strings"} & set(rule.applies)}
    assert {rule for rule, _, _ in PASSES} | elsewhere == on_text


def test_a_duration_of_the_data_passes_only_on_request():
    pair = stream("swings in 2.01 s"), stream("swings in 2.07 s")
    assert judge(*pair, choose(on={"durations"})) == ("same-normalized", ["durations"])


def test_a_last_digit_passes_only_on_request():
    asked = choose(on={"last-digit"})
    assert judge(stream("0.3333"), stream("0.3334")) == ("different", [])
    assert judge(stream("0.3333"), stream("0.3334"), asked) == ("same-normalized", ["last-digit"])
    assert judge(stream("0.3333"), stream("0.3335"), asked) == ("different", [])
    assert judge(stream("3"), stream("4"), asked) == ("different", [])


def test_the_tolerance_is_chosen():
    pair = stream("loss 0.30000100"), stream("loss 0.30000200")
    assert judge(*pair, choose(relative=1e-5))[0] == "same-normalized"
    assert judge(*pair, choose(relative=1e-7))[0] == "different"
    residue = stream("[1.11022302e-16]"), stream("[0.00000000e+00]")
    assert judge(*residue)[0] == "different"
    assert judge(*residue, choose(absolute=1e-12))[0] == "same-normalized"


def test_the_copy_of_the_working_directory_counts_as_it():
    rules = choose(directory=("/data/project", "/tmp/krt-copy"))
    assert judge(stream("in /data/project/a"), stream("in /tmp/krt-copy/a"), rules) == (
        "same-normalized",
        ["working-directory"],
    )
    assert judge(stream("in /data/project/a"), stream("in /tmp/krt-copy/b"), rules)[0] == "different"
    assert judge(stream("in /data/project"), stream("in /tmp/krt-copyist"), rules)[0] == "different"


def test_columns_move_with_the_width_of_a_number():
    narrow = "       name     delay\n0       JFK  1.500000\n1  New York  2.250000"
    wide = (
        "       name                 delay\n0       JFK  1.5000000000000001\n1  New York            2.250000"
    )
    assert judge(stream(narrow), stream(wide)) == ("same-normalized", ["alignment", "number-tolerance"])
    moved = narrow.replace("New York", "New  York")
    assert judge(stream(narrow), stream(moved))[0] == "different"


def test_an_array_breaks_elsewhere():
    one = "array([0.1, 0.30000000000000004,\n       0.5, 0.7])"
    two = "array([0.1, 0.3, 0.5,\n       0.7])"
    assert judge(stream(one), stream(two)) == ("same-normalized", ["alignment", "number-tolerance"])
    assert judge(stream(one), stream(two.replace("0.7", "0.8")))[0] == "different"
    assert judge(stream("[[1. 2.]\n [3. 4.]]"), stream("[[1. 2. 3. 4.]]"))[0] == "different"


def test_a_rule_tells_what_it_passed_and_how_often():
    from kernel_runtime.replay.compare import compare_outputs

    found = compare_outputs(
        [stream("a"), stream("err", "stderr"), stream("<A at 0x7f0000000001>\n<B at 0x7f0000000002>\n")],
        [stream("a"), stream("err", "stderr"), stream("<A at 0x7f0000000003>\n<B at 0x7f0000000004>\n")],
    )
    (use,) = found.rules
    assert (use.rule, use.where, use.output, use.count) == ("addresses", "stdout", 2, 2)
    assert (use.recorded, use.replayed) == ("0x7f0000000001", "0x7f0000000003")


def test_the_diff_marks_only_what_no_rule_passed():
    from kernel_runtime.replay.compare import compare_outputs

    found = compare_outputs(
        [stream("at 2\n<A object at 0x7f0000000001>\nrows 7\n")],
        [stream("at 2\n<A object at 0x7f0000000002>\nrows 8\n")],
    )
    assert found.diff.splitlines() == [
        "output 0: stdout",
        "@@ stdout @@",
        "@@ -1,4 +1,4 @@",
        " at 2",
        " <A object at 0x7f0000000001>",
        "-rows 7",
        "+rows 8",
        " ",
    ]
    assert [difference.place for difference in found.differences] == [{"line": 3}]


def test_rules_are_chosen_by_name():
    from kernel_runtime.errors import UsageError

    assert choose(strict=True, on=["ansi"]).on == {"ansi"}
    assert "ansi" not in choose(off=["ansi"]).on
    with pytest.raises(UsageError, match="no rule is called 'colour'"):
        choose(on=["colour"])
    with pytest.raises(UsageError, match="both on and off"):
        choose(on=["ansi"], off=["ansi"])
    with pytest.raises(UsageError, match="tolerance"):
        choose(relative=-1.0)
