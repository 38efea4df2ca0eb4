"""A log whose name was given to a later one while it is still written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_runtime.supervisor.holder_log import ProcessLog

BOUND = 4096


@pytest.mark.parametrize("succeeded", [True, False], ids=["a-later-log", "no-file"])
def test_a_log_that_is_cut_leaves_a_later_one_of_its_name_alone(tmp_path: Path, succeeded: bool) -> None:
    """A log that reaches its bound is written anew under its name. When that is another log's by now (the
    process's name was used again while somebody kept the old terminal) the other one's content must stay,
    and so must the file that it goes on to write.
    """
    path = tmp_path / "web.log"
    earlier = ProcessLog(str(path), bound=BOUND, floor=0)
    earlier.append(b"old\n")
    path.unlink()
    later = ProcessLog(str(path), bound=BOUND, floor=0) if succeeded else None
    if later is not None:
        later.append(b"new\n")
    earlier.append(b"x" * BOUND + b"\n")
    earlier.append(b"more\n")
    assert earlier.counts()["dropped_bytes"] >= BOUND
    earlier.close()
    if later is not None:
        later.append(b"newer\n")
        later.close()
    assert (path.read_bytes() if path.exists() else b"") == (b"new\nnewer\n" if succeeded else b"")
