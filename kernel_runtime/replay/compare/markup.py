"""HTML and XML by structure: elements, attributes and text, each compared as what it is.

The scanner is ours and reads anything in linear time: what is no tag is text. It builds no tree, since two
documents are the same if their sequences of tags and texts are. Nothing is fetched, expanded or run.

Ids that libraries make up (`random-ids`) may have other names within attributes, styles and scripts, if the
renaming is one to one throughout the output; text that people see has no such ids.
"""

from __future__ import annotations

import html
import re
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from kernel_runtime.replay.compare import text
from kernel_runtime.replay.compare.bridge import Bridge

_NAME = re.compile(r"[A-Za-z][^\s/>]*+")
_ATTRIBUTE = re.compile(r"""[\s/]*+([^\s/>=]++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>"']*+)))?+""")
_SPACES = re.compile(r"\s+")
_RAW = frozenset(("script", "style"))
_AS_IS = frozenset(("pre", "textarea", "script", "style"))
_ID = re.compile(
    r"""T_[0-9a-f]{5,40}                                    # pandas Styler
      | sk-(?:container|estimator)-id-\d{1,9}               # scikit-learn
      | (?<![0-9a-zA-Z])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-zA-Z])
      | (?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])               # Vega, widgets, folium
      | (?<![0-9a-zA-Z])[pmhi](?:mage)?[0-9a-f]{10}(?![0-9a-zA-Z]) # matplotlib's clips, markers
      | (?<=_)[0-9a-f]{10}(?![0-9a-zA-Z])                   # matplotlib's collections
      | (?<=clip)[0-9a-f]{6}(?=xy|[xy]\d?)                  # Plotly
      | (?<=["'/#])p\d{4,9}(?=["'])                         # Bokeh
    """,
    re.VERBOSE,
)
_SHOWN = frozenset(("title", "alt", "src", "value", "content", "placeholder", "label", "srcset", "srcdoc"))
"""attributes that people see or follow: ids there are no makeshift"""
_INTERNAL = frozenset(("data-root-id", "data-docid", "data-target", "data-bokeh-model-id"))
_BLOCKS = frozenset(
    (
        "html",
        "head",
        "body",
        "div",
        "p",
        "pre",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "br",
        "hr",
        "style",
        "script",
    )
    + (
        "table",
        "caption",
        "colgroup",
        "col",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "td",
        "th",
        "section",
        "article",
    )
    + ("h1", "h2", "h3", "h4", "h5", "h6", "details", "summary", "figure", "figcaption", "form", "fieldset")
    + ("svg", "header", "footer", "nav", "main", "blockquote", "meta", "link", "title", "option", "select")
)
_INLINE_XML = frozenset(("text", "tspan", "textPath", "a"))
_LINKS = frozenset(("href", "xlink:href"))
_CELL = frozenset(("td", "th"))


class Piece(Struct):
    """A tag, a text, or something else of a document (a comment, a declaration)."""

    kind: str
    """`start`, `end`, `text`, `raw` (of a script or style), `other`"""
    name: str
    raw: str
    attributes: list[tuple[str, str]] = []
    skeleton: str = ""
    """of a start tag: how it is written, apart from the values"""


def scan(source: str, *, xml: bool = False) -> list[Piece]:
    """The pieces of a document, in order; joined, their `raw` is the document."""
    pieces: list[Piece] = []
    at = text_from = 0
    lost: set[str] = set()
    """closing marks that do not come any more"""

    def text_until(end: int) -> None:
        if end > text_from:
            pieces.append(Piece("text", "", source[text_from:end]))

    while (start := source.find("<", at)) >= 0:
        piece, end = _tag(source, start, lost, xml=xml)
        if piece is None:
            at = start + 1
            continue
        text_until(start)
        pieces.append(piece)
        at = text_from = end
        if piece.kind == "start" and piece.name in _RAW and not xml and not piece.raw.endswith("/>"):
            found = re.compile(rf"</{piece.name}(?=[\s/>])", re.IGNORECASE).search(source, at)
            end = found.start() if found else len(source)
            if end > at:
                pieces.append(Piece("raw", piece.name, source[at:end]))
            at = text_from = end
    text_until(len(source))
    return pieces


