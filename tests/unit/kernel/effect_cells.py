"""Functions that are run as if each were a cell, and the effects that are seen of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel_runtime.kernel import effects
from kernel_runtime.kernel.attribution import Parent, current
from kernel_runtime.kernel.effects import Effects

Seen = list[dict[str, Any]]


class Cells:
    """Runs functions as if each were a cell."""

    def __init__(self) -> None:
        self.effects = Effects()
        self.effects.install()
        self.count = 0

    def run(self, cell: Callable[[], Any], key: str = "") -> tuple[Seen, list[str]]:
        self.count += 1
        key = key or f"m{self.count}"
        token = current.set(Parent({"header": {"msg_id": key}}, [], b"{}"))
        try:
            self.effects.begin(key)
            cell()
            return self.effects.end()
        finally:
            current.reset(token)

    def seen(self, cell: Callable[[], Any]) -> Seen:
        found, unseen = self.run(cell)
        assert unseen == []
        return found


@pytest.fixture
def cells() -> Iterator[Cells]:
    found = Cells()
    found.run(lambda: None)  # what is open by now is the kernel's
    found.effects.take_late()  # what the test runner did
    yield found
    effects._notes.clear()
