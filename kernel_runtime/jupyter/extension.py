"""The Jupyter Server extension: puts our managers in place, and keeps sessions attached.

Linked before the server makes its managers, it names ours where nobody configured others; a server with
other managers runs as before, and says in its log what is missing and which lines put ours in. Loaded after
that, it adds the routes. Started with the event loop, it attaches the sessions and, where documents are
shared, mirrors their journals into them.

The server's end, however it comes, is nothing to a session.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from kernel_runtime.jupyter.contents import SessionContentsManager
from kernel_runtime.jupyter.handlers import PARTS, routes
from kernel_runtime.jupyter.kernels import SessionMappingKernelManager
from kernel_runtime.jupyter.kernelspecs import SessionKernelSpecManager
from kernel_runtime.jupyter.scan import Scan
from kernel_runtime.jupyter.sessions import SessionRowManager
from kernel_runtime.jupyter.websocket import SessionWebsocketConnection

MANAGERS: dict[str, type] = {
    "contents_manager_class": SessionContentsManager,
    "kernel_manager_class": SessionMappingKernelManager,
    "session_manager_class": SessionRowManager,
    "kernel_spec_manager_class": SessionKernelSpecManager,
    "kernel_websocket_connection_class": SessionWebsocketConnection,
}
"""traits of ServerApp, each with what we put there"""


def link(serverapp: Any) -> None:
    """Name our managers where nobody named others."""
    from jupyter_server.gateway.gateway_client import GatewayClient

    if GatewayClient.instance(parent=serverapp).gateway_enabled:
        return  # its kernels are all on another machine
    configured = serverapp.config.get("ServerApp", {})
    for trait, ours in MANAGERS.items():
        if trait not in configured and trait not in serverapp._trait_values:  # noqa: SLF001 - set, not defaulted
            setattr(serverapp, trait, ours)
    _name_terminals(serverapp)


def _name_terminals(serverapp: Any) -> None:
    """Have the sessions' terminals among the server's, where it has some."""
    point = serverapp.extension_manager.extension_points.get("jupyter_server_terminals")
    if point is None or point.app is None:
        return
    configured = serverapp.config.get("TerminalsExtensionApp", {})
    if "terminal_manager_class" not in configured:
        from kernel_runtime.jupyter.terminals import SessionTerminalManager

        point.app.terminal_manager_class = SessionTerminalManager


def load(serverapp: Any) -> None:
    """Add the routes, if the server's kernels are ours."""
    _ask_for_no_news(serverapp)
    kernels = serverapp.kernel_manager
    if not isinstance(kernels, SessionMappingKernelManager):
        lines = "\n".join(
            f"  c.ServerApp.{trait} = '{ours.__module__}.{ours.__qualname__}'"
            for trait, ours in MANAGERS.items()
        )
        serverapp.log.warning(
            "kernel_runtime: sessions are not shown, since other managers are configured; for ours:\n%s",
            lines,
        )
        return
    serverapp.web_app.add_handlers(".*$", routes(serverapp.base_url, kernels))


_NEWS = "@jupyterlab/apputils-extension:announcements"


def _ask_for_no_news(serverapp: Any) -> None:
    """Where `LabApp.news_url` is None, leave out the part of the page that asks whether to fetch news.

    JupyterLab 4.6 writes the trait into the page's configuration, and nothing there reads it: the question
    comes all the same, and with either answer the server asks a host for a newer JupyterLab.
    """
    configured = serverapp.config.get("LabApp", {})
    if "news_url" not in configured or configured["news_url"] is not None:
        return
    settings = serverapp.web_app.settings
    before = settings.get("page_config_hook")

    def hook(handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = before(handler, page_config) if before else page_config
        return found | {"disabledExtensions": [*found.get("disabledExtensions", []), _NEWS]}

    settings["page_config_hook"] = hook


async def start(serverapp: Any) -> None:
    """Attach the sessions; returns when those that run are kernels of this server."""
    kernels = serverapp.kernel_manager
    if not isinstance(kernels, SessionMappingKernelManager):
        return
    scan = Scan(kernels, serverapp.session_manager, serverapp.contents_manager, serverapp.log)
    parts: dict[str, Any] = {"scan": scan}
    serverapp.web_app.settings[PARTS] = parts
    kernels.on_stop.append(scan.stop)
    try:
        await scan.start()
    finally:
        kernels.ready.set()
    mirrors = _mirrors(serverapp, kernels)
    if mirrors is not None:
        parts["mirrors"] = mirrors
        await mirrors.start()
        kernels.on_stop.insert(0, mirrors.stop)


def _mirrors(serverapp: Any, kernels: SessionMappingKernelManager) -> Any:
    """What writes journals into shared documents; None where no document is shared."""
    extension = serverapp.extension_manager.extension_points.get("jupyter_server_ydoc")
    if extension is None or extension.app is None or extension.app.disable_rtc:
        return None
    if importlib.util.find_spec("kernel_runtime.jupyter.mirror") is None:
        return None
    mirror = importlib.import_module("kernel_runtime.jupyter.mirror")
    return mirror.Mirrors(serverapp, kernels.attached)
