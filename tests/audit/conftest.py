"""What the notebooks find on every machine."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def _fonts() -> None:
    """Matplotlib's list of fonts is made before: making it may take five seconds, and then says so."""
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=True, capture_output=True)
