"""Errors of ours as HTTP has them, and errors of the server in words of ours.

Pages show what they are told as it stands. So whatever goes wrong is a sentence that names the session or
what was asked, with what to do next; the status says who must act. A traceback is for the log.
"""

from __future__ import annotations

from tornado import web

from kernel_runtime.errors import (
    CallerError,
    InternalFault,
    KernelRuntimeError,
    NotAllowed,
    NotFound,
    Refused,
    UsageError,
)

ADDRESSES = "docs/jupyterlab.md lists the addresses"
FIELDS = "docs/jupyterlab.md lists the fields of each request"


class ToldError(web.HTTPError):
    """An error of ours in a route of the server's own, which shows the words and nothing around them."""

    def __init__(self, error: KernelRuntimeError) -> None:
        super().__init__(status_of(error), str(error))
        self._words = str(error)

    def __str__(self) -> str:
        return self._words


def status_of(error: KernelRuntimeError) -> int:
    """404 no such thing, 409 refused, 400 the request was wrong, 500 we were, 503 the machine was."""
    for kind, status in ((NotFound, 404), (Refused, 409), (CallerError, 400), (InternalFault, 500)):
        if isinstance(error, kind):
            return status
    return 503


def in_our_words(status: int, error: BaseException | None, method: str) -> KernelRuntimeError:
    """What the server refused by itself, or failed over, as an error of ours."""
    said = getattr(error, "log_message", None)
    if status == 403:
        return NotAllowed(
            f"the server does not let this in: {said or 'it does not know who asks'}",
            hint="open the address that `krt lab` or the server printed, with its token, or sign in again",
        )
    if status == 404:
        return NotFound("there is no such address here", hint=ADDRESSES)
    if status == 405:
        return UsageError(f"{method} means nothing at this address", hint=ADDRESSES)
    said = said or (type(error).__name__ if error is not None else str(status))
    if status < 500:
        return UsageError(f"the request is wrong: {said}", hint=FIELDS)
    return InternalFault(f"the server failed over this request: {said}", hint="its log says more")