def _tag(source: str, start: int, lost: set[str], *, xml: bool) -> tuple[Piece | None, int]:
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">")):
        if source.startswith(opening, start):
            end = _find(source, closing, start + len(opening), lost)
            if end < 0:
                return None, start
            return Piece("other", opening, source[start : end + len(closing)]), end + len(closing)
    is_end = source.startswith("</", start)
    found = _NAME.match(source, start + 1 + is_end)
    if found is None or ">" in lost:
        return None, start
    name = found.group() if xml else found.group().lower()
    if is_end:
        end = _find(source, ">", found.end(), lost)
        return (None, start) if end < 0 else (Piece("end", name, source[start : end + 1]), end + 1)
    attributes: list[tuple[str, str]] = []
    skeleton = [found.group()]
    at = found.end()
    while attribute := _ATTRIBUTE.match(source, at):
        value = next((group for group in attribute.groups()[1:] if group is not None), "")
        key = attribute[1] if xml else attribute[1].lower()
        attributes.append((key, unescape(value)))
        last = attribute.lastindex or 1
        until = attribute.start(last) if last > 1 else attribute.end()
        skeleton += [source[at:until], source[attribute.end(last) : attribute.end()]]
        at = attribute.end()
    end = _find(source, ">", at, lost)
    if end < 0 or source[at:end].strip(" \t\r\n\f/"):
        return None, start
    skeleton.append(source[at:end])
    piece = Piece("start", name, source[start : end + 1], attributes, "\0".join(skeleton))
    return piece, end + 1


def unescape(source: str) -> str:
    """The text with its character references resolved; as it is where one is no number that Python reads."""
    try:
        return html.unescape(source)
    except ValueError:
        return source


def _find(source: str, mark: str, at: int, lost: set[str]) -> int:
    if mark in lost:
        return -1
    end = source.find(mark, at)
    if end < 0:
        lost.add(mark)
    return end


def compare(bridge: Bridge, recorded: str, replayed: str, *, xml: bool = False) -> None:
    """Hold two documents against each other; the bridge is told what differs."""
    if recorded == replayed:
        return
    one, two = scan(recorded, xml=xml), scan(replayed, xml=xml)
    if xml and bridge.on("image-metadata"):
        kept, other = _without_metadata(one), _without_metadata(two)
        if (len(kept), len(other)) != (len(one), len(two)):
            bridge.use("image-metadata", "<metadata>", "<metadata>")
            one, two = kept, other
    if text.attempt(bridge, lambda: _pieces(bridge, one, two, loose=False)):
        return
    if bridge.on("markup"):
        bridge.use("markup", *_apart(recorded, replayed))
        _pieces(bridge, _significant(one, xml=xml), _significant(two, xml=xml), loose=True)
        return
    _pieces(bridge, one, two, loose=False)


def _apart(one: str, two: str) -> tuple[str, str]:
    at = max(0, text.common(one, two) - 20)
    return one[at : at + 80], two[at : at + 80]


def _without_metadata(pieces: list[Piece]) -> list[Piece]:
    kept: list[Piece] = []
    depth = 0
    for piece in pieces:
        if piece.name == "metadata" and piece.kind == "start" and not piece.raw.endswith("/>"):
            depth += 1
        if not depth:
            kept.append(piece)
        if piece.name == "metadata" and piece.kind == "end" and depth:
            depth -= 1
    return kept


def _significant(pieces: list[Piece], *, xml: bool) -> list[Piece]:
    """Without space that no browser shows: more than one within a line, and any at the edge of a block."""
    kept: list[Piece] = []
    depth = 0
    for at, piece in enumerate(pieces):
        if piece.name in _AS_IS:
            depth += {"start": 1, "end": -1}.get(piece.kind, 0)
        if piece.kind != "text":
            kept.append(piece)
            continue
        shown = piece.raw
        if depth <= 0:
            shown = _SPACES.sub(" ", shown)
            if _ends_line(pieces[at - 1] if at else None, xml=xml):
                shown = shown.lstrip(" ")
            if _ends_line(pieces[at + 1] if at + 1 < len(pieces) else None, xml=xml):
                shown = shown.rstrip(" ")
        if shown:
            kept.append(Piece("text", "", unescape(shown)))
    return kept


def _ends_line(piece: Piece | None, *, xml: bool) -> bool:
    """Whether space beside this tag shows nowhere. `<b>a</b> <b>b</b>` is two words."""
    return piece is None or (piece.name not in _INLINE_XML if xml else piece.name in _BLOCKS)


