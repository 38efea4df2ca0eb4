"""Whether a process is still in the read that was answered, as /proc shows it of real programs."""

from __future__ import annotations

import os

import pytest

from kernel_runtime.supervisor.tty import readers, screen
from tests.contract.test_terminal_readers import NOBODY_UID, program, python, seen_as_nobody
from tests.support import eventually

pytestmark = pytest.mark.slow

READS = "import os\nwhile True: os.read(0, 100)"
SELECTS = "import os, select\nwhile True:\n    select.select([0], [], [])\n    os.read(0, 100)"


@pytest.mark.parametrize("typed", [b"yes\n", b"\x04"], ids=["a-line", "end-of-file"])
@pytest.mark.parametrize("source, how", [(READS, "reads"), (SELECTS, "listens")])
def test_the_count_of_reads_tells_one_from_the_next(source: str, how: str, typed: bytes) -> None:
    """A process that waits where it waited before looks the same whether it has taken what was typed or
    not. The count stays while it waits, and is another one in the next read, also after an end of file.
    """
    with program(*python(source)) as at:
        eventually(lambda: at.seen() == [(at.pid, how)], what="waits")
        before = readers.reads(at.pid)
        assert before is not None
        os.write(at.master, b"no line yet")
        assert (at.seen(), readers.reads(at.pid)) == ([(at.pid, how)], before)
        os.write(at.master, b"\x15" + typed)
        eventually(lambda: readers.reads(at.pid) != before, what="has read")
        eventually(lambda: at.seen() == [(at.pid, how)], what="waits again")


def reads_as_nobody(pid: int) -> int | None:
    """As `readers.reads`, by a process that is not root's."""
    if os.getuid() != 0:
        return readers.reads(pid)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(NOBODY_UID, NOBODY_UID, NOBODY_UID)
        os.write(write, str(readers.reads(pid) or "").encode())
        os._exit(0)
    os.close(write)
    with open(read) as told:
        count = told.read()
    os.waitpid(child, 0)
    return int(count) if count else None


def test_the_count_is_told_of_who_may_not_be_looked_into() -> None:
    """`su` is another user's process while it asks: how often it has begun to wait tells."""
    as_nobody = ("/usr/bin/setpriv", f"--reuid={NOBODY_UID}", "--clear-groups") if os.getuid() == 0 else ()
    with program(*as_nobody, "/usr/bin/su", "-c", "true") as at:
        eventually(lambda: not screen.settings(at.terminal).echo, what="asks for a password")
        eventually(lambda: seen_as_nobody(at) == [(at.pid, "hidden")], what="hidden")
        before = reads_as_nobody(at.pid)
        assert before is not None
        assert reads_as_nobody(at.pid) == before
        os.write(at.master, b"wrong\n")
        eventually(lambda: reads_as_nobody(at.pid) != before, what="has read")
