"""A holder lives as long as its process: what costs megabytes is loaded when somebody asks."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"pyte", "msgspec", "zmq", "apsw", "pathlib", "subprocess", "asyncio", "logging", "threading"}


def test_a_holder_loads_the_standard_library_and_ptyprocess() -> None:
    code = (
        f"import sys; sys.path += {sys.path!r}; import kernel_runtime.supervisor.holder; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "ptyprocess" in loaded
    assert not loaded & HEAVY
