"""`krt redact` and what the running supervisor has seen of processes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import kernel_runtime as kr
from tests.cases.support import status_when, stopped
from tests.support import eventually, krt, krt_json

SECRET = "hunter2-in-an-argument"
STARTS = "import subprocess\nchild = subprocess.Popen(['sh', '-c', 'read x', {!r}], stdin=subprocess.PIPE)"


@pytest.fixture
def session() -> Iterator[kr.Session]:
    with stopped("alice") as session:
        yield session


def test_no_answer_holds_the_argument_of_a_process_that_has_ended(session: kr.Session) -> None:
    """A supervisor remembers the command lines of processes that it has seen and that have ended. After a
    redaction `krt ps` and `status` show them without the text, as they show everything else.
    """
    session.execute(STARTS.format(SECRET))
    status_when(session, lambda status: SECRET in json.dumps(status.resources), what="it was seen")
    session.execute("child.communicate()")

    def told() -> bool:
        ended = [
            row for row in session.status().resources if row["kind"] == "process" and row.get("ended_at")
        ]
        return SECRET in json.dumps(ended)

    eventually(told, what="its end is told")
    krt_json("redact", "alice", "--text-stdin", "--reason", "oops", stdin=SECRET)
    shown = [krt("ps", "alice", "--json").stdout, krt("status", "alice", "--json").stdout]
    assert all('"read x"' in text for text in shown), "the process is still told of"
    assert not any(SECRET in text for text in shown)
