"""HTML and SVG by structure; tables by cells; generated ids renamed one to one."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.replay.compare import RuleSet, compare_outputs
from kernel_runtime.replay.compare.markup import scan
from tests.unit.replay.comparing import judge, shown

FRAME = """<div>
<style scoped>
    .dataframe tbody tr th { vertical-align: top; }
</style>
<table border="1" class="dataframe">
  <thead>
    <tr style="text-align: right;">
      <th></th>
      <th>carrier</th>
      <th>fare</th>
    </tr>
  </thead>
  <tbody>
    <tr>
      <th>0</th>
      <td>UA</td>
      <td>1.500000</td>
    </tr>
    <tr>
      <th>1</th>
      <td>AA</td>
      <td>0.30000000000000004</td>
    </tr>
  </tbody>
</table>
<p>2 rows \u00d7 2 columns</p>
</div>"""
STYLED = """<style type="text/css">
#T_{0}_row0_col0 {{ color: red; }}
</style>
<table id="T_{0}"><tbody><tr><td id="T_{1}_row0_col0" class="data">5</td></tr></tbody></table>"""
FIGURE = """<?xml version="1.0" encoding="utf-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10">
 <metadata><rdf:RDF><dc:date>{date}</dc:date></rdf:RDF></metadata>
 <defs><clipPath id="p{clip}"><rect x="1" y="2"/></clipPath><path id="m{mark}" d="M 0 1"/></defs>
 <g clip-path="url(#p{used})"><use xlink:href="#m{mark}" x="{x}"/></g>
</svg>"""


def html(one: str, two: str, rules: RuleSet | None = None) -> tuple[str, list[str]]:
    return judge(shown(one, "text/html"), shown(two, "text/html"), rules)


@pytest.mark.parametrize(
    "one, two, rule",
    [
        ('<a class="x" id="y">t</a>', "<A id='y'  class=x>t</A>", "markup"),
        ("<p>a\n   b</p>  <p>c</p>", "<p>a b</p><p>c</p>", "markup"),
        ("<p>a &lt; b</p>", "<p>a &#60; b</p>", "markup"),
        (FRAME, FRAME.replace("0.30000000000000004", "0.3"), "number-tolerance"),
        (
            "<pre>&lt;A object at 0x7f0000000001&gt;</pre>",
            "<pre>&lt;A object at 0x7f0000000002&gt;</pre>",
            "addresses",
        ),
        (STYLED.format("ab12c", "ab12c"), STYLED.format("99f0e", "99f0e"), "random-ids"),
        (
            '<div id="sk-container-id-1"></div><style>#sk-container-id-1 {}</style>',
            '<div id="sk-container-id-7"></div><style>#sk-container-id-7 {}</style>',
            "random-ids",
        ),
        (
            f'<div id="altair-viz-{"1" * 32}"></div><script>f("altair-viz-{"1" * 32}")</script>',
            f'<div id="altair-viz-{"2" * 32}"></div><script>f("altair-viz-{"2" * 32}")</script>',
            "random-ids",
        ),
    ],
)
def test_markup_that_says_the_same(one: str, two: str, rule: str):
    assert html(one, two) == ("same-normalized", [rule])
    assert html(one, two, RuleSet().without(rule))[0] == "different"
    assert html(one, two, RuleSet().only({rule})) == ("same-normalized", [rule])


def test_markup_that_says_something_else():
    different = [
        ("<b>1</b>", "<i>1</i>"),
        ("<b>1</b>", "<b>2</b>"),
        ("<b>1</b>", "1"),
        ("<p>one two</p>", "<p>onetwo</p>"),
        ("<pre>a  b</pre>", "<pre>a b</pre>"),
        ("<b>a</b> <b>b</b>", "<b>a</b><b>b</b>"),
        ("<b>a</b> b", "<b>a</b>b"),
        ('<td data-value="p0123456789">1</td>', '<td data-value="p0123456788">1</td>'),
        ('<a href="/x">t</a>', '<a href="/y">t</a>'),
        ('<a href="/x">t</a>', "<a>t</a>"),
        ('<td class="up">1</td>', '<td class="down">1</td>'),
        ("<script>f(1)</script>", "<script>f(2)</script>"),
        ('<img src="data:image/png;base64,AAAA">', '<img src="data:image/png;base64,AAAB">'),
        (f'<a href="/file/{"1" * 32}">t</a>', f'<a href="/file/{"2" * 32}">t</a>'),
        (f"<code>{'1' * 32}</code>", f"<code>{'2' * 32}</code>"),
        (STYLED.format("ab12c", "ab12c"), STYLED.format("99f0e", "ab12c")),
        (STYLED.format("ab12c", "ab12c"), STYLED.format("ab12c", "99f0e")),
        (STYLED.format("ab12c", "99f0e"), STYLED.format("99f0e", "99f0e")),
        (FRAME, FRAME.replace("UA", "DL")),
        (FRAME, FRAME.replace("2 rows", "3 rows")),
        (FRAME, FRAME.replace("<td>UA</td>", "")),
        ("<!-- a --><p>", "<!-- b --><p>"),
    ]
    passed = [
        pair for pair in different for one, two in (pair, pair[::-1]) if html(one, two)[0] != "different"
    ]
    assert passed == []


def test_a_cell_of_a_table_is_named():
    found = compare_outputs(
        [shown(FRAME, "text/html")],
        [shown(FRAME.replace("1.500000", "1.600000").replace("AA", "DL"), "text/html")],
    )
    assert [(one.place, one.recorded, one.replayed) for one in found.differences] == [
        ({"row": 1, "column": "fare"}, "1.500000", "1.600000"),
        ({"row": 2, "column": "carrier"}, "AA", "DL"),
    ]
    assert "@@ text/html (row 1, column fare) @@\n-1.500000\n+1.600000" in found.diff


def _figure(clip: str, *, used: str = "", date: str = "2023-11-14T22:13:20.1", x: str = "7.5") -> Any:
    figure = FIGURE.format(clip=clip, used=used or clip, mark=clip[::-1], date=date, x=x)
    return shown(figure, "image/svg+xml")


def test_an_svg_is_what_it_draws():
    one, two = "0123456789", "abcdef0123"
    assert judge(_figure(one), _figure(two)) == ("same-normalized", ["random-ids"])
    assert judge(_figure(one), _figure(one, date="2001-01-01")) == ("same-normalized", ["image-metadata"])
    assert (
        judge(_figure(one), _figure(one, date="2001-01-01"), RuleSet().without("image-metadata"))[0]
        == "different"
    )
    assert judge(_figure(one), _figure(one, x="7.50000000001"))[0] == "same-normalized"
    assert judge(_figure(one), _figure(one, x="7.6"))[0] == "different"
    assert judge(_figure(one), _figure(two, used="abcdef0124"))[0] == "different"


def test_scanning_loses_nothing():
    for source in (
        FRAME,
        "<",
        "<a",
        "<a b='",
        '<a b="c>d">e</a>',
        "a < b > c",
        "<!--",
        "<!doctype html><p>",
        "</",
        "</p",
        "<script>if (a < b) { '</p>' }</script>",
        "<script>never closed",
        "<svg/><path d='M 0'/>",
        "<p =x>",
        "<p a=\"1\"b='2'c>",
        "&#99999999999999999999999;",
        "\ud800<\ud800>",
    ):
        for xml in (False, True):
            assert "".join(piece.raw for piece in scan(source, xml=xml)) == source
