"""Sessions in a Jupyter Server: its kernels, its documents and its page.

The hooks below are what Jupyter Server calls; importing them loads nothing of it.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "kernel_runtime.jupyter"}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "@kernel-runtime/lab"}]


def _link_jupyter_server_extension(serverapp: Any) -> None:
    from kernel_runtime.jupyter import extension

    extension.link(serverapp)


def _load_jupyter_server_extension(serverapp: Any) -> None:
    from kernel_runtime.jupyter import extension

    extension.load(serverapp)


async def _start_jupyter_server_extension(serverapp: Any) -> None:
    from kernel_runtime.jupyter import extension

    await extension.start(serverapp)
