"""Servers that are configured otherwise: sessions show as far as that allows, and the rest is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.stock import running_session
from tests.jupyter.server import Server
from tests.support import eventually


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_with_another_contents_manager_a_notebook_elsewhere_is_a_kernel_only(root: Path) -> None:
    name = "jupyter_server.services.contents.largefilemanager.AsyncLargeFileManager"
    server = Server(root, ServerApp={"contents_manager_class": name})
    with running_session("elsewhere", cwd=root) as session:
        server.start()
        try:
            kernel_id = server.kernel_of(session.name)
            rows = server.get("/kernel-runtime/api/sessions")
            assert [row["path"] for row in rows] == [None]
            assert server.rows() == {}
            with server.channels(kernel_id) as channels:
                assert channels.run("print(6 * 7)")[1] == "42\n"
        finally:
            server.stop()


def test_with_another_kernel_manager_it_says_what_is_missing(root: Path) -> None:
    name = "jupyter_server.services.kernels.kernelmanager.AsyncMappingKernelManager"
    server = Server(root, ServerApp={"kernel_manager_class": name})
    with pytest.raises(AssertionError, match=r"c\.ServerApp\.kernel_manager_class = "):
        server.start(patience=5.0)  # our routes are not there


def test_idle_kernels_are_culled_and_sessions_are_not(root: Path) -> None:
    server = Server(root, MappingKernelManager={"cull_idle_timeout": 1, "cull_interval": 1})
    with running_session("kept", cwd=root) as session:
        server.start()
        try:
            stock = server.post("/api/kernels", {"name": "python3"}, 201)["id"]
            eventually(lambda: stock not in server.kernels(), 30, "the stock kernel is culled")
            assert server.kernel_of(session.name) in server.kernels()
        finally:
            server.stop()
