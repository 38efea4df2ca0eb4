"""What differs, as people read it: short, bounded, plain text.

Texts as a unified diff in which only lines that differ under the rules are marked; everything else as the
places that differ. Where outputs are missing or stand in another order, nbdime pairs them, so that the
diff says which one is missing and not that all differ.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from kernel_runtime.replay.compare import text
from kernel_runtime.replay.compare.bridge import Bridge, Difference
from kernel_runtime.replay.compare.outputs import Unit

MAX_DIFF = 8_000
"""characters of a step's diff"""
_TAG = re.compile(r"<[^<>]*>")
_MAX_LINES = 400
_MAX_LINE = 300
_MAX_SHOWN = 20
_MAX_PAIRED = 16
"""outputs that are paired by what they show: nbdime compares each with each"""
_SAMPLE = 160
"""characters of an output that decide which other one it is paired with"""


def bounded(parts: Sequence[str]) -> str:
    """The parts, one below the other, within `MAX_DIFF` characters, valid UTF-8."""
    whole = "\n".join(part for part in parts if part)
    whole = whole.encode("utf-8", "backslashreplace").decode()
    if len(whole) <= MAX_DIFF:
        return whole
    return f"{whole[:MAX_DIFF]}\n… and {len(whole) - MAX_DIFF} more characters of differences"


def of_pair(bridge: Bridge, recorded: Unit, replayed: Unit) -> str:
    """What differs between two outputs of one shape; `bridge` holds what comparing them found."""
    parts = [f"output {recorded.index}: {recorded.label()}"]
    places = sorted({difference.where for difference in bridge.differences}, key=str)
    for where in places:
        told = [difference for difference in bridge.differences if difference.where == where]
        one, two = _text_at(recorded, where), _text_at(replayed, where)
        if one is not None and two is not None and all("line" in difference.place for difference in told):
            parts.append(_unified(bridge, where, one, two))
        else:
            parts += [_place(difference) for difference in told[:_MAX_SHOWN]]
    if bridge.count > _MAX_SHOWN:
        parts.append(f"({bridge.count} places differ)")
    return "\n".join(parts)


def _text_at(unit: Unit, where: str) -> str | None:
    if unit.kind == "stream":
        return unit.text
    if unit.kind == "error":
        return "\n".join(unit.data["traceback"])
    value = unit.data.get(where)
    return value if isinstance(value, str) else None


def _place(difference: Difference) -> str:
    where = ", ".join(f"{key} {value}" for key, value in difference.place.items() if key in _SAID)
    head = " ".join(part for part in (difference.where, where and f"({where})") if part)
    lines = [f"@@ {head}{': ' if difference.why else ''}{difference.why} @@"]
    if difference.recorded or difference.replayed:
        lines += [f"-{difference.recorded}", f"+{difference.replayed}"]
    return "\n".join(lines)


_SAID = ("row", "column", "line", "path", "frame")


def _unified(bridge: Bridge, where: str, recorded: str, replayed: str) -> str:
    quiet = Bridge(bridge.rules, recorded=bridge.recorded, replayed=bridge.replayed)
    one = text.clean(quiet, recorded).split("\n")
    two = text.clean(quiet, replayed).split("\n")
    one, two, skipped = _window(one, two)
    if len(one) == len(two):
        # what a rule lets pass is no difference: show it as it was recorded
        two = [a if text.passes(quiet, a, b) else b for a, b in zip(one, two, strict=True)]
    one, two = [_cut(line) for line in one], [_cut(line) for line in two]
    lines = list(difflib.unified_diff(one, two, "recorded", "replayed", lineterm="", n=2))[2:]
    head = f"@@ {where}, after {skipped} equal lines @@" if skipped else f"@@ {where} @@"
    return "\n".join([head, *lines])


def _window(one: list[str], two: list[str]) -> tuple[list[str], list[str], int]:
    """Both from shortly before the first line that differs, and no more than is worth reading."""
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    start = max(0, same - 2)
    return one[start : start + _MAX_LINES], two[start : start + _MAX_LINES], start


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}… ({len(line)} characters)"


