"""The notebooks of sessions that lie outside the served directory, as a folder of their own.

`krt-sessions/NAME.ipynb` is the notebook file of session NAME, wherever that is: `krt exec NAME --create`
puts it under KRT_HOME. Nothing else outside the served directory can be reached: a path in the folder is
looked up, never joined. Notebooks in it are read and saved; they are not renamed, moved or deleted here, and
have their checkpoints under KRT_HOME. A real directory of that name in the served one stays what it is.

The notebook of an open document (`OpenFile`) is saved only over what that document has seen of it; stock
truncates the file and writes into it, whatever was put there a moment before.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from anyio.to_thread import run_sync
from jupyter_server import _tz
from jupyter_server.services.contents.filecheckpoints import AsyncFileCheckpoints
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado import web
from traitlets import default

from kernel_runtime import places
from kernel_runtime.notebook.put import Keep, Mark, digest, mark_of, put

FOLDER = "krt-sessions"

Renaming = Callable[[str, str, Callable[[], Awaitable[None]]], Awaitable[None]]


async def _only_rename(_old: str, _new: str, rename: Callable[[], Awaitable[None]]) -> None:
    await rename()


class Overtaken(web.HTTPError):
    """Somebody else wrote the file since the document that is to be saved last saw it."""

    def __init__(self, path: str) -> None:
        super().__init__(409, f"{path} was written by somebody else meanwhile, and was left as it is")


class OpenFile:
    """What an open document has seen of its file. It counts where it is `current`."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._path: Path | None = None
        """None until a contents manager of ours has read it"""
        self._seen: str | None = None
        self._mark: Mark | None = None

    @contextmanager
    def current(self) -> Iterator[None]:
        """What is read and saved here is this document's."""
        token = _OPEN.set(self)
        try:
            yield
        finally:
            _OPEN.reset(token)

    def took(self, path: Path, data: bytes, mark: Mark | None) -> None:
        """It read that, after it had that mark."""
        self._path, self._seen, self._mark = path, digest(data), mark

    @property
    def is_known(self) -> bool:
        return self._path is not None

    def look(self) -> Mark | None:
        """The mark that the file has now; None: there is none, or it is not known."""
        return mark_of(self._path) if self._path is not None else None

    def has_changed(self) -> bool:
        """Whether somebody else wrote the file since, also with an older date."""
        now = self.look()
        return now is not None and self._mark is not None and now[:3] != self._mark[:3]

    def write(self, path: Path, data: bytes) -> bool:
        """False: it holds something else than was seen."""
        mark = put(path, data, seen=self._seen if path.exists() else None, keep=self._keep)
        if mark is None:
            return False
        self._path, self._seen, self._mark = path, digest(data), mark
        return True

    def may_write(self, path: Path) -> bool:
        """Whether another file can take its place with nothing lost but the inode's number."""
        try:
            info = path.stat()
        except FileNotFoundError:
            return os.access(path.parent, os.W_OK)
        return info.st_uid == os.geteuid() and info.st_nlink == 1 and os.access(path.parent, os.W_OK)


def _real(os_path: str) -> Path:
    return Path(os.path.realpath(os_path))


_OPEN: ContextVar[OpenFile | None] = ContextVar("open_file", default=None)


class SessionCheckpoints(AsyncFileCheckpoints):
    """Stock's, but for notebooks in the folder: beside those is nothing of the person's to put them."""

    def checkpoint_path(self, checkpoint_id: str, path: str) -> str:
        contents = self.parent
        if not (isinstance(contents, SessionContentsManager) and contents.in_folder(path)):
            return str(super().checkpoint_path(checkpoint_id, path))
        places.private_dir(places.home())
        place = places.private_dir(places.private_dir(places.home() / "lab") / "checkpoints")
        return str(place / f"{Path(path).stem}-{checkpoint_id}.ipynb")


