"""What the fault tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.rig import Rig


@pytest.fixture
def rig(tmp_path: Path, krt_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A session under fault; at the end it is stopped and removed, and nothing of it may be left."""
    rig = Rig(tmp_path, monkeypatch)
    yield rig
    rig.close()
