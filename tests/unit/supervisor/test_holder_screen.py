"""What is on a terminal, drawn when somebody asks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.supervisor.holder_drawing import WINDOW, Drawing
from kernel_runtime.supervisor.holder_screen import TerminalScreen

PIECES = st.lists(
    st.sampled_from(
        [
            "word ",
            "\r\n",
            "\x1b[31m",
            "\x1b[1;44m",
            "\x1b[0m",
            "\x1b[38;5;208m",
            "\x1b[7m",
            "\x1b[2;3H",
            "\x1b[K",
            "\x1b[2J",
            "漢字",
            "e\u0301",
            "\x1b[?25l",
            "\x1b[?1049h",
            "\x1b[?1049l",
            "\x1b[?2004h",
            "\x1b[>4;1m",
            "\x1b[?1m",
            "\x1b[3;5r",
            "\x1b[r",
            "\t",
            "\b",
            "\x1b]0;a title\x07",
        ]
    ),
    max_size=40,
)


def drawn(drawing: Drawing) -> dict[str, object]:
    found: list[dict[str, object]] = []
    drawing.when_drawn(lambda: found.append(drawing.document()))
    while drawing.pending:
        drawing.step()
    return found[0]


@given(pieces=PIECES)
def test_a_terminal_that_joins_shows_what_the_other_shows(pieces: list[str]) -> None:
    one = TerminalScreen(6, 20)
    one.feed("".join(pieces).encode())
    other = TerminalScreen(6, 20)
    other.feed(one.render())
    expected, found = one.document(), other.document()
    assert found["lines"] == expected["lines"]
    assert found["cursor"] == expected["cursor"]
    one.feed(b"\r\nmore")
    other.feed(b"\r\nmore")
    assert other.document()["lines"] == one.document()["lines"]


def test_a_full_screen_program_gives_back_the_screen_it_found() -> None:
    screen = TerminalScreen(4, 20)
    screen.feed(b"$ edit\r\n\x1b[?1049h\x1b[H\x1b[2Jfile contents\x1b[4;1Hstatus line")
    assert screen.document()["lines"] == ["file contents", "", "", "status line"]
    screen.feed(b"\x1b[?1049l$ ")
    assert screen.document()["lines"] == ["$ edit", "$", "", ""]


def test_codes_that_are_not_known_cost_nothing() -> None:
    screen = TerminalScreen(2, 40)
    screen.feed(b"\x1b[>4;1mone \x1b[?1mtwo \x1b[38;5;mthree \x1b[999;1Hend\x1b[1;1H\xff\xfe")
    assert screen.document()["lines"] == ["\ufffd\ufffde two three", "end"]


def test_all_that_was_said_is_drawn() -> None:
    drawing = Drawing(3, 20)
    drawing.heard(b"one\r\ntwo\r\n")
    assert drawn(drawing)["lines"] == ["one", "two", ""]
    drawing.heard(b"three\r\n")
    document = drawn(drawing)
    assert document["lines"] == ["two", "three", ""]
    assert document["since"] == "start"


def test_a_flood_is_cut_and_said_to_be() -> None:
    drawing = Drawing(3, 20)
    for number in range(40_000):
        drawing.heard(b"line %d\r\n" % number)
    document = drawn(drawing)
    assert document["lines"] == ["line 39998", "line 39999", ""]
    assert document["since"] == "cut"


def test_after_a_flood_a_cleared_screen_is_whole() -> None:
    drawing = Drawing(3, 20)
    drawing.heard(b"\x1b[31mnoise\r\n" * WINDOW)
    drawing.heard(b"\x1b[2J\x1b[Hmenu\r\n1) go")
    document = drawn(drawing)
    assert document["lines"] == ["menu", "1) go", ""]
    assert document["since"] == "clear"


def test_who_asks_during_a_flood_is_answered() -> None:
    drawing = Drawing(3, 20)
    drawing.heard(b"x\r\n" * 100)
    found: list[str] = []
    drawing.when_drawn(lambda: found.append(drawing.document()["since"]))
    for number in range(2000):
        if not drawing.pending:
            break
        drawing.heard(b"line %d of a flood that never ends\r\n" % number * 1000)
        drawing.step()
    assert found == ["cut"]


def test_the_size_changes_between_what_was_said_before_and_after() -> None:
    drawing = Drawing(3, 10)
    drawing.heard(b"0123456789abc\r\n")
    assert drawn(drawing)["lines"] == ["0123456789", "abc", ""]
    drawing.resize(4, 20)
    drawing.heard(b"0123456789abc")
    document = drawn(drawing)
    assert document["lines"] == ["0123456789", "abc", "0123456789abc", ""]
    assert (document["rows"], document["cols"]) == (4, 20)


def test_a_smaller_window_keeps_what_is_around_the_cursor() -> None:
    screen = TerminalScreen(6, 20)
    screen.feed(b"one\r\ntwo\r\nthree\r\n> 0123456789")
    screen.resize(5, 20)
    assert screen.document()["lines"] == ["one", "two", "three", "> 0123456789", ""]
    screen.resize(2, 8)
    document = screen.document()
    assert document["lines"] == ["three", "> 012345"]
    assert document["cursor"] == {"row": 1, "col": 7, "hidden": False}