def of_lists(recorded: list[Unit], replayed: list[Unit]) -> list[Difference]:
    """Which outputs are missing, more, or in another order."""
    one, two = [unit.shape() for unit in recorded], [unit.shape() for unit in replayed]
    if len(one) == len(two) and sorted(map(str, one)) == sorted(map(str, two)):
        return [
            Difference(
                where="outputs",
                recorded=_labels(recorded),
                replayed=_labels(replayed),
                why="the same kinds of outputs in another order",
            )
        ]
    found: list[Difference] = []
    for a, b in _paired(recorded, replayed):
        if b is None and a is not None:
            found.append(
                Difference(where="outputs", recorded=a.label(), replayed="", output=a.index, why="missing")
            )
        elif a is None and b is not None:
            found.append(
                Difference(
                    where="outputs", recorded="", replayed=b.label(), output=b.index, why="one more output"
                )
            )
        elif a is not None and b is not None and a.shape() != b.shape():
            found.append(
                Difference(
                    where="outputs",
                    recorded=a.label(),
                    replayed=b.label(),
                    output=a.index,
                    why="another kind of output",
                )
            )
    return found or [
        Difference(
            where="outputs", recorded=_labels(recorded), replayed=_labels(replayed), why="other outputs"
        )
    ]


def _labels(found: list[Unit]) -> str:
    shown = " | ".join(unit.label() for unit in found[:12])
    return shown[:400] or "nothing"


def _paired(recorded: list[Unit], replayed: list[Unit]) -> list[tuple[Unit | None, Unit | None]]:
    """Outputs side by side: by their kind, and where several are of one kind by what they show (nbdime)."""
    told_apart = all(len({unit.shape() for unit in found}) == len(found) for found in (recorded, replayed))
    if told_apart or max(len(recorded), len(replayed)) > _MAX_PAIRED:
        return _paired_by_kind(recorded, replayed)
    try:
        from nbdime import diff_notebooks  # type: ignore[import-untyped]
        from nbformat import from_dict
    except ImportError:
        return _paired_by_kind(recorded, replayed)
    one, two = (from_dict(_notebook(found)) for found in (recorded, replayed))  # type: ignore[no-untyped-call]
    operations = diff_notebooks(one, two)
    for key in ("cells", 0, "outputs"):
        patch = next((step for step in operations if step.key == key and step.op == "patch"), None)
        if patch is None:
            return _paired_by_kind(recorded, replayed)
        operations = patch.diff
    return _follow(operations, recorded, replayed)


def _follow(
    operations: Any, recorded: list[Unit], replayed: list[Unit]
) -> list[tuple[Unit | None, Unit | None]]:
    """What nbdime's operations on a list of outputs make of both lists."""
    pairs: list[tuple[Unit | None, Unit | None]] = []
    at = other = 0
    for step in operations:
        while at < step.key:
            pairs.append((recorded[at], replayed[other]))
            at, other = at + 1, other + 1
        if step.op == "addrange":
            pairs += [(None, unit) for unit in replayed[other : other + len(step.valuelist)]]
            other += len(step.valuelist)
        elif step.op == "removerange":
            pairs += [(unit, None) for unit in recorded[at : at + step.length]]
            at += step.length
    pairs += zip(recorded[at:], replayed[other:], strict=False)
    return pairs


def _notebook(found: list[Unit]) -> dict[str, Any]:
    outputs = [_sample(unit) for unit in found]
    cell: dict[str, Any] = {
        "cell_type": "code",
        "metadata": {},
        "source": "",
        "execution_count": None,
        "outputs": outputs,
    }
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


def _sample(unit: Unit) -> dict[str, Any]:
    """An output as nbdime reads it, no longer than what tells it from another."""
    if unit.kind == "stream":
        return {"output_type": "stream", "name": unit.name, "text": _gist(unit.text)}
    if unit.kind == "error":
        return {
            "output_type": "error",
            "ename": unit.data["ename"],
            "evalue": _gist(unit.data["evalue"]),
            "traceback": [],
        }
    data = {
        mime: _gist(value) if isinstance(value, str) else {"json": type(value).__name__}
        for mime, value in unit.data.items()
    }
    output: dict[str, Any] = {"output_type": "display_data", "data": data, "metadata": {}}
    if unit.kind == "execute_result":
        output |= {"output_type": "execute_result", "execution_count": None}
    return output


def _gist(shown: str) -> str:
    """What tells a text from others like it: its end, without the markup that all tables have."""
    return " ".join(_TAG.sub(" ", shown[-25 * _SAMPLE :]).split())[-_SAMPLE:]


def _paired_by_kind(recorded: list[Unit], replayed: list[Unit]) -> list[tuple[Unit | None, Unit | None]]:
    one, two = (
        [str(unit.shape()) for unit in recorded[:2000]],
        [str(unit.shape()) for unit in replayed[:2000]],
    )
    pairs: list[tuple[Unit | None, Unit | None]] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(a=one, b=two).get_opcodes():
        if tag == "equal":
            pairs += zip(recorded[a:b], replayed[c:d], strict=True)
        else:
            pairs += [(unit, None) for unit in recorded[a:b]]
            pairs += [(None, unit) for unit in replayed[c:d]]
    return pairs
