"""A pytest plugin for jupyter_server's own tests: our managers wherever they name stock's.

Its tests take the classes by import and by dotted name, so the names themselves are made ours before any
test module is imported. Kernels are stock ones: what is tested is that ours does everything else as before.
"""

from __future__ import annotations

from typing import Any

import jupyter_server.serverapp as app
from jupyter_server.services.kernels import kernelmanager
from jupyter_server.services.sessions import sessionmanager

from kernel_runtime.jupyter.extension import MANAGERS

for _module, _name, _trait in (
    (kernelmanager, "AsyncMappingKernelManager", "kernel_manager_class"),
    (app, "AsyncMappingKernelManager", "kernel_manager_class"),
    (sessionmanager, "SessionManager", "session_manager_class"),
    (app, "SessionManager", "session_manager_class"),
    (app, "ZMQChannelsWebsocketConnection", "kernel_websocket_connection_class"),
    (app, "KernelSpecManager", "kernel_spec_manager_class"),
):
    _place: Any = _module
    assert hasattr(_place, _name), f"{_place.__name__} has no {_name} any more"
    setattr(_place, _name, MANAGERS[_trait])