class SessionContentsManager(AsyncLargeFileManager):
    """Stock's, with the folder."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.outside: dict[str, Path] = {}
        """session name to the notebook file, of those outside the served directory"""
        self.renaming: Renaming = _only_rename
        """called with old path, new path, and what renames the file: sessions go with their notebooks"""

    @default("checkpoints_class")
    def _checkpoints_of_ours(self) -> type:
        return SessionCheckpoints

    def in_folder(self, path: str) -> bool:
        """Whether that path is the folder or in it."""
        top = path.strip("/").partition("/")[0]
        return top == FOLDER and not os.path.lexists(os.path.join(self.root_dir, FOLDER))

    def path_of(self, name: str) -> str | None:
        """Where the notebook of a session outside is found."""
        return f"{FOLDER}/{name}.ipynb" if self.in_folder(FOLDER) else None

    def _file(self, path: str) -> Path | None:
        name = path.strip("/").removeprefix(f"{FOLDER}/")
        return self.outside.get(name.removesuffix(".ipynb")) if name.endswith(".ipynb") else None

    def _get_os_path(self, path: str) -> str:
        if not self.in_folder(path):
            return str(super()._get_os_path(path))
        file = self._file(path)
        if file is None:
            raise web.HTTPError(404, f"{path} is no session's notebook")
        return str(file)

    def _is_folder(self, path: str) -> bool:
        return path.strip("/") == FOLDER and self.in_folder(path)

    def _folder_model(self) -> dict[str, Any]:
        root: dict[str, Any] = self._base_model("")
        return root | {"name": FOLDER, "path": FOLDER, "type": "directory", "size": None, "writable": False}

    def _base_model(self, path: str) -> dict[str, Any]:
        if not self.in_folder(path):
            found: dict[str, Any] = super()._base_model(path)
            return found
        file = Path(self._get_os_path(path))
        info = file.stat()
        return {
            "name": path.rsplit("/", 1)[-1],
            "path": path,
            "last_modified": _tz.utcfromtimestamp(info.st_mtime),
            "created": _tz.utcfromtimestamp(info.st_ctime),
            "content": None,
            "format": None,
            "mimetype": None,
            "size": info.st_size,
            "writable": os.access(file, os.W_OK),
            "hash": None,
            "hash_algorithm": None,
        }

    async def get(
        self,
        path: str,
        content: bool = True,
        type: str | None = None,  # noqa: A002 - jupyter_server's
        format: str | None = None,  # noqa: A002
        require_hash: bool = False,
    ) -> Any:
        if self._is_folder(path):
            if type not in (None, "directory"):
                raise web.HTTPError(400, f"{path} is a directory, not a {type}", reason="bad type")
            model = self._folder_model()
            if content:
                model |= {"format": "json", "content": await self._notebooks()}
            return model
        model = await super().get(path, content=content, type=type, format=format, require_hash=require_hash)
        at_root = not path.strip("/") and model["type"] == "directory"
        if at_root and content and self.outside and self.in_folder(FOLDER):
            model["content"].append(self._folder_model())
        return model

    async def _notebooks(self) -> list[Any]:
        present = [name for name, file in self.outside.items() if file.is_file()]
        return [await self.get(f"{FOLDER}/{name}.ipynb", content=False) for name in present]

    async def dir_exists(self, path: str) -> bool:
        if self.in_folder(path):
            return self._is_folder(path)
        return bool(await super().dir_exists(path))

    async def file_exists(self, path: str) -> bool:
        if self.in_folder(path):
            file = self._file(path)
            return file is not None and file.is_file()
        return bool(await super().file_exists(path))

    def exists(self, path: str) -> bool:  # type: ignore[override] # that of the async manager is not async
        if self.in_folder(path):
            file = self._file(path)
            return self._is_folder(path) or (file is not None and file.exists())
        return bool(super().exists(path))

    async def is_hidden(self, path: str) -> bool:
        return False if self.in_folder(path) else bool(await super().is_hidden(path))

    def is_writable(self, path: str) -> bool:
        return not self._is_folder(path) and bool(super().is_writable(path))

    async def save(self, model: Any, path: str = "") -> Any:
        if self.in_folder(path) and model.get("type") != "notebook":
            raise web.HTTPError(403, f"{FOLDER} holds the notebooks of sessions and nothing else")
        return await super().save(model, path)

    async def _read_notebook(
        self,
        os_path: str,
        as_version: int = 4,
        capture_validation_error: Any = None,
        raw: bool = False,
    ) -> Any:
        reader = _OPEN.get()
        if reader is None:
            return await super()._read_notebook(os_path, as_version, capture_validation_error, raw)
        path = _real(os_path)
        mark = mark_of(path)
        notebook, data = await super()._read_notebook(os_path, as_version, capture_validation_error, raw=True)
        reader.took(path, data, mark)
        return (notebook, data) if raw else notebook

    async def _save_notebook(self, os_path: str, nb: Any, capture_validation_error: Any = None) -> None:
        writer, path = _OPEN.get(), _real(os_path)
        if writer is None or not writer.is_known:
            await super()._save_notebook(os_path, nb, capture_validation_error)
            return
        if not (self.use_atomic_writing and writer.may_write(path)):
            await super()._save_notebook(os_path, nb, capture_validation_error)
            mark = mark_of(path)
            writer.took(path, await run_sync(path.read_bytes), mark)
            return
        text = await run_sync(
            partial(
                nbformat.writes,
                nb,
                version=nbformat.NO_CONVERT,
                capture_validation_error=capture_validation_error,
            )
        )
        if not text.endswith("\n"):
            text += "\n"
        with self.perm_to_403(os_path):
            if not await run_sync(writer.write, path, text.encode()):
                raise Overtaken(os_path)

    async def delete_file(self, path: str) -> None:
        self._refuse(path, "deleted: `krt rm` removes a session")
        await super().delete_file(path)

    async def rename_file(self, old_path: str, new_path: str) -> None:
        for path in (old_path, new_path):
            self._refuse(path, "renamed or moved here: move it into the served directory")

        async def rename() -> None:
            await super(SessionContentsManager, self).rename_file(old_path, new_path)

        await self.renaming(old_path.strip("/"), new_path.strip("/"), rename)

    def _refuse(self, path: str, what: str) -> None:
        if self.in_folder(path):
            raise web.HTTPError(403, f"{path} is a session's notebook, and is not {what}")
