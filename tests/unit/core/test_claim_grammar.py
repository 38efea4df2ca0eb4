"""Probes: what can be read, and what is said of what cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.core.claim_grammar import KINDS, parse
from kernel_runtime.core.claims import (
    Environment,
    Expression,
    File,
    Http,
    Managed,
    Name,
    Pid,
    Port,
    Probe,
)
from kernel_runtime.errors import BadProbe

HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@pytest.mark.parametrize(
    "text, probe",
    [
        ("port 3000 listens", Port(3000)),
        ("  port   3000   listens ", Port(3000)),
        ("port 53/udp listens", Port(53, protocol="udp")),
        ("port 127.0.0.1:5432 listens", Port(5432, "127.0.0.1")),
        ("port [::1]:8080/tcp listens", Port(8080, "::1")),
        ("port localhost:80 listens", Port(80)),
        ('pid 4711 is "npm run dev"', Pid(4711, "is", "npm run dev")),
        ("pid 4711 is 'a \"b\" c'", Pid(4711, "is", 'a "b" c')),
        (r'pid 4711 is "a \"b\" \\"', Pid(4711, "is", 'a "b" \\')),
        ("pid 4711 contains npm", Pid(4711, "contains", "npm")),
        ("pid 4711 runs", Pid(4711, "runs")),
        ("process p1 runs", Managed("p1")),
        ("name df exists", Name("df", "exists")),
        ("name df has 336,776 rows", Name("df", "rows", number=336_776)),
        ("name df has 1 row", Name("df", "rows", number=1)),
        ("name df has 19 columns", Name("df", "columns", number=19)),
        ("name df is pandas.DataFrame", Name("df", "type", text="pandas.DataFrame")),
        ("name größe == [1, 'a b', None]", Name("größe", "equals", text="[1, 'a b', None]")),
        ("file out.csv exists", File("out.csv")),
        (f"file out.csv exists sha256 {HEX.upper()} 120 bytes", File("out.csv", sha256=HEX, bytes=120)),
        (f"file out.csv 0 bytes sha256 {HEX}", File("out.csv", sha256=HEX, bytes=0)),
        ('file "my out.csv" missing', File("my out.csv", exists=False)),
        ("http 200 at http://127.0.0.1:3000/health", Http("http://127.0.0.1:3000/health", 200)),
        ("http answers at https://localhost", Http("https://localhost")),
        ("env HOME exists", Environment("HOME")),
        ('env A is "x y"', Environment("A", "x y")),
        ("env A is ''", Environment("A", "")),
        ("expr len(df) == 336776", Expression("len(df) == 336776")),
        ("expr '\"' in s", Expression("'\"' in s")),
    ],
)
def test_a_probe_is_read(text: str, probe: Probe) -> None:
    assert parse(text) == probe


@pytest.mark.parametrize(
    "text, column, expected",
    [
        ("", 1, "one of port, pid"),
        ("prot 3000 listens", 1, "one of port, pid"),
        ("port", 5, "a port"),
        ("port abc listens", 6, "a port from 1 to 65535"),
        ("port 70000 listens", 6, "a port from 1 to 65535"),
        ("port 3000 listen", 11, "'listens'"),
        ("port 3000 listens now", 19, "nothing more"),
        ("pid 0 runs", 5, "a process id"),
        ("pid 4711 is npm run dev", 13, "a command line in quotes"),
        ('pid 4711 is "npm run', 21, 'a closing "'),
        ('pid 4711 is ""', 13, "a command line in quotes"),
        ("name df.x exists", 6, "a Python name"),
        ("name df has many rows", 13, "a number"),
        ("name df has 3 lines", 15, "'rows' or 'row'"),
        ("name df == len(x)", 12, "a literal"),
        ("file out.csv", 13, "exists or missing"),
        ("file out.csv exists exists", 21, "sha256 or a size"),
        ("file out.csv sha256 12", 21, "64 hexadecimal digits"),
        ("http 99 at http://localhost", 6, "a status"),
        ("http 200 at ftp://localhost", 13, "http://"),
        ("http 200 at http://u:p@localhost", 13, "no password"),
        ("http 200 at http://[", 13, "can be read"),
        ("http 200 at http://localhost:99999", 13, "can be read"),
        ("env 1A exists", 5, "the name of a variable"),
        ("expr", 5, "a Python expression"),
        ("expr a = 1", 8, "a Python expression"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_was_expected_and_where(
    text: str, column: int, expected: str
) -> None:
    with pytest.raises(BadProbe) as refused:
        parse(text)
    assert refused.value.fields["column"] == column
    assert expected in refused.value.fields["expected"]
    assert f"at column {column}" in refused.value.message
    assert refused.value.exit_code == 2


def test_a_probe_has_a_bound() -> None:
    with pytest.raises(BadProbe, match="at most"):
        parse("expr " + "1+" * 10_000 + "1")


@given(
    st.one_of(
        st.text(max_size=60),
        st.tuples(st.sampled_from(KINDS), st.text(max_size=40)).map(" ".join),
        st.lists(
            st.sampled_from(
                [*KINDS, "exists", "listens", "is", "has", "at", '"', "'", "==", "12", "x", "sha256"]
            )
        ).map(" ".join),
    )
)
def test_any_text_is_a_probe_or_a_bad_probe(text: str) -> None:
    try:
        parse(text)
    except BadProbe as error:
        column = error.fields["column"]
    else:
        column = 1
    assert 1 <= column <= len(text) + 1
