"""What was once seen of a process, when a text of its command line is taken out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from kernel_runtime.journal.forms import MARK, Forms
from kernel_runtime.supervisor.reactor import Reactor
from kernel_runtime.supervisor.world import procfs
from kernel_runtime.supervisor.world.memory import Memory
from kernel_runtime.supervisor.world.processes import Member
from kernel_runtime.supervisor.world.rows import ended_row

SECRET = "hunter2-in-an-argument"


@pytest.fixture
def seen() -> Iterator[tuple[Memory, subprocess.Popen[bytes]]]:
    """A memory that has seen a process which holds the text."""
    memory = Memory(Reactor(), lambda: None)
    child = subprocess.Popen(["sh", "-c", "read x", SECRET], stdin=subprocess.PIPE)
    stat = procfs.stat(child.pid)
    assert stat is not None
    memory.saw([Member(stat=stat, by="descendant")], {child.pid: ["sh", "-c", "read x", SECRET]})
    yield memory, child
    child.communicate()
    memory.close()


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_text_is_taken_out_of_what_is_remembered(
    seen: tuple[Memory, subprocess.Popen[bytes]], ends: str
) -> None:
    """The rows of processes that have ended are told from memory, not from /proc: a text that was taken out
    must be in none of them, whether the process ended before that or ends later.
    """
    memory, child = seen
    if ends == "before":
        child.communicate()
        memory.saw([], {})
    memory.redacted(Forms(SECRET).less)
    if ends == "after":
        child.communicate()
        memory.saw([], {})
    (ended,) = memory.ended()
    assert ended_row(ended)["pid"] == child.pid
    assert ended.command == ["sh", "-c", "read x", MARK]
