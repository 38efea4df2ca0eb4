"""What outputs bring along is made safe, whatever it is."""

from __future__ import annotations

import base64
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from kernel_runtime.replay.report import safe
from kernel_runtime.replay.report.outputs import MOST_OUTPUTS, MOST_TEXT, bounded, parts
from tests.unit.replay.report_samples import ACTIVE_SVGS, HTML, SVG, TEXTS, display, png, printed

VOID = {"br", "col", "hr", "img"}


class Tags(HTMLParser):
    """What a fragment opens, and what it closes without having opened it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.stray: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.stray.append(tag)


def is_contained(text: Markup) -> None:
    found = Tags(text)
    assert found.seen <= safe.TAGS
    assert found.attributes <= {"colspan", "rowspan", "span", "scope", "src", "alt"}
    assert (found.open, found.stray) == ([], [])
    assert safe.visible(str(text)) == text


@pytest.mark.parametrize("sample", HTML)
def test_known_attacks_come_out_as_tags_that_are_allowed(sample: str) -> None:
    is_contained(safe.html(sample))


_TAGS = (
    "svg math style template table td p li noscript title select b mglyph mtext annotation-xml form section"
)
_BITS = "<img <div <a src='x' onerror='a' href='javascript:a' id='b' <!-- --> <![CDATA[ ]]> &lt; &#x202e; > /"
PIECES = st.sampled_from(
    [f"<{end}{tag}>" for tag in _TAGS.split() for end in ("", "/")]
    + _BITS.split()
    + ["\x00", "\x1b[31m", "'"]
)


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_no_mixture_leaves_its_box(text: str) -> None:
    is_contained(safe.html(text))


@given(
    st.text()
    | st.lists(st.sampled_from(["\x1b[", "38;5;", "31", "m", "<", "&", "\r", "\b", "\x1b]", "\x07"])).map(
        "".join
    )
)
def test_a_terminals_text_becomes_spans_with_our_classes(text: str) -> None:
    found = Tags(safe.terminal(text))
    assert found.seen <= {"span"}
    assert found.attributes <= {"class"}
    assert (found.open, found.stray) == ([], [])


@pytest.mark.parametrize("sample", TEXTS)
def test_hostile_texts(sample: str) -> None:
    told = safe.terminal(sample)
    assert Tags(told).seen <= {"span"}
    assert safe.visible(str(told)) == told


def test_what_is_hidden_is_written_out() -> None:
    """A text that reads otherwise than it runs: bidirectional overrides, characters without a width."""
    assert safe.visible("a\u202eb\u200bc\x07\x7f\ud800") == "a⟨U+202E⟩b⟨U+200B⟩c␇␡⟨U+D800⟩"
    assert safe.visible("שלום\n\tعربي 👩‍👩‍👧") == "שלום\n\tعربي 👩‍👩‍👧"
    assert "⟨U+202E⟩" in safe.html("<p>&#x202e;x</p>")


def test_no_colour_hides_text() -> None:
    """Black on black, concealed, inverse: what an output chooses is not what is shown."""
    told = safe.terminal("\x1b[8;30;40mone\x1b[38;2;0;0;0mtwo\x1b[0;7mthree\x1b[31mfour\x1b[0m")
    assert "style" not in told
    assert "-bg" not in told
    assert 'class="ansi-red-fg' in safe.terminal("\x1b[31mred")


def test_an_unfinished_colour_is_no_error() -> None:
    """nbconvert's filter takes the number after 38 without looking whether there is one."""
    assert safe.terminal("\x1b[38mone <b>") == "one &lt;b&gt;"


def test_progress_bars_are_shown_as_they_ended() -> None:
    assert safe.terminal(" 10%\r 50%\r100%\n") == "100%\n"


@pytest.mark.parametrize("sample", ACTIVE_SVGS)
def test_an_svg_that_does_or_loads_something_is_not_shown(sample: str) -> None:
    with pytest.raises(safe.Unsafe):
        safe.image("image/svg+xml", sample)
    (part,) = parts([display("image/svg+xml", sample, **{"text/plain": "a plot"})], "here")
    assert (part.kind, part.body) == ("text", "a plot")
    assert "image/svg+xml is not shown" in part.notes[0]


def test_pictures() -> None:
    assert safe.image("image/png", png(8, 4))[1] == "8 by 4 pixels"
    styled = SVG.format("<defs><style>*{stroke-linejoin: round}</style></defs><use xlink:href='#a'/>")
    assert safe.image("image/svg+xml", styled)[0].startswith("data:image/svg+xml;base64,")
    for mime, data in [
        ("image/jpeg", png()),
        ("image/png", "no base64!"),
        ("image/png", base64.b64encode(b"<script>alert(1)</script>").decode()),
        ("image/png", "A" * (5 << 20)),
        ("image/x-icon", png()),
    ]:
        with pytest.raises(safe.Unsafe):
            safe.image(mime, data)


def test_a_picture_in_html_was_looked_at() -> None:
    kept = safe.html(f"<img src='data:image/png;base64,{png()}'>")
    assert 'src="data:image/png;base64,' in kept
    assert 'alt="' in kept
    for source in (
        "data:image/png;base64,AAAA",
        "data:text/html;base64,AAAA",
        "file:///etc/passwd",
        "//x/y.png",
    ):
        assert "src" not in safe.html(f"<img src='{source}'>")


def test_long_texts_are_cut_in_their_middle() -> None:
    told = bounded("begin " + "x" * (10 * MOST_TEXT) + " end")
    assert told.startswith("begin ")
    assert told.endswith(" end")
    assert "[180,010 characters are left out here]" in told
    assert len(told) < MOST_TEXT + 200


def test_many_outputs_are_cut_in_their_middle() -> None:
    told = parts([printed(f"{number}\n") for number in range(1000)], "here")
    assert (told[0].body, told[-1].body) == ("0\n", "999\n")
    assert len(told) == MOST_OUTPUTS + 1
    assert told[MOST_OUTPUTS // 2].notes == ["950 outputs of 1,000 are left out here."]


def test_large_html_gives_way_to_text() -> None:
    (part,) = parts([display("text/html", "<b>" * 100_000, **{"text/plain": "small"})], "here")
    assert part.body == "small"
    assert "300,000 characters" in part.notes[0]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["output_type", "data", "text", "text/html", "image/png"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_whatever_calls_itself_outputs_is_shown(outputs: object) -> None:
    for part in parts([outputs], "here"):
        assert isinstance(part.body, Markup)
