"""Who acts in a session when a person acts in a page.

A page never says who it is: the server knows. So what comes over HTTP or a websocket is always a human,
whatever the page writes into its messages, and an agent's name cannot be borrowed by one.
"""

from __future__ import annotations

import getpass
import os
import re
from typing import Any

from kernel_runtime import places

SERVER = "system:jupyter"
"""the server itself: what it reads, nobody has been told"""

_MADE_UP = re.compile(r"[0-9a-f]{32}")
"""how token authentication calls a person it knows nothing of"""


def principal_of(user: Any) -> str:
    """`human:` and the username that Jupyter's identity provider gives.

    Where it is one that was made up, because a token was all there was to see, it is the person who runs
    the server: KRT_PRINCIPAL where that is a human, or the login name.
    """
    username = str(getattr(user, "username", "") or "")
    if not username or username == "anonymous" or _MADE_UP.fullmatch(username):
        return _runner()
    return f"human:{username}"


def _runner() -> str:
    """The person who runs the server, also where an agent has started it for them."""
    told = places.principal()
    if told.startswith("human:"):
        return told
    try:
        return f"human:{getpass.getuser()}"
    except (KeyError, OSError):  # a uid without a passwd entry
        return f"human:{os.getuid()}"


def asking() -> str:
    """The principal of the request that is being handled; the server's own outside of one."""
    from jupyter_server.base.call_context import CallContext

    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    user = getattr(handler, "current_user", None)
    return SERVER if user is None else principal_of(user)
