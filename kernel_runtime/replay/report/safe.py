"""What makes anybody's text, HTML and images fit to be shown: the one place that trust goes through.

Invariant: what comes out of here runs nothing, loads nothing, cannot leave the box that it is put into,
cannot look like a part of the report, and hides nothing that is in it behind control characters, colours or
the direction of writing. `Markup` leaves this module only as the result of nh3, of escaping, or of base64.

Left out of HTML: styles, classes, ids, links, forms, frames, everything that is drawn (SVG, MathML, canvas).
Not promised: that an output looks as it did in its notebook.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from typing import Any
from xml.parsers import expat

import nh3
from markupsafe import Markup, escape
from nbconvert.filters.ansi import ansi2html, strip_ansi
from PIL import Image

from kernel_runtime.core.stream_text import StreamText

MOST_HTML = 200_000
"""characters of HTML that are sanitized; more is not shown"""
MOST_IMAGE = 2 << 20
"""bytes of an image"""
_MOST_PIXELS = 50_000_000

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
_SEQUENCE = re.compile(r"\x1b(?!\[[0-9;]*m)(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""of a terminal, and not about colour"""
_STYLE = re.compile(r' style="[^"]*"')
_BACKGROUND = re.compile(r" ?\bansi-(?:[a-z-]+-bg|default-inverse-fg)\b")
_EMPTY_HEADER = re.compile(r"<th((?: (?:col|row)span=\"\d+\")*)(?: scope=\"[a-z]+\")?>\s*</th>")
_DATA = re.compile(r"data:(image/[a-z+.-]+);base64,([A-Za-z0-9+/=\s]*)", re.IGNORECASE)
_LOCAL = re.compile(r"#|data:image/(?:png|jpeg|gif|webp);base64,")
_LOADS = re.compile(r"@import|expression\s*\(|url\(\s*(?!['\"]?#)|image-set\(|src\(", re.IGNORECASE)

