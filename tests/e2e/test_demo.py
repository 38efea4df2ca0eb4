"""`krt demo` as a user runs it, on the real data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_demo_holds_and_leaves_nothing(tmp_path: Path) -> None:
    """Right: every step's claim is checked by the demo itself; afterwards its directory is gone."""
    done = subprocess.run(
        [sys.executable, "-m", "kernel_runtime.cli", "demo", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"]
    assert len(document["steps"]) == 8
    assert list(tmp_path.glob("krt-demo-*")) == []
