"""The notebooks of sessions that lie outside the served directory, as a folder of their own.

`krt-sessions/NAME.ipynb` is the notebook file of session NAME, wherever that is: `krt exec NAME --create`
puts it under KRT_HOME. Nothing else outside the served directory can be reached: a path in the folder is
looked up, never joined. Notebooks in it are read and saved; they are not renamed, moved or deleted here, and
have their checkpoints under KRT_HOME. A real directory of that name in the served one stays what it is.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jupyter_server import _tz
from jupyter_server.services.contents.filecheckpoints import AsyncFileCheckpoints
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado import web
from traitlets import default

from kernel_runtime import places

FOLDER = "krt-sessions"

Renaming = Callable[[str, str, Callable[[], Awaitable[None]]], Awaitable[None]]


async def _only_rename(_old: str, _new: str, rename: Callable[[], Awaitable[None]]) -> None:
    await rename()


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