_TEXT_TAGS = "abbr b br cite code del dfn em i ins kbd mark q s samp small span strong sub sup u var"
_BLOCK_TAGS = "blockquote dd details div dl dt figcaption figure hr img li ol p pre summary ul"
_TABLE_TAGS = "caption col colgroup table tbody td tfoot th thead tr"
TAGS = frozenset(f"{_TEXT_TAGS} {_BLOCK_TAGS} {_TABLE_TAGS}".split())
_WITH_CONTENT = frozenset("script style template noscript noembed noframes iframe title".split())  # noqa: SIM905
_NUMBERED = {
    "col": {"span"},
    "colgroup": {"span"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
_SMALL = re.compile(r"[1-9][0-9]{0,2}")
_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_ACTIVE = frozenset(
    "a animate audio embed foreignobject handler iframe link object script set video".split()  # noqa: SIM905
)
"""elements of an SVG that do something, or lead somewhere"""


class Unsafe(Exception):
    """Why something is not shown, as half a sentence."""


def visible(value: Any) -> Any:
    """Text in which every character shows; what is text already safe, and no text, is itself."""
    if isinstance(value, str) and not isinstance(value, Markup) and _HIDDEN.search(value):
        return value.translate(_MARKS)
    return value


def _mark(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else f"⟨U+{code:04X}⟩"


_MARKS = {
    code: _mark(code) for code in (*range(0x10000), *range(0xE0000, 0xE1000)) if _HIDDEN.match(chr(code))
}


def terminal(text: str) -> Markup:
    """Text as a terminal shows it in the end: carriage returns done, colours as classes."""
    text = _SEQUENCE.sub("", text)
    if "\r" in text or "\b" in text:
        shown = StreamText()
        shown.write(text)
        text = shown.text()
    if "\x1b" not in text:
        return escape(visible(text))
    # ansi2html needs the escapes themselves: everything else is made visible around them
    text = "\x1b".join(visible(piece) for piece in text.split("\x1b"))
    try:
        coloured = str(ansi2html(text))  # type: ignore[no-untyped-call]
    except IndexError:  # a colour that ends before its numbers
        coloured = str(escape(strip_ansi(text)))  # type: ignore[no-untyped-call]
    # A colour of the output's choice can hide text; ours are chosen to be read.
    coloured = _BACKGROUND.sub("", _STYLE.sub("", coloured))
    return Markup(visible(coloured))  # noqa: S704 - escaped by ansi2html


def html(text: str) -> Markup:
    """HTML as it may stand in a page of ours.

    Raises:
        Unsafe: there is too much of it.
    """
    if len(text) > MOST_HTML:
        raise Unsafe(f"it has {len(text):,} characters of HTML, and {MOST_HTML:,} are the most that is shown")
    cleaned = nh3.clean(
        text.encode("utf-8", "backslashreplace").decode(),
        tags=set(TAGS),
        clean_content_tags=set(_WITH_CONTENT),
        attributes={**_NUMBERED, "th": _NUMBERED["th"] | {"scope"}, "img": {"src"}},
        attribute_filter=_attribute,
        set_tag_attribute_values={"img": {"alt": "an image in this output, without a description"}},
        url_schemes={"data"},
        link_rel=None,
    )
    # a header that says nothing is none, and screen readers would read it out
    cleaned = _EMPTY_HEADER.sub(r"<td\1></td>", cleaned)
    return Markup(visible(cleaned))  # noqa: S704 - by nh3


def _attribute(_tag: str, name: str, value: str) -> str | None:
    if name == "src":
        match = _DATA.fullmatch(value)
        try:
            return image(match[1].lower(), match[2])[0] if match else None
        except Unsafe:
            return None
    if name == "alt":  # ours: an output's own is not among those that are kept
        return value
    if name == "scope":
        return value if value in {"row", "col", "rowgroup", "colgroup"} else None
    return value if _SMALL.fullmatch(value) else None


def image(mime: str, data: str) -> tuple[str, str]:
    """A data URI of a picture that was looked at, and its size in words.

    Args:
        mime: what it says it is.
        data: base64, or the text of an SVG.

    Raises:
        Unsafe: it is none, is too large, or (SVG) would do or load something.
    """
    if mime == "image/svg+xml":
        return _svg(data)
    wanted = _FORMATS.get(mime)
    if wanted is None:
        raise Unsafe(f"{mime} is no type of image that is shown")
    if len(data) > 2 * MOST_IMAGE:
        raise Unsafe(f"it is larger than {MOST_IMAGE >> 20} MiB")
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unsafe("it is not base64") from error
    if len(raw) > MOST_IMAGE:
        raise Unsafe(f"it is larger than {MOST_IMAGE >> 20} MiB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(raw), formats=[wanted]) as picture:
                width, height = picture.size
                picture.verify()
    except Exception as error:  # Pillow's decoders raise what they like on broken files
        raise Unsafe(f"it is no {wanted} that can be read") from error
    if width * height > _MOST_PIXELS:
        raise Unsafe(f"it has {width:,} by {height:,} pixels")
    return f"data:{mime};base64,{base64.b64encode(raw).decode()}", f"{width:,} by {height:,} pixels"


def _svg(text: str) -> tuple[str, str]:
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) > MOST_IMAGE:
        raise Unsafe(f"it is larger than {MOST_IMAGE >> 20} MiB")
    seen: list[str] = []

    def element(name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2].lower()
        if not seen and local != "svg":
            raise Unsafe("it is no SVG")
        seen.append(local)
        if local in _ACTIVE:
            raise Unsafe(f"it has an active element, {local}")
        for key, value in attributes.items():
            plain = key.rpartition(":")[2].lower()
            if plain.startswith("on"):
                raise Unsafe(f"it has an event handler, {key}")
            if plain in {"href", "src"} and not _LOCAL.match(value.strip()):
                raise Unsafe("it refers to something outside itself")
            if _LOADS.search(value) or ("\\" in value and "(" in value):  # CSS reads u\72l( as url(
                raise Unsafe("it may load something")

    def characters(data: str) -> None:
        words.append(data)

    def entity(*_args: Any) -> None:
        raise Unsafe("it declares entities")

    def instruction(target: str, _data: str) -> None:
        raise Unsafe(f"it has a processing instruction, {target}")

    words: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = element
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = entity
    parser.ProcessingInstructionHandler = instruction
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        raise Unsafe("it is no SVG that can be read") from error
    if "style" in seen and (_LOADS.search("".join(words)) or "\\" in "".join(words)):
        raise Unsafe("its styles may load something")
    return f"data:image/svg+xml;base64,{base64.b64encode(raw).decode()}", "SVG"
