"""A text is found in every form that our files give it, and nothing else is touched."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.journal.forms import MARK, Forms
from kernel_runtime.model import facts

SECRET = 'tür"\\9\n<&>'
"""with what JSON, HTML, a URL and `repr` each write in another way"""


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps(SECRET)),
        repr(SECRET),
        "t&uuml;r is another one, tür&quot;\\9\n&lt;&amp;&gt; is it",
        "https://host/?q=t%C3%BCr%22%5C9%0A%3C%26%3E",
        "".join(f"\x1b[3{n % 8}m{letter}" for n, letter in enumerate(SECRET)),
    ],
)
def test_each_form_is_taken_out(shown: str):
    forms = Forms(SECRET)
    less = forms.less_text(f"before {shown} after")
    assert MARK in less
    assert less.startswith("before ")
    assert less.endswith(" after")
    assert forms.less_text(less) == less


@given(st.text(min_size=1, max_size=8), st.lists(st.text(max_size=12), max_size=6))
def test_no_string_of_json_holds_it_afterwards(secret: str, around: list[str]):
    """Whatever it is made of; between the marks, since it may be a part of the mark itself."""
    value = [[f"{part}{secret}{part}" for part in around], 1e300, 10**30]
    texts, *numbers = json.loads(Forms(secret).less_json(json.dumps(value).encode()))
    pieces = [piece for text in texts for piece in text.split(MARK)]
    assert secret in MARK or not any(secret in piece for piece in pieces)
    assert numbers == value[1:]


def test_what_is_not_a_string_stays_byte_for_byte():
    payload = b'{"big":123456789012345678901234567890,"one":1.0,"text":"\\u0061 1.0 secret"}'
    less = Forms("secret").less_json(payload)
    assert less == b'{"big":123456789012345678901234567890,"one":1.0,"text":"a 1.0 [redacted]"}'
    assert Forms("1.0").less_json(payload).startswith(b'{"big":123456789012345678901234567890,"one":1.0,')


def test_letters_that_a_writer_escaped_are_read():
    assert Forms("pass/word").less_json(rb'["\u0070ass\/word"]') == b'["[redacted]"]'


def test_nothing_in_there_is_the_same_object():
    payload = b'{"text":"nothing\\n"}'
    assert Forms("secret").less_json(payload) is payload


def test_a_fact_is_rewritten_in_all_its_strings():
    fact = facts.ProcessSpawned(
        process_id="p1", argv=["login", "--with", "hunter2"], cwd="/", pid=1, start_time=2, boot_id="b"
    )
    assert Forms("hunter2").less(fact) == msgspec.structs.replace(fact, argv=["login", "--with", MARK])
    assert Forms("hunter3").less(fact) is fact


@pytest.mark.parametrize("word", ["text", "stdout", "source", "OutputRecorded", "redacted", "traceback"])
def test_words_of_the_format_are_known(word: str):
    assert Forms(word).is_of_the_format
    assert not Forms(f"{word}-hunter2").is_of_the_format


def test_bytes_of_a_file_keep_their_length():
    forms = Forms("hünter")
    data = "a hünter b h\\u00fcnter c".encode()
    less = forms.blanked(data)
    assert len(less) == len(data)
    assert not forms.is_in(less)
    assert forms.is_in(data)
