"""Puts the built labextension into wheels and sdists.

A wheel carries it as data, where JupyterLab looks for it; an sdist carries it beside its sources, so that
what is installed from either needs no Node. It is built here only where it is missing or older than its
sources, and there has to be npm for that. An editable installation gets none and needs none:
`make labextension` builds and links it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = "kernel_runtime/jupyter/labextension"
SOURCES = ("src", "style", "package.json", "package-lock.json", "rspack.config.js", "tsconfig.json")
DESTINATION = "share/jupyter/labextensions/@kernel-runtime/lab"
INSTALL_JSON = "labextension/install.json"


class LabextensionHook(BuildHookInterface[Any]):
    """Hatch calls it before it collects a distribution's files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version == "editable":
            return
        root = Path(self.root)
        ensure_built(root)
        if self.target_name == "wheel":
            build_data["shared_data"][str(root / BUILT)] = DESTINATION
            build_data["shared_data"][str(root / INSTALL_JSON)] = f"{DESTINATION}/install.json"
        else:
            build_data["artifacts"].append(f"/{BUILT}/")


def ensure_built(root: Path) -> None:
    """Build the labextension unless it stands there, no older than its sources."""
    if is_current(root):
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(
            "the labextension is not built, or older than its sources, and there is no npm to build it:\n"
            "  install Node 20 or newer and run `make labextension`, or install a released wheel or sdist"
        )
    for arguments in (["ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["run", "build"]):
        subprocess.run([npm, *arguments], cwd=root / "labextension", check=True)


def is_current(root: Path) -> bool:
    """Whether it is built, and from these sources as far as their times tell."""
    try:
        built = (root / BUILT / "package.json").stat().st_mtime
    except FileNotFoundError:
        return False
    sources = [root / "labextension" / name for name in SOURCES]
    files = [file for source in sources for file in (source, *source.rglob("*")) if file.is_file()]
    return all(file.stat().st_mtime <= built for file in files)
