"""The cases share one KRT_HOME per module, and one session where a case leaves it as it found it.

A module that leaves a process or a bound socket fails, with what it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kernel_runtime as kr
from tests.cases.support import stopped
from tests.conftest import isolated

Attach = Callable[..., kr.Session]


@pytest.fixture(autouse=True, scope="module")
def krt_home() -> Iterator[Path]:
    """This module's KRT_HOME."""
    with isolated() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRT_PRINCIPAL", "agent:a")
        yield home


@pytest.fixture(scope="module")
def _shared(krt_home: Path) -> Iterator[kr.Session]:
    with stopped("shared") as session:
        session.execute("1 / 0")  # loads what formats tracebacks, so that no interrupt has to wait for it
        yield session


@pytest.fixture
def shared(_shared: kr.Session) -> Iterator[kr.Session]:
    """A session for cases that leave the kernel as they found it; what still runs is interrupted."""
    yield _shared
    while _shared.row()["state"] in ("busy", "blocked"):
        assert _shared.interrupt().ended


@pytest.fixture
def attach() -> Iterator[Attach]:
    """`attach(name, **how)`: a client that leaves when the test ends."""
    with ExitStack() as clients:

        def join(name: str, **how: Any) -> kr.Session:
            return clients.enter_context(kr.attach(name, **how))

        yield join


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[kr.Session]:
    """A session of this test's own, stopped when it ends."""
    name = request.node.name.replace("[", "-").rstrip("]")[:60]
    with stopped(name) as session:
        yield session
