"""However text was cut into messages, nothing of it that was to go can be read in a row afterwards."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kernel_runtime.journal.forms import MARK, Forms
from kernel_runtime.journal.streams import Shared
from kernel_runtime.model import facts as f
from tests.unit.journal.support import printed

Entries = list[list[tuple[str, str]]]
"""entry → messages `(stream, text)`"""

entries = st.lists(
    st.lists(st.tuples(st.sampled_from(("stdout", "stderr")), st.text("äöü", max_size=5)), max_size=3),
    max_size=6,
)


def cleaned(forms: Forms, told: Entries) -> list[bytes]:
    """Payloads as a redaction leaves them."""
    shared, payloads = Shared(forms), list[bytes]()
    for seq, messages in enumerate(told):
        raws = []
        for stream, text in messages:
            content = {"name": stream, "text": text}
            raws.append(msgspec.Raw(msgspec.json.encode({"content": content, "type": "stream"})))
        less = forms.less_json(f.encode(f.OutputRecorded(messages=raws, execution_id="a")))
        payloads.append(less)
        for other, changed in shared.take(seq, "a", less, payloads.__getitem__).items():
            payloads[other] = changed
    return payloads


def joined(payloads: list[bytes], stream: str) -> str:
    said = ""
    for payload in payloads:
        fact = f.decode("OutputRecorded", payload)
        assert isinstance(fact, f.OutputRecorded)
        for raw in fact.messages:
            content = msgspec.json.decode(raw)["content"]
            said += content["text"] if content["name"] == stream else ""
    return said


@given(entries, st.text("äöü", min_size=1, max_size=7))
def test_nothing_of_it_is_left_in_a_row(told: Entries, secret: str):
    payloads = cleaned(Forms(secret), told)
    for stream in ("stdout", "stderr"):
        before = "".join(text for messages in told for name, text in messages if name == stream)
        after = joined(payloads, stream)
        assert secret not in after.replace(MARK, "\n")
        if secret not in before:
            assert after == before


@given(entries, st.text("äöü", min_size=2, max_size=4))
def test_only_it_is_taken_out(told: Entries, secret: str):
    """Put back where the marks are, it is what was said."""
    payloads = cleaned(Forms(secret), told)
    for stream in ("stdout", "stderr"):
        before = "".join(text for messages in told for name, text in messages if name == stream)
        assert joined(payloads, stream).replace(MARK, secret) == before


def test_other_executions_and_other_outputs_do_not_come_between():
    forms = Forms("secret")
    shared = Shared(forms)
    picture = f.OutputRecorded(
        execution_id="a", messages=[msgspec.Raw(b'{"content":{"data":{}},"type":"display_data"}')]
    )
    payloads: list[bytes] = []
    for seq, (owner, fact) in enumerate(
        [
            ("a", printed("a", "a sec")),
            ("b", printed("b", "ret")),
            ("a", picture),
            ("a", printed("a", "ret b")),
        ]
    ):
        payloads.append(f.encode(fact))
        for other, changed in shared.take(seq, owner, payloads[seq], payloads.__getitem__).items():
            payloads[other] = changed
    assert shared.found == 1
    assert b'"a [redacted]"' in payloads[0]
    assert b'"ret"' in payloads[1]
    assert b'" b"' in payloads[3]
