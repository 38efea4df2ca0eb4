"""Outputs for tests of comparisons, and the question that most of them ask."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

from kernel_runtime.replay.compare import RuleSet, Window, compare_outputs

SECOND = 1_000_000_000
EARLY = 1_700_000_000 * SECOND
"""when the record was made: 2023-11-14 22:13:20 UTC"""
LATE = 1_764_464_217 * SECOND
"""when the replay ran: 2025-11-30 00:56:57 UTC"""
WINDOWS = (Window(EARLY, EARLY + 2 * SECOND, EARLY), Window(LATE, LATE + 2 * SECOND, LATE))

Output = dict[str, Any]


def stream(text: str, name: str = "stdout") -> Output:
    return {"output_type": "stream", "name": name, "text": text}


def shown(data: Any, mime: str = "text/plain") -> Output:
    return {"output_type": "display_data", "data": {mime: data}, "metadata": {}}


def bundle(**data: Any) -> Output:
    """A display of several mime types, `text_html="…"`."""
    named = {name.replace("_", "/", 1): value for name, value in data.items()}
    return {"output_type": "display_data", "data": named, "metadata": {}}


def error(*traceback: str, ename: str = "ValueError", evalue: str = "no") -> Output:
    return {"output_type": "error", "ename": ename, "evalue": evalue, "traceback": list(traceback)}


def judge(recorded: Any, replayed: Any, rules: RuleSet | None = None) -> tuple[str, list[str]]:
    """The verdict, and the names of the rules that were needed."""
    one, two = (value if isinstance(value, list) else [value] for value in (recorded, replayed))
    found = compare_outputs(one, two, rules, windows=WINDOWS)
    return found.verdict, found.rule_names


def picture(
    draw: Callable[[Any], None] | None = None,
    *,
    mode: str = "RGB",
    form: str = "PNG",
    size: tuple[int, int] = (40, 30),
    **options: Any,
) -> str:
    """A grey image in base64 on which `draw` has drawn; `options` are the writer's."""
    from PIL import Image

    image = Image.new(mode, size, 0 if mode == "I;16" else (120, 130, 140, 255)[: len(mode)])
    if draw is not None:
        draw(image)
    file = io.BytesIO()
    image.save(file, form, **options)
    return base64.b64encode(file.getvalue()).decode()
