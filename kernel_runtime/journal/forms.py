"""A text to be taken out, in every form in which our files can hold it; and what stands there instead.

Forms: as it is; escaped as in a JSON string, once and twice, with and without other letters than ASCII;
as HTML has it; as a URL has it; with a terminal's colours between its letters. In JSON each string is
looked at as it reads, so its escapes do not matter, and everything else stays byte for byte.

Not found: the text in other clothes (base64, reversed, hashed, cut in pieces by code). A digest of a
short text can be guessed from what is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, structs

from kernel_runtime.model import facts

MARK = "[redacted]"
"""what stands where the text stood"""

SHORTEST = 4
"""characters from which a text is taken out without being asked twice"""

FILL = b"*"
"""what stands in a file whose length must stay"""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLOUR = r"(?:\x1b\[[0-9;]*m)*"
_OF_THE_FORMAT = """
    name text data metadata content type buffers transient display_id execution_count ename evalue
    traceback stdout stderr stream error display_data execute_result update_display_data clear_output
    comm_open comm_msg comm_close comm_id target_name wait source payload user_expressions queued running
    blocked done aborted interrupted unknown bound rebound mutated deleted touched header parent_header
    identity msg_id username session date version status true false file process connect environment
    text/plain text/html application/json image/png image/svg+xml krt jupyter
    kind path host port argv cwd pid bytes digest write written create created remove rename connect listening
    address family exit_status signal command prompt echo goal completed next_action verification risks
    references claims observed replaced reason evidence truth value timeout allow names reads effects packages
    python platform implementation executable prefix commit branch dirty start_time boot_id since count
    environ environment terminal resource url method exists position incarnation principal shares spawn
    started_by late dropped_bytes dropped_lines lines
"""
_WORDS = frozenset(_OF_THE_FORMAT.split())
_encode = msgspec.json.Encoder().encode


class Forms:
    """One text and its forms."""

    def __init__(self, text: str) -> None:
        """`text` must not be empty."""
        self.text = facts.escape_text(text)
        self.forms = _forms(self.text)
        """longest first"""
        self.needles = [form.encode("utf-8") for form in self.forms]
        """the same as bytes, to look for in files"""
        coloured = _COLOUR.join(map(re.escape, self.text))
        self._coloured = re.compile(coloured)
        # escaped letter by letter (`\u0061`), as some writers of JSON may have it, it shows a backslash
        plain = _encode(self.text)[1:-1] == self.text.encode("utf-8")
        self._plain = plain and self.text.isascii() and "/" not in self.text

    @property
    def is_of_the_format(self) -> bool:
        """Whether it is part of a word that the journal itself is written with.

        Keys of JSON are looked at like any string, since a name may be a secret: these must stay.
        """
        fields = (name for kind in facts.KINDS.values() for name in kind.__struct_fields__)
        return any(self.text in word for word in (*_WORDS, *facts.KINDS, *fields, MARK))

    def less_text(self, text: str) -> str:
        """The text without it."""
        for form in self.forms:
            if form in text:
                text = text.replace(form, MARK)
        if "\x1b" in text:
            text = self._coloured.sub(MARK, text)
        return text

    def less_json(self, payload: bytes) -> bytes:
        """JSON without it: the same object where it is not in there."""
        if not self._may_be_in(payload):
            return payload
        less = _STRING.sub(self._less_string, payload)
        return payload if less == payload else less

    def less(self, value: Any) -> Any:
        """A value of structs, dicts, lists and strings without it; the same object where nothing changed."""
        if isinstance(value, str):
            less = self.less_text(value)
            return value if less == value else less
        if isinstance(value, msgspec.Raw):
            raw = bytes(value)
            cleaned = self.less_json(raw)
            return value if cleaned is raw else msgspec.Raw(cleaned)
        if isinstance(value, Struct):
            new = {name: self.less(getattr(value, name)) for name in value.__struct_fields__}
            changed = {name: item for name, item in new.items() if item is not getattr(value, name)}
            return structs.replace(value, **changed) if changed else value
        if isinstance(value, Mapping):
            pairs = {self.less(key): self.less(item) for key, item in value.items()}
            same = all(k in value and value[k] is item for k, item in pairs.items())
            return value if same and len(pairs) == len(value) else pairs
        if isinstance(value, list | tuple):
            items = [self.less(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return items if isinstance(value, list) else tuple(items)
        return value

    def is_in(self, data: bytes) -> bool:
        """Whether bytes of a file hold it, in a form that can be seen without reading the file's format."""
        return any(needle in data for needle in self.needles)

    def blanked(self, data: bytes) -> bytes:
        """Bytes of the same length without it."""
        for needle in self.needles:
            if needle in data:
                data = data.replace(needle, FILL * len(needle))
        return data

    def _may_be_in(self, payload: bytes) -> bool:
        if any(needle in payload for needle in self.needles):
            return True
        return b"\\u" in payload if self._plain else b"\\" in payload

    def _less_string(self, match: re.Match[bytes]) -> bytes:
        token = match[0]
        if b"\\" not in token and not any(needle in token for needle in self.needles):
            return token
        text = json.loads(token, strict=False)
        less = self.less_text(text)
        return token if less == text else _encode(facts.escape_text(less))


def _forms(text: str) -> list[str]:
    found = {text, quote(text, safe="")}
    marked_up = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    found |= {marked_up, marked_up.replace('"', "&quot;").replace("'", "&#x27;")}
    found.add(repr(text)[1:-1])
    escaped = {text}
    for _ in range(2):
        escaped = {json.dumps(form, ensure_ascii=pure)[1:-1] for form in escaped for pure in (True, False)}
        found |= escaped
    return sorted(found, key=len, reverse=True)