class _Table:
    """Where within a table a text stands: its row and the head of its column."""

    def __init__(self) -> None:
        self.row = -1
        self.column = -1
        self.heads: list[str] = []
        self.in_cell = False

    def take(self, piece: Piece) -> None:
        if piece.kind == "start" and piece.name == "table":
            self.row, self.column, self.heads = -1, -1, []
        elif piece.kind == "start" and piece.name == "tr":
            self.row, self.column = self.row + 1, -1
        elif piece.name in _CELL:
            self.in_cell = piece.kind == "start"
            if self.in_cell:
                self.column += 1
                if self.row == 0:
                    self.heads.append("")
        elif piece.kind == "text" and self.in_cell and self.row == 0 and self.heads:
            self.heads[-1] += piece.raw.strip()

    def place(self) -> dict[str, Any]:
        if not self.in_cell:
            return {}
        named = self.heads[self.column] if self.column < len(self.heads) else ""
        return {"row": self.row, "column": named or self.column}


def _pieces(bridge: Bridge, one: list[Piece], two: list[Piece], *, loose: bool) -> None:
    table = _Table()
    for first, second in zip_longest(one, two):
        if first is None or second is None or (first.kind, first.name) != (second.kind, second.name):
            bridge.differ(
                first.raw if first else "",
                second.raw if second else "",
                why="other elements",
                **table.place(),
            )
            return
        table.take(first)
        if first.raw == second.raw:
            if first.kind in ("start", "raw") and not _kept(bridge, first.raw):
                bridge.differ(
                    first.raw, second.raw, why="an id that has another name elsewhere", **table.place()
                )
        elif not _same(bridge, first, second, loose=loose):
            bridge.differ(first.raw, second.raw, **table.place())


def _same(bridge: Bridge, first: Piece, second: Piece, *, loose: bool) -> bool:
    if first.kind == "text":
        return text.passes(bridge, first.raw, second.raw)
    if first.kind == "raw":
        return ids_pass(bridge, first.raw, second.raw)
    if first.kind == "end":
        return loose
    if first.kind == "other":
        return first.name == "<!--" and loose and text.passes(bridge, first.raw, second.raw)
    mine, other = first.attributes, second.attributes
    if loose:
        mine, other = sorted(mine), sorted(other)
    elif first.skeleton != second.skeleton:
        return False
    if [key for key, _ in mine] != [key for key, _ in other]:
        return False
    return all(
        text.passes(bridge, a, b) if _is_shown(key, a, b) else ids_pass(bridge, a, b)
        for (key, a), (_, b) in zip(mine, other, strict=True)
    )


def _is_shown(key: str, one: str, two: str) -> bool:
    if key.startswith("data-") and key not in _INTERNAL:
        return True
    return key in _SHOWN or (key in _LINKS and not (one.startswith("#") and two.startswith("#")))


def _kept(bridge: Bridge, raw: str) -> bool:
    """Whether the ids in what is equal on both sides are not renamed elsewhere."""
    return not bridge.on("random-ids") or all(bridge.rename(name, name) for name in _ID.findall(raw))


def ids_pass(bridge: Bridge, recorded: str, replayed: str) -> bool:
    """Whether two attributes, styles or scripts are the same but for generated ids and rules on text."""
    if recorded == replayed:
        return True
    if bridge.on("random-ids"):
        one, two = _ID.findall(recorded), _ID.findall(replayed)
        if (
            one
            and len(one) == len(two)
            and one != two
            and text.attempt(bridge, lambda: _renamed(bridge, one, two))
        ):
            names = iter(two)
            recorded = _ID.sub(lambda _: next(names), recorded)
    return text.passes(bridge, recorded, replayed)


def _renamed(bridge: Bridge, one: list[str], two: list[str]) -> None:
    for first, second in zip(one, two, strict=True):
        if not _alike(first, second) or not bridge.rename(first, second):
            bridge.differ(first, second)
        if first != second:
            bridge.use("random-ids", first, second)


def _alike(one: str, two: str) -> bool:
    """Whether two ids are of one make."""
    return one[:2] == two[:2] if one[:2] in ("T_", "sk") else ("-" in one) == ("-" in two)
