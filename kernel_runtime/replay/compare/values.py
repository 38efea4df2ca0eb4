"""JSON by structure: objects, arrays, numbers, strings, each compared as what it is.

`true`, `1` and `1.0` are three values. Only decimal numbers have a tolerance. The walk is a loop over a
stack of its own, so no depth of nesting can end it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from kernel_runtime.replay.compare import text
from kernel_runtime.replay.compare.bridge import Bridge, shorten
from kernel_runtime.replay.compare.tokens import near

_HEX = r"[0-9a-f]{32}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_IDS: tuple[tuple[str, frozenset[str], re.Pattern[str]], ...] = (
    # Vega-Lite names data by its digest, and the data itself is compared; Altair counts charts per process
    ("application/vnd.vega", frozenset(("", "name")), re.compile(r"data-[0-9a-f]{32}")),
    (
        "application/vnd.vega",
        frozenset(("name", "views", "param")),
        re.compile(r"(?:concat_\d+_)*(?:view|param|selector)_\d{1,6}"),
    ),
    ("application/vnd.plotly", frozenset(("uid",)), re.compile(rf"[0-9a-f]{{6}}|{_HEX}")),
    (
        "application/vnd.bokeh",
        frozenset(("", "id", "docid", "roots", "root_ids", "elementid")),
        re.compile(rf"p\d{{4,9}}|{_HEX}"),
    ),
    ("application/vnd.jupyter.widget", frozenset(("model_id",)), re.compile(_HEX)),
)
"""generated ids: in which mime types, under which keys (empty: as a key), and their shape"""
_SKIP = object()


def compare(bridge: Bridge, recorded: Any, replayed: Any) -> None:
    """Hold two JSON values against each other; what differs and what rules let pass is told to the bridge."""
    if equal(recorded, replayed):
        return
    stack: list[tuple[str, str, Any, Any]] = [("", "", recorded, replayed)]
    while stack:
        path, key, one, two = stack.pop()
        if isinstance(one, dict) and isinstance(two, dict):
            _objects(bridge, path, one, two, stack)
        elif isinstance(one, list) and isinstance(two, list):
            if len(one) != len(two):
                bridge.differ(f"{len(one)} items", f"{len(two)} items", why="other length", path=path or "/")
            pairs = enumerate(zip(one, two, strict=False))
            stack += [(f"{path}/{index}"[-400:], key, a, b) for index, (a, b) in pairs][::-1]
        elif not _same(bridge, key, one, two):
            bridge.differ(_show(one), _show(two), path=path or "/")


def equal(recorded: Any, replayed: Any) -> bool:
    """Whether both are equal, types too: the quick way for what is ordinary JSON."""
    try:
        return json.dumps(recorded) == json.dumps(replayed)
    except (TypeError, ValueError, RecursionError):
        return False


def _objects(
    bridge: Bridge,
    path: str,
    one: dict[Any, Any],
    two: dict[Any, Any],
    stack: list[tuple[str, str, Any, Any]],
) -> None:
    keys, other = list(one), list(two)
    pairs = dict(zip(keys, keys, strict=True))
    if set(keys) != set(other):
        missing = [key for key in keys if key not in two]
        added = [key for key in other if key not in one]
        if len(missing) != len(added) or not all(
            _ids_pass(bridge, "", a, b) for a, b in zip(missing, added, strict=True)
        ):
            bridge.differ(
                _show(missing) if missing else "",
                _show(added) if added else "",
                why="other keys",
                path=path or "/",
            )
            pairs = {key: key for key in keys if key in two}
        else:
            pairs |= dict(zip(missing, added, strict=True))
    if [pairs.get(key, _SKIP) for key in keys] != other:
        if bridge.on("json-key-order"):
            bridge.use("json-key-order", _show(keys), _show(other))
        elif set(pairs.values()) == set(other):
            bridge.differ(_show(keys), _show(other), why="other order of keys", path=path or "/")
    stack += [(f"{path}/{key}"[-400:], str(key), one[key], two[name]) for key, name in pairs.items()][::-1]


def _same(bridge: Bridge, key: str, one: Any, two: Any) -> bool:
    if isinstance(one, str) and isinstance(two, str):
        if bridge.on("random-ids") and _is_id(bridge, key, one) and _is_id(bridge, key, two):
            return _ids_pass(bridge, key, one, two)
        return text.passes(bridge, one, two)
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        if one == two or (math.isnan(one) and math.isnan(two)):
            return True
        rules = bridge.rules
        if bridge.on("number-tolerance") and near(one, two, rules.relative, rules.absolute):
            bridge.use("number-tolerance", repr(one), repr(two))
            return True
        return False
    return bool(one == two)


def _is_id(bridge: Bridge, key: str, value: Any) -> bool:
    return isinstance(value, str) and any(
        key in keys and bridge.where.startswith(mime) and shape.fullmatch(value) for mime, keys, shape in _IDS
    )


def _ids_pass(bridge: Bridge, key: str, one: Any, two: Any) -> bool:
    if not (bridge.on("random-ids") and _is_id(bridge, key, one) and _is_id(bridge, key, two)):
        return False
    if not bridge.rename(one, two):
        return False
    if one != two:
        bridge.use("random-ids", one, two)
    return True


def _show(value: Any) -> str:
    """A value within an example's length; what is in it is not read to its end."""
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, dict):
        return f"object of {len(value)}: {', '.join(shorten(str(key), 30) for key in list(value)[:5])}"
    if isinstance(value, list):
        return shorten(", ".join(shorten(item, 40) if isinstance(item, str) else "…" for item in value[:5]))
    if isinstance(value, int) and value.bit_length() > 4000:
        return f"integer of {value.bit_length()} bits"
    return shorten(
        json.dumps(value) if isinstance(value, bool | int | float | None) else type(value).__name__
    )
