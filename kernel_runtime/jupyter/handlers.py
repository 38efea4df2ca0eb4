"""`/kernel-runtime/api/`: what pages ask of sessions beyond what Jupyter's own API knows.

Jupyter's authentication, authorization (resource `kernels`) and XSRF check guard every route. Who acts is
the person that the server authenticated, never what the request says. Long polls answer after 60 s at the
latest. Errors are `{"error": {"type", "message", "hint", …}, "message"}`: 400 the request was wrong, 403
nobody is signed in, 404 there is no such thing, 409 refused and nothing was run, 503 the machine was at
fault, 500 we were (`refusals.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from kernel_runtime.client import overview as all_sessions
from kernel_runtime.client import session_files
from kernel_runtime.client.session import AsyncSession
from kernel_runtime.core.execution_view import blocked_document
from kernel_runtime.errors import KernelRuntimeError, NotFound, Refused, UsageError
from kernel_runtime.jupyter import identity
from kernel_runtime.jupyter.clients import AttachedSession, kernel_id_of
from kernel_runtime.jupyter.kernels import SessionMappingKernelManager
from kernel_runtime.jupyter.overview import Overviews
from kernel_runtime.jupyter.refusals import ADDRESSES, FIELDS, in_our_words, status_of

PARTS = "kernel_runtime"
"""in the application's settings: the scan and the mirrors"""
LONGEST_WAIT = 60.0
_KERNEL = r"(?P<kernel_id>[^/]+)"
_EXECUTION = r"(?P<execution_id>[^/]+)"
_TYPED_WITHIN = 10.0
"""seconds that a cell waits for its page's text: the socket by which that comes may just be cut off"""
_IDLE = 0.5
"""seconds between looks at whether a session that is stopped runs again"""
_AT_LEAST = 0.2
"""seconds until a long poll of an overview answers: what changes together is told together"""


class Execute(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and by which page."""

    source: str
    cell_id: str | None = None
    key: str | None = None
    client: str = ""
    document: bytes | None = None
    """state vector of the shared document as the page has it"""
    accept: bool = False
    after: str | None = None
    expect_incarnation: int | None = None
    stop_on_error: bool = True
    store_history: bool = True
    silent: bool = False


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What is told to whoever asks."""

    text: str | None = None
    eof: bool = False
    execution_id: str | None = None


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """Which execution is meant; None: the one that runs."""

    execution_id: str | None = None


_Body = TypeVar("_Body", bound=msgspec.Struct)

_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, None]])
_may_execute: Callable[[_Method], _Method] = authorized("execute", resource="kernels")


def _told(method: _Method) -> _Method:
    """Answer an error of ours as every surface tells it."""

    @wraps(method)
    async def told(self: ApiHandler, *args: Any, **kwargs: Any) -> None:
        try:
            await method(self, *args, **kwargs)
        except KernelRuntimeError as error:
            self.refuse(status_of(error), error)

    return told  # type: ignore[return-value]


class ApiHandler(APIHandler):
    """What the routes share."""

    auth_resource = "kernels"

    def initialize(self, kernels: SessionMappingKernelManager, overviews: Overviews) -> None:
        self.kernels = kernels
        self.overviews = overviews

    @property
    def principal(self) -> str:
        return identity.principal_of(self.current_user)

    def session(self, kernel_id: str) -> AttachedSession:
        found = self.kernels.attached.by_kernel(kernel_id)
        if found is None:
            raise NotFound(f"no session has the kernel {kernel_id}", hint="`krt ls` lists the sessions")
        return found

    def line(self, kernel_id: str) -> AsyncSession:
        return self.kernels.clients.client_for(self.session(kernel_id).name, self.principal)

    def answer(self, document: Any) -> None:
        """As JSON; a report may hold what Python's own encoder does not know."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(document))

    def refuse(self, status: int, error: KernelRuntimeError) -> None:
        """Answer it; `message` besides is where stock's pages look."""
        self.set_status(status)
        self.answer({"error": error.to_json(), "message": error.message})

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """What stock refuses, and what we did not expect, in the same shape."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        self.refuse(status_code, in_our_words(status_code, error, self.request.method or ""))

    def body(self, kind: type[_Body]) -> _Body:
        """The request's, checked.

        Raises:
            UsageError: it is no JSON object, or a field is not of its type.
        """
        try:
            document = json.loads(self.request.body) if self.request.body.strip() else {}
            return msgspec.convert(document, kind)
        except msgspec.ValidationError as error:
            raise UsageError(f"the request's body is wrong: {error}", hint=FIELDS) from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the request's body is no JSON: {error}", hint=FIELDS) from error

    def seconds(self) -> float:
        """The `wait` argument, bounded."""
        try:
            return min(LONGEST_WAIT, max(0.0, float(self.get_argument("wait", "0"))))
        except ValueError as error:
            raise UsageError("wait is no number of seconds", hint="e.g. wait=20") from error

    async def changed(self, kernel_id: str, after: int, timeout: float) -> None:
        """Until something of the session changed after that `seq`, or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while (left := deadline - loop.time()) > 0:
            kernel = self.kernels.session_kernel(kernel_id)
            if kernel is not None and kernel.watch is not None and not kernel.watch.ended:
                if await kernel.watch.wait(after, left):
                    return
            else:  # stopped: whoever starts it again does not ring here
                await asyncio.sleep(min(left, _IDLE))


