"""Lists of outputs: streams, order, mime types, errors, JSON, images; each rule from both sides."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kernel_runtime.replay.compare import RULES, STRICT, RuleSet, choose, compare, compare_outputs
from kernel_runtime.replay.plan import Step
from tests.unit.replay.comparing import bundle, error, judge, picture, shown, stream

VEGA = "application/vnd.vegalite.v5+json"


# -- streams


def test_how_a_stream_is_cut_into_pieces_is_no_difference():
    one = [stream("a\nb"), stream("c\n"), stream("x", "stderr")]
    two = [{"output_type": "stream", "name": "stdout", "text": ["a\n", "bc\n"]}, stream("x", "stderr")]
    assert judge(one, two, STRICT) == ("same", [])
    assert judge(one, [*two, stream("", "stdout")], STRICT) == ("same", [])


def test_two_streams_may_be_mixed_in_any_order_between_other_outputs():
    mixed = [stream("1\n"), stream("w\n", "stderr"), stream("2\n")]
    apart = [stream("w\n", "stderr"), stream("1\n2\n")]
    assert judge(mixed, apart) == ("same-normalized", ["interleaving"])
    assert judge(mixed, apart, RuleSet().without("interleaving"))[0] == "different"
    assert judge(mixed, [stream("w\n", "stderr"), stream("2\n1\n")])[0] == "different"
    assert (
        judge([stream("a"), shown("x"), stream("b")], [stream("a"), stream("b"), shown("x")])[0]
        == "different"
    )
    assert judge(stream("a", "stdout"), stream("a", "stderr"))[0] == "different"


# -- which outputs there are


@pytest.mark.parametrize(
    "recorded, replayed, why",
    [
        ([stream("a"), shown("x")], [stream("a")], "missing"),
        ([stream("a")], [stream("a"), shown("x")], "one more output"),
        ([shown("x"), stream("a")], [stream("a"), shown("x")], "the same kinds of outputs in another order"),
        ([shown("x")], [shown("x", "text/html")], "another kind of output"),
        ([shown("x")], [bundle(text_plain="x", text_html="x")], "another kind of output"),
        ([shown("x")], [{**shown("x"), "output_type": "execute_result"}], "another kind of output"),
        ([error("x")], [], "missing"),
    ],
)
def test_outputs_that_are_missing_more_or_others(
    recorded: Any, replayed: Any, why: str, monkeypatch: pytest.MonkeyPatch
):
    """nbdime pairs outputs where it is installed; without it the verdict is the same."""
    for nbdime in (True, False):
        if not nbdime:
            monkeypatch.setitem(sys.modules, "nbdime", None)
        found = compare_outputs(recorded, replayed)
        assert found.verdict == "different"
        told = {difference.why for difference in found.differences}
        assert why in told or (why == "another kind of output" and told == {"missing", "one more output"})
        assert found.diff


def test_the_missing_one_of_many_is_named():
    head = "<style>.dataframe { vertical-align: top; }</style>" * 9
    many = [shown(f"{head}<table><td>{'xyz'[n % 3] * 40 * n}</td></table>", "text/html") for n in range(1, 7)]
    found = compare_outputs(many, [*many[:2], *many[3:]])
    assert [(one.why, one.output) for one in found.differences] == [("missing", 2)]


def test_metadata_and_counts_are_told_and_not_compared():
    one = {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": 3}
    two = {**one, "execution_count": 5, "metadata": {"x": 1}}
    found = compare(
        Step(number=1, outputs=[one], execution_count=3),
        Step(number=1, outputs=[two], execution_count=5),
        STRICT,
    )
    assert found.verdict == "same"
    assert found.told == ["execution count 3 is 5", "metadata of output 0 differs"]


def test_each_representation_of_a_display_must_agree():
    one = bundle(text_plain="<Figure at 0x7f0000000001>", text_html="<b>1</b>")
    two = bundle(text_plain="<Figure at 0x7f0000000002>", text_html="<b>1</b>")
    assert judge(one, two) == ("same-normalized", ["addresses"])
    assert judge(one, bundle(text_plain="<Figure at 0x7f0000000002>", text_html="<b>2</b>"))[0] == "different"
    assert judge(shown("a", "text/x-new"), shown("b", "text/x-new"))[0] == "different"
    assert judge(shown("JVBERg==", "application/pdf"), shown("JVBERh==", "application/pdf"))[0] == "different"


def test_only_rules_that_are_needed_are_told():
    """An output full of what rules are for, of which one difference is left."""
    text = "\x1b[1m{'a', 'b'}\x1b[0m at 0x7f0000000001 took 0.1 s, 50%\b pid 77 %s"
    assert judge(stream(text.replace("%s", "0.30000000000000004")), stream(text.replace("%s", "0.3"))) == (
        "same-normalized",
        ["number-tolerance"],
    )


# -- errors

LIBRARY_FRAME = """\
File {root}/lib/python3.11/json/__init__.py:{line}, in loads(s, cls)
    {before}     if cls is None:
--> {line}         return _default_decoder.decode(s)
    {after}     return cls(**kw).decode(s)
