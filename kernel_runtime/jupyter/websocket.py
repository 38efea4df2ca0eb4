"""Websockets to kernels: what comes over one is from the person who opened it.

A page may write any username into its messages, and Lab writes none. To a session's kernel the server puts
its own knowledge there, so that consoles and pages without collaboration journal their cells under the right
principal, and none under an agent's. Messages to stock kernels pass as they are.
"""

from __future__ import annotations

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
