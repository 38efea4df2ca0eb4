"""A text that two or more stream messages share: its beginning ends one, its end begins the next.

Where stream text is cut into messages depends on when somebody looked, so a text that was printed in one
go may stand in two. Only as it is: in a form (see `forms`) it is looked for within one message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec
from msgspec import Struct, structs

from kernel_runtime.journal.forms import MARK, Forms
from kernel_runtime.model import facts
from kernel_runtime.model.facts import OutputRecorded

_MOST = 1000
"""streams whose last text is remembered"""

_encode = msgspec.json.Encoder(order="sorted").encode


class _Message(Struct):
    type: str = ""
    content: msgspec.Raw = msgspec.Raw(b"{}")


class _Said(Struct):
    messages: list[_Message] = []


class _Content(Struct):
    name: str = ""
    text: str = ""


class _Piece(Struct, frozen=True):
    """The end of one message: what may be the text's beginning."""

    seq: int
    index: int
    text: str


_said = msgspec.json.Decoder(_Said).decode
_content = msgspec.json.Decoder(_Content).decode


class Shared:
    """Goes through a journal's OutputRecorded in order."""

    def __init__(self, forms: Forms) -> None:
        self.found = 0
        """times that the text was cut in pieces"""
        self._text = forms.text
        self._tails: OrderedDict[tuple[str | None, str], list[_Piece]] = OrderedDict()

    def take(
        self, seq: int, owner: str | None, payload: bytes, earlier: Callable[[int], bytes]
    ) -> dict[int, bytes]:
        """Payloads that change by what this one goes on with, this one included.

        Args:
            seq: of the entry.
            owner: its execution.
            payload: its JSON, without the text as a whole.
            earlier: gives the payload of an earlier entry, as it is by now.
        """
        changed: dict[int, bytes] = {}
        if b'"stream"' not in payload:
            return changed
        for index, message in enumerate(_said(payload).messages):
            if message.type != "stream":
                continue
            content = _content(message.content)
            place = (owner, content.name)
            tail = self._tails.pop(place, [])
            text = content.text
            began = "".join(piece.text for piece in tail)
            at = (began + text[: len(self._text) - 1]).find(self._text) if began else -1
            if at >= 0:
                self.found += 1
                cut = at + len(self._text) - len(began)
                changed[seq] = _edited(changed.get(seq, payload), index, text[cut:])
                text = text[cut:]
                for nth, (piece, keep) in enumerate(_cuts(tail, at)):
                    now = changed.get(piece.seq) or earlier(piece.seq)
                    changed[piece.seq] = _shortened(now, piece, keep, mark="" if nth else MARK)
                tail = []
            self._remember(place, [*tail, _Piece(seq, index, text)])
        return changed

    def _remember(self, place: tuple[str | None, str], pieces: list[_Piece]) -> None:
        """Keep as much of the end as is a beginning of the text."""
        joined = "".join(piece.text for piece in pieces)
        left = self._begun(joined[-len(self._text) + 1 :] if len(self._text) > 1 else "")
        kept: list[_Piece] = []
        for piece in reversed(pieces):
            if left <= 0:
                break
            part = piece.text[-left:]
            left -= len(part)
            if part:
                kept.append(_Piece(piece.seq, piece.index, part))
        if kept:
            self._tails[place] = kept[::-1]
            if len(self._tails) > _MOST:
                self._tails.popitem(last=False)

    def _begun(self, end: str) -> int:
        at = end.find(self._text[0])
        while at >= 0:
            if self._text.startswith(end[at:]):
                return len(end) - at
            at = end.find(self._text[0], at + 1)
        return 0


def _cuts(tail: list[_Piece], at: int) -> list[tuple[_Piece, int]]:
    """`(piece, characters of it that stay)` of each piece from `at` on, counted over all of them."""
    found: list[tuple[_Piece, int]] = []
    start = 0
    for piece in tail:
        end = start + len(piece.text)
        if end > at:
            found.append((piece, max(0, at - start)))
        start = end
    return found


def _shortened(payload: bytes, piece: _Piece, keep: int, *, mark: str) -> bytes:
    """The message without its end."""
    text = _content(_said(payload).messages[piece.index].content).text
    return _edited(payload, piece.index, text[: len(text) - len(piece.text) + keep] + mark)


def _edited(payload: bytes, index: int, text: str) -> bytes:
    fact = facts.decode("OutputRecorded", payload)
    assert isinstance(fact, OutputRecorded)
    message = msgspec.json.decode(fact.messages[index])
    message["content"]["text"] = text
    messages = [*fact.messages[:index], msgspec.Raw(_encode(message)), *fact.messages[index + 1 :]]
    return facts.encode(structs.replace(fact, messages=messages))