class SessionsHandler(ApiHandler):
    """`GET sessions`: the rows of `krt ls`, with `kernel_id` and `path`."""

    @web.authenticated
    @authorized
    @_told
    async def get(self) -> None:
        await self.kernels.ready.wait()
        rows = await all_sessions.gather(self.principal)
        for row in rows:
            known = self.kernels.attached.by_name(row["name"])
            row["kernel_id"] = kernel_id_of(row["session_id"]) if row["session_id"] else None
            row["path"] = known.path if known is not None else None
        self.answer(rows)


class OverviewHandler(ApiHandler):
    """`GET kernels/ID/overview?after=HEAD&wait=S`."""

    @web.authenticated
    @authorized
    @_told
    async def get(self, kernel_id: str) -> None:
        session = self.session(kernel_id)
        after = self.get_argument("after", "")
        if after:
            try:
                seen = int(after)
            except ValueError as error:
                raise UsageError("after is no number", hint="the `head` of the last overview") from error
            await self.changed(kernel_id, seen, self.seconds())
            await asyncio.sleep(_AT_LEAST)
        self.answer(await self.overviews.of(session, self.principal))


class ExecuteHandler(ApiHandler):
    """`POST kernels/ID/execute`: 202 once the intent to run is on disk."""

    @web.authenticated
    @_may_execute
    @_told
    async def post(self, kernel_id: str) -> None:
        body = self.body(Execute)
        file = session_files.load(self.session(kernel_id).name)
        line = self.kernels.clients.client_of(file, self.principal, body.client)
        if body.document is not None:
            await self._typed(file.name, body.document)
        if body.after:
            await _not_after_a_failure(line, body.after)
        execution = await line.submit(
            body.source,
            key=body.key or None,
            cell_id=body.cell_id or None,
            accept=body.accept,
            expect_incarnation=body.expect_incarnation,
            stop_on_error=body.stop_on_error,
            store_history=body.store_history,
            silent=body.silent,
        )
        await self.kernels.attach(file)
        self.set_status(202)
        self.answer(
            {
                "execution_id": execution.execution_id,
                "cell_id": execution.cell_id,
                "recorded": execution.recorded,
                "cursor": execution.cursor,
            }
        )

    async def _typed(self, name: str, state: bytes) -> None:
        """What a page typed comes by another socket than what it runs, and maybe after it.

        Until it is there, the document has an older text under the new output, and looks edited.
        """
        mirrors = self.settings.get(PARTS, {}).get("mirrors")
        try:
            if mirrors is not None and not await mirrors.has_all(name, state, _TYPED_WITHIN):
                self.log.info("session %s: a cell is run before its page's text has come", name)
        except ValueError as error:
            raise UsageError(f"document is no state vector: {error}", hint=FIELDS) from error


async def _not_after_a_failure(line: AsyncSession, before: str) -> None:
    """Refuse what a page queued behind a cell that has failed since: its word of that is under way."""
    row = await line.peek(before)
    if row.status == "done" and row.outcome != "ok":
        raise Refused(
            f"session {line.name}: the cell before it ended in {row.outcome}; nothing was run",
            hint="run it by itself if it is to run all the same",
            after=before,
        )


