"""One KRT_HOME and one Jupyter server for each module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_runtime as kr
from tests.conftest import isolated
from tests.contract.stock import running_session
from tests.jupyter.installed import Installed, installed
from tests.jupyter.server import Server

_IN_MAKE_TEST = ("test_api.py", "test_room_contract.py", "test_kernels.py")
"""what `make test` has time for; `.ci/run` runs all"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name not in _IN_MAKE_TEST:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def krt_home() -> Iterator[Path]:
    """This module's KRT_HOME."""
    with isolated() as home:
        yield home


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the wheel, as people have it."""
    return installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def server(krt_home: Path) -> Iterator[Server]:
    root = krt_home.parent / "work"
    root.mkdir()
    server = Server(root)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def session(server: Server, request: pytest.FixtureRequest) -> Iterator[kr.Session]:
    """A session named after the test, its notebook in the served directory."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[-50:].strip("-").lower()
    with running_session(name, cwd=server.root, notebook=server.root / f"{name}.ipynb") as session:
        yield session