"""
CELL_FRAME = """\
Cell In[{count}], line 2
      1 import json
----> 2 json.loads({code})
"""


def _traceback(
    *, root: str = "/usr", line: int = 346, count: int = 3, code: str = "'x'", function: str = ""
) -> Any:
    frame = LIBRARY_FRAME.format(root=root, line=line, before=line - 1, after=line + 1)
    return error(
        "\x1b[31m-----\x1b[39m",
        "\x1b[31mValueError\x1b[39m     Traceback (most recent call last)",
        CELL_FRAME.format(count=count, code=code),
        frame.replace("loads", function) if function else frame,
        "ValueError: no",
    )


@pytest.mark.parametrize(
    "change, rules",
    [
        ({"root": "/home/a/venv"}, ["library-paths"]),
        ({"line": 352}, ["library-frames"]),
        ({"count": 9}, ["execution-counts"]),
        ({"count": 9, "line": 400, "root": "/opt"}, ["execution-counts", "library-frames"]),
    ],
)
def test_tracebacks_that_say_the_same(change: Any, rules: list[str]):
    assert judge(_traceback(), _traceback(**change)) == ("same-normalized", rules)
    for rule in rules:
        alone = RuleSet().only(set(RuleSet().on) - {rule, "library-frames"})
        assert judge(_traceback(), _traceback(**change), alone)[0] == "different"


@pytest.mark.parametrize("change", [{"code": "'y'"}, {"function": "dumps"}])
def test_tracebacks_that_say_something_else(change: Any):
    assert judge(_traceback(), _traceback(**change))[0] == "different"


def test_another_error_or_message_is_different():
    assert judge(error("t"), error("t", ename="KeyError"))[0] == "different"
    assert judge(error("t"), error("t", evalue="other"))[0] == "different"
    assert judge(error("t", evalue="<A at 0x7f0000000001>"), error("t", evalue="<A at 0x7f0000000002>")) == (
        "same-normalized",
        ["addresses"],
    )
    fewer = _traceback()
    fewer["traceback"] = [fewer["traceback"][0], *fewer["traceback"][2:3], fewer["traceback"][4]]
    found = compare_outputs([_traceback()], [fewer])
    assert found.verdict == "different"


def test_lines_of_the_users_own_files_count():
    one, two = (error(f"File /home/me/project/model.py:{n}, in fit(x)\n----> {n} x.y") for n in (10, 11))
    assert judge(one, two)[0] == "different"


# -- JSON


@pytest.mark.parametrize(
    "recorded, replayed, rules",
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ["json-key-order"]),
        ({"a": [0.1 + 0.2]}, {"a": [0.3]}, ["number-tolerance"]),
        ({"a": "<X at 0x7f0000000001>"}, {"a": "<X at 0x7f0000000002>"}, ["addresses"]),
    ],
)
def test_json_that_says_the_same(recorded: Any, replayed: Any, rules: list[str]):
    pair = shown(recorded, "application/json"), shown(replayed, "application/json")
    assert judge(*pair) == ("same-normalized", rules)
    for rule in rules:
        assert judge(*pair, RuleSet().without(rule))[0] == "different"


def test_json_that_says_something_else():
    different: list[tuple[Any, Any]] = [
        (1, 2),
        (1, 1.0),
        (1, True),
        (0, None),
        ("1", 1),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({}, []),
        (0.3, 0.3001),
        (10**20, 10**20 + 1),
        ({"id": "a" * 32}, {"id": "b" * 32}),
        (float("nan"), 0.0),
        (float("inf"), 1e308),
    ]
    for recorded, replayed in different:
        one, two = shown(recorded, "application/json"), shown(replayed, "application/json")
        assert judge(one, two)[0] == "different", (recorded, replayed)
        assert judge(two, one)[0] == "different", (recorded, replayed)


def _chart(data: str, view: str, *, value: float = 1.5, used: str = "") -> Any:
    return shown(
        {
            "data": {"name": f"data-{used or data}"},
            "params": [{"name": "param_1", "views": [view]}],
            "name": view,
            "datasets": {f"data-{data}": [{"x": value, "name": "data"}]},
        },
        VEGA,
    )


def test_a_chart_may_name_its_data_otherwise_but_must_do_so_everywhere():
    one, two = "0" * 31 + "1", "0" * 31 + "2"
    assert judge(_chart(one, "view_1"), _chart(two, "view_4")) == ("same-normalized", ["random-ids"])
    assert judge(_chart(one, "view_1"), _chart(two, "view_1", used=one))[0] == "different"
    assert judge(_chart(one, "view_1"), _chart(two, "view_1", value=2.5))[0] == "different"
    assert judge(_chart(one, "view_1"), _chart(two, "view_4"), choose(off=["random-ids"]))[0] == "different"


def test_a_json_type_that_is_text_is_compared_as_json():
    assert judge(shown({"a": 1}, "text/plain"), shown({"a": 2}, "text/plain"))[0] == "different"
    assert judge(shown(["a\n", "b"], "text/plain"), shown("a\nb", "text/plain"), STRICT)[0] == "same"


# -- images


def _square(colour: Any, at: tuple[int, int] = (5, 5), side: int = 4) -> Any:
    def draw(image: Any) -> None:
        image.paste(colour, (*at, at[0] + side, at[1] + side))

    return draw


def _png(pixels: Any = None, **options: Any) -> Any:
    return shown(picture(pixels, **options), "image/png")


def test_an_image_is_its_pixels():
    from PIL import PngImagePlugin

    other_program = PngImagePlugin.PngInfo()
    other_program.add_text("Software", "another version")
    one, two = _png(_square((9, 9, 9))), _png(_square((9, 9, 9)), pnginfo=other_program, compress_level=1)
    assert judge(one, two) == ("same-normalized", ["image-metadata"])
    assert judge(one, two, RuleSet().without("image-metadata"))[0] == "different"
    assert judge(one, two, STRICT)[0] == "different"
    assert judge(one, shown(picture(_square((9, 9, 9)), mode="RGBA"), "image/png")) == (
        "same-normalized",
        ["image-metadata"],
    )


def test_what_nobody_sees_of_an_image_passes_and_its_bound_is_kept():
    faint, limit, beyond = (
        _square((122, 132, 138), side=20),
        _square((128, 130, 140), side=3),
        _square((129, 130, 140)),
    )
    assert judge(_png(), _png(faint)) == ("same-normalized", ["image-metadata", "image-perceptual"])
    assert judge(_png(), _png(limit))[0] == "same-normalized"
    assert judge(_png(), _png(beyond))[0] == "different"
    assert judge(_png(), _png(_square((124, 130, 140), side=4)))[0] == "different"  # 16 of 1200 pixels, 1.3 %
    assert judge(_png(), _png(faint), RuleSet().without("image-perceptual"))[0] == "different"


def test_an_image_of_another_size_or_with_other_marks_is_different():
    found = compare_outputs([_png(_square((9, 9, 9)))], [_png(_square((9, 9, 9), at=(6, 5)))])
    assert found.verdict == "different"
    (difference,) = found.differences
    assert difference.place == {"pixels": 8, "of": 1200, "largest": 131, "box": [5, 5, 10, 9]}
    assert "8 of 1200 pixels (0.667 %) differ, by up to 131 of 255" in found.diff
    larger = _png(size=(41, 30))
    assert judge(_png(), larger)[0] == "different"
    assert "40x30 pixels are 41x30" in compare_outputs([_png()], [larger]).diff


def test_frames_of_an_animation_count():
    from PIL import Image

    more = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    one = shown(picture(None, form="GIF", save_all=True, append_images=more), "image/gif")
    two = shown(picture(None, form="GIF", save_all=True, append_images=more[:1]), "image/gif")
    assert judge(one, two)[0] == "different"


def test_deep_grey_is_compared_exactly():
    def step(level: int) -> Any:
        return lambda image: image.putpixel((1, 1), level)

    pair = _png(step(1000), mode="I;16"), _png(step(1001), mode="I;16")
    assert judge(*pair)[0] == "different"


def test_what_is_no_image_is_compared_as_it_is():
    cut = picture(None)[:60]
    for broken in ("", "no base64!", "aGVsbG8=", "iVBORw0KGgo=", "\ud800", "é" * 8, cut):
        one, two = shown(broken, "image/png"), _png()
        assert judge(one, two)[0] == "different", broken
        assert judge(two, one)[0] == "different", broken
        assert judge(one, one) == ("same", []), broken


def test_postscript_is_not_run(monkeypatch: pytest.MonkeyPatch):
    """Pillow hands PostScript to a program, whatever mime type an output calls it by."""
    from PIL import EpsImagePlugin

    def run(*args: Any, **options: Any) -> None:
        raise AssertionError("PostScript was run")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    one, two = (shown(picture(_square(colour), form="EPS"), "image/png") for colour in ((1, 1, 1), (9, 9, 9)))
    found = compare_outputs([one], [two])
    assert "cannot be read, so its bytes were compared" in found.diff


def test_an_image_that_is_too_large_is_compared_by_bytes():
    one, two = (_png(mode="1", size=(6000, 5000), compress_level=level) for level in (1, 9))
    found = compare_outputs([one], [two])
    assert "too large" in found.diff


def test_without_pillow_images_are_compared_by_bytes_and_that_is_said(monkeypatch: pytest.MonkeyPatch):
    one, two = _png(), _png(compress_level=0)
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = compare_outputs([one], [two])
    assert found.verdict == "different"
    assert "pip install 'kernel-runtime[replay]'" in found.diff
    assert judge(one, one) == ("same", [])


def test_line_breaks_of_base64_are_no_difference():
    encoded = picture(None)
    broken = "\n".join(encoded[at : at + 60] for at in range(0, len(encoded), 60)) + "\n"
    assert judge(shown(encoded, "image/png"), shown(broken, "image/png"), STRICT) == ("same", [])


def test_every_rule_is_described():
    for rule in RULES:
        assert rule.description.endswith(".")
        assert rule.applies
