"""A replay's result for people and for other programs: one HTML file, JUnit XML.

Everything in it that comes from a record or a kernel is untrusted. The page is safe to open: it has no
script, loads nothing, and what outputs bring along is sanitized (`safe`).

`html` needs packages of the `replay` extra; `check_packages` says which are missing before anything is run.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_runtime.errors import MissingPackage, UsageError

if TYPE_CHECKING:
    from kernel_runtime.replay.audit import Replayed

_NEEDED = {"jinja2": "jinja2", "nbconvert": "nbconvert", "nh3": "nh3", "PIL": "pillow"}
"""module → package"""


def check_packages() -> None:
    """Refuse where the page could not be made.

    Raises:
        MissingPackage: names what to install.
    """
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingPackage(
            f"the HTML report needs {', '.join(missing)}, which is not installed",
            hint="pip install 'kernel-runtime[replay]'",
            missing=missing,
        )


def check_places(*paths: Path | None) -> None:
    """Refuse files that cannot be written, before anything is run.

    Raises:
        UsageError: names the path.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir() or not path.absolute().parent.is_dir():
            what = "is a directory" if path.is_dir() else "would stand in a directory that is not there"
            raise UsageError(
                f"{path} {what}", hint="name a file in a directory that is there", path=str(path)
            )
        if not os.access(path.absolute().parent, os.W_OK):
            raise UsageError(f"{path} cannot be written", hint="check who may write there", path=str(path))


def write(replayed: Replayed, *, html: Path | None = None, junit: Path | None = None, by: str = "") -> None:
    """Write the reports that are asked for; each takes the place of a file that is there.

    Raises:
        MissingPackage: of `html`.
        DiskFull, ReadOnlyStorage, StorageFault: the file is as it was.
    """
    from kernel_runtime.evidence.files import new_file

    if html is not None:
        check_packages()
        from kernel_runtime.replay.report.html import page

        data = page(replayed, by=by)
        with new_file(html) as file:
            file.write(data)
    if junit is not None:
        from kernel_runtime.replay.report.junit import document

        data = document(replayed)
        with new_file(junit) as file:
            file.write(data)