class ExecutionHandler(ApiHandler):
    """`GET kernels/ID/executions/EXECUTION?wait=S`: when it is done or blocked, or the time is up."""

    @web.authenticated
    @authorized
    @_told
    async def get(self, kernel_id: str, execution_id: str) -> None:
        line = self.kernels.clients.client_for(self.session(kernel_id).name, identity.SERVER)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.seconds()
        while True:
            head = line.journal.head()
            row = await line.peek(execution_id)
            left = deadline - loop.time()
            if row.status in ("done", "blocked") or left <= 0:
                break
            await self.changed(kernel_id, head, left)
        self.answer(
            {
                "status": row.status,
                "outcome": row.outcome,
                "execution_count": row.execution_count,
                "blocked": blocked_document(row.blocked) if row.blocked is not None else None,
                "error": row.error,
            }
        )


class ActionHandler(ApiHandler):
    """`POST kernels/ID/ACTION`: what a page's buttons do."""

    @web.authenticated
    @_may_execute
    @_told
    async def post(self, kernel_id: str, action: str) -> None:
        act = getattr(self, f"_{action}")
        document = await act(kernel_id)
        self.overviews.forget(self.session(kernel_id).session_id)
        self.answer(document)

    async def _answer(self, kernel_id: str) -> dict[str, Any]:
        body = self.body(Reply)
        if (body.text is None) == (not body.eof):
            raise UsageError("an answer is a text or eof", hint='{"text": …} or {"eof": true}')
        execution_id = await self.line(kernel_id).answer(
            body.text, eof=body.eof, execution_id=body.execution_id
        )
        return {"execution_id": execution_id}

    async def _accept(self, kernel_id: str) -> dict[str, Any]:
        return {"incarnation": await self.line(kernel_id).accept()}

    async def _start(self, kernel_id: str) -> dict[str, Any]:
        file = session_files.load(self.session(kernel_id).name)
        await self.kernels.attach(file, start_as=self.principal)
        kernel = self.kernels.session_kernel(kernel_id)
        return {"incarnation": kernel.incarnation if kernel is not None else 0}

    async def _interrupt(self, kernel_id: str) -> dict[str, Any]:
        reached = await self.line(kernel_id).interrupt(self.body(Aim).execution_id)
        document: dict[str, Any] = msgspec.to_builtins(reached)
        return document

    async def _restart(self, kernel_id: str) -> dict[str, Any]:
        await self.kernels.attach(session_files.load(self.session(kernel_id).name))
        kernel = self.kernels.session_kernel(kernel_id)
        assert kernel is not None
        await kernel.restart_kernel()
        return {"incarnation": kernel.incarnation}

    async def _detach(self, kernel_id: str) -> dict[str, Any]:
        if self.kernels.session_kernel(kernel_id) is not None:
            await self.kernels.shutdown_kernel(kernel_id)
        return {"detached": True}


class ClaimsHandler(ApiHandler):
    """`POST kernels/ID/claims/check`: every claim that stands, checked now."""

    @web.authenticated
    @_may_execute
    @_told
    async def post(self, kernel_id: str) -> None:
        claims = await self.line(kernel_id).claims()
        self.overviews.forget(self.session(kernel_id).session_id)
        self.answer({"claims": [claim.json() for claim in claims]})


class NowhereHandler(ApiHandler):
    """Every other address under the API's: says so, in JSON."""

    @web.authenticated
    @authorized
    @_told
    async def get(self) -> None:
        raise NotFound(f"there is no {self.request.path} here", hint=ADDRESSES)

    post = put = delete = patch = get


def routes(base_url: str, kernels: SessionMappingKernelManager) -> list[tuple[Any, ...]]:
    """The handlers, for the server's application."""
    given = {"kernels": kernels, "overviews": Overviews(kernels)}
    api = f"{base_url.rstrip('/')}/kernel-runtime/api"
    actions = "answer|accept|start|interrupt|restart|detach"
    return [
        (rf"{api}/sessions", SessionsHandler, given),
        (rf"{api}/kernels/{_KERNEL}/overview", OverviewHandler, given),
        (rf"{api}/kernels/{_KERNEL}/execute", ExecuteHandler, given),
        (rf"{api}/kernels/{_KERNEL}/executions/{_EXECUTION}", ExecutionHandler, given),
        (rf"{api}/kernels/{_KERNEL}/claims/check", ClaimsHandler, given),
        (rf"{api}/kernels/{_KERNEL}/(?P<action>{actions})", ActionHandler, given),
        (rf"{api}(?:/.*)?", NowhereHandler, given),
    ]
