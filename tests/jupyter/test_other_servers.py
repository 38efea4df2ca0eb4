"""Servers that people run already: enabled by installation, or by the documented lines.

Where other managers are configured, sessions show as far as that allows, and the rest is as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_runtime.jupyter.kernelspecs import NAME
from tests.contract.stock import executions, running_session
from tests.jupyter.installed import ROOT, Installed
from tests.jupyter.server import Server
from tests.support import eventually


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's configuration, for every server that looks for one."""
    (tmp_path / "config").mkdir()
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config" / "jupyter_server_config.py"


pytestmark = pytest.mark.timeout(300)  # the first of them builds a wheel


def documented_lines() -> str:
    """The configuration in docs/jupyterlab.md."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "jupyterlab.md").read_text(), re.DOTALL)
    (lines,) = [block for block in blocks if "jpserver_extensions" in block]
    return str(lines)


def extensions(wheel: Installed) -> str:
    """What `jupyter server extension list` says."""
    return wheel.run("-m", "jupyter_server", "extension", "list")


def stock(trait: str) -> dict[str, Any]:
    """The configuration of somebody who has named that manager."""
    names = {
        "session_manager_class": "jupyter_server.services.sessions.sessionmanager.SessionManager",
        "kernel_spec_manager_class": "jupyter_client.kernelspec.KernelSpecManager",
        "kernel_websocket_connection_class": (
            "jupyter_server.services.kernels.connection.channels.ZMQChannelsWebsocketConnection"
        ),
        "contents_manager_class": "jupyter_server.services.contents.largefilemanager.AsyncLargeFileManager",
        "kernel_manager_class": "jupyter_server.services.kernels.kernelmanager.AsyncMappingKernelManager",
    }
    return {trait: names[trait]}


def test_installation_enables_it(wheel: Installed, root: Path) -> None:
    assert re.search(r"kernel_runtime\.jupyter \S*enabled", extensions(wheel)), extensions(wheel)
    labextensions = wheel.run("-m", "jupyterlab.labextensions", "list")
    assert re.search(r"@kernel-runtime/lab v\S+ .*enabled.*OK", labextensions), labextensions
    server = Server(root)
    server.installed = wheel
    with running_session("installed", cwd=root, notebook=root / "installed.ipynb"):
        server.start()
        try:
            assert server.row("installed.ipynb")["kernel"]["id"] == server.kernel_of("installed")
        finally:
            server.stop()


@pytest.fixture
def disabled(wheel: Installed) -> Iterator[Installed]:
    """Installed, and switched off by hand."""
    wheel.run("-m", "jupyter_server", "extension", "disable", "--sys-prefix", "kernel_runtime.jupyter")
    yield wheel
    wheel.run("-m", "jupyter_server", "extension", "enable", "--sys-prefix", "kernel_runtime.jupyter")


def test_what_was_disabled_is_enabled_by_the_documented_lines(
    disabled: Installed, root: Path, config: Path
) -> None:
    assert re.search(r"kernel_runtime\.jupyter \S*disabled", extensions(disabled)), extensions(disabled)
    server = Server(root)
    server.installed, server.beside_theirs = disabled, True
    with pytest.raises(AssertionError, match="404"):
        server.start(patience=5.0)
    config.write_text(documented_lines())
    with running_session("found", cwd=root, notebook=root / "found.ipynb") as session:
        server.start()
        try:
            kernel_id = server.kernel_of("found")
            assert server.row("found.ipynb")["kernel"]["id"] == kernel_id
            with server.channels(kernel_id) as channels:
                assert channels.run("print(6 * 7)")[1] == "42\n"
            assert executions(session)[-1].principal != "human:unknown"
        finally:
            server.stop()


def test_the_first_two_lines_are_enough(root: Path, config: Path) -> None:
    """With everything else stock: kernels that run and journal, without what the other lines bring."""
    needed = "\n".join(documented_lines().splitlines()[:2])
    assert "kernel_manager_class" in needed
    config.write_text(needed)
    others = [
        "session_manager_class",
        "kernel_spec_manager_class",
        "kernel_websocket_connection_class",
        "contents_manager_class",
    ]
    server = Server(root, ServerApp={name: cls for trait in others for name, cls in stock(trait).items()})
    server.beside_theirs = True
    with running_session("bare", cwd=root, notebook=root / "bare.ipynb") as session:
        server.start()
        try:
            kernel_id = server.kernel_of("bare")
            assert kernel_id in server.kernels()
            assert server.rows() == {}
            assert NAME not in server.get("/api/kernelspecs")["kernelspecs"]
            with server.channels(kernel_id) as channels:
                assert channels.run("print(6 * 7)")[1] == "42\n"
            assert executions(session)[-1].principal == "human:unknown"
        finally:
            server.stop()


def test_with_another_contents_manager_a_notebook_elsewhere_is_a_kernel_only(root: Path) -> None:
    server = Server(root, ServerApp=stock("contents_manager_class"))
    with running_session("elsewhere", cwd=root) as session:
        server.start()
        try:
            kernel_id = server.kernel_of(session.name)
            paths = {row["name"]: row["path"] for row in server.get("/kernel-runtime/api/sessions")}
            assert paths[session.name] is None
            assert server.rows() == {}
            with server.channels(kernel_id) as channels:
                assert channels.run("print(6 * 7)")[1] == "42\n"
        finally:
            server.stop()


def test_with_another_kernel_manager_it_says_what_is_missing(root: Path) -> None:
    server = Server(root, ServerApp=stock("kernel_manager_class"))
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
