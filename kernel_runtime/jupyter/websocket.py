"""Websockets to kernels: what comes over one is from the person who opened it.

A front door welcomes each subscriber of iopub, so a page that connects, also while a cell runs, misses
nothing that is said from then on: stock asks an idle kernel for an answer, and hopes with a busy one.

A page may write any username into its messages, and Lab writes none. To a session's kernel the server puts
its own knowledge there, so that consoles and pages without collaboration journal their cells under the right
principal, and none under an agent's. Messages to stock kernels pass as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
    serialize_binary_message,
    serialize_msg_to_ws_v1,
)
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.kernels import SessionKernelManager

_V1 = "v1.kernel.websocket.jupyter.org"


class SessionWebsocketConnection(ZMQChannelsWebsocketConnection):
    """Stock's connection, which says who is at its other end."""

    _fresh = False
    """its channels were made for it, and not kept from when its page was here last"""

    def create_stream(self) -> None:
        super().create_stream()
        self._fresh = True

    def nudge(self) -> Any:
        if not isinstance(self.kernel_manager, SessionKernelManager):
            return super().nudge()
        return asyncio.ensure_future(self._subscribed())

    async def _subscribed(self) -> None:
        """Until iopub has said its first word, which is the welcome; what else it said is passed on."""
        fresh, self._fresh = self._fresh, False
        if not fresh:
            return
        iopub = self.channels["iopub"]
        heard: list[Any] = []
        first = asyncio.Event()

        def hear(parts: list[Any]) -> None:
            heard.append(parts)
            first.set()

        iopub.on_recv(hear)
        with contextlib.suppress(
            TimeoutError
        ):  # as stock: a page that may miss something is better than none
            await asyncio.wait_for(first.wait(), self.kernel_info_timeout)
        if iopub.closed():
            return
        iopub.stop_on_recv()
        for parts in heard:
            signed: list[Any] = self.session.feed_identities(parts)[1]
            header = json.loads(signed[1])
            if header.get("msg_type") != "iopub_welcome":
                self.handle_outgoing_message("iopub", parts)

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        if isinstance(self.kernel_manager, SessionKernelManager):
            principal = identity.principal_of(self.websocket_handler.current_user)
            incoming_msg = _said_by(principal, incoming_msg, v1=self.subprotocol == _V1)
        super().handle_incoming_message(incoming_msg)


def _said_by(principal: str, raw: Any, *, v1: bool) -> Any:
    """The same message with that username in its header."""
    if v1:
        channel, parts = deserialize_msg_from_ws_v1(raw)
        header = json.loads(bytes(parts[0]))
        header["username"] = principal
        return serialize_msg_to_ws_v1([json.dumps(header).encode(), *parts[1:]], channel)
    message = deserialize_binary_message(raw) if isinstance(raw, bytes) else json.loads(raw)
    message["header"]["username"] = principal
    return serialize_binary_message(message) if isinstance(raw, bytes) else json.dumps(message)
