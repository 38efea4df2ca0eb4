"""Find a kernelspec without loading jupyter_client: the supervisor is resident, and that is 8 MiB.

Search order as the Jupyter documentation gives it: JUPYTER_PATH, the environment, the user, the
system. What is not found here is asked of jupyter_client in a child process, which knows every
other source (entry points, configured paths).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import Struct, field

from kernel_runtime.errors import UnknownKernelSpec

MARK = "kernel_runtime"
"""in the metadata of a kernelspec that runs `krt kernel`: a session is never its own kernel"""


class KernelSpec(Struct, frozen=True, kw_only=True):
    """kernel.json, with the directory it lies in."""

    argv: list[str]
    display_name: str = ""
    language: str = ""
    interrupt_mode: str = "signal"
    env: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, object] = field(default_factory=dict)
    resource_dir: str = ""


def _data_dirs() -> list[Path]:
    found = [Path(p) for p in os.environ.get("JUPYTER_PATH", "").split(os.pathsep) if p]
    user = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "jupyter"
    )
    environment = os.path.join(sys.prefix, "share", "jupyter")
    # a virtual environment is more specific than the user's home
    pair = [environment, user] if sys.prefix != sys.base_prefix else [user, environment]
    return [*found, *map(Path, pair), Path("/usr/local/share/jupyter"), Path("/usr/share/jupyter")]


def find(name: str) -> KernelSpec:
    """The kernelspec of that name.

    Raises:
        UnknownKernelSpec: not installed, or its kernel.json cannot be read.
    """
    for directory in _data_dirs():
        path = directory / "kernels" / name / "kernel.json"
        if path.is_file():
            try:
                spec = msgspec.json.decode(path.read_bytes(), type=KernelSpec)
            except msgspec.MsgspecError as error:
                raise UnknownKernelSpec(
                    f"kernelspec {name!r}: {path} cannot be read: {error}",
                    hint="install the kernel again",
                    kernel=name,
                ) from error
            if MARK in spec.metadata:
                continue
            return msgspec.structs.replace(spec, resource_dir=str(path.parent))
    asked = subprocess.run(
        [sys.executable, "-m", "jupyter_client.kernelspecapp", "list", "--json"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    if asked.returncode == 0:
        specs = msgspec.json.decode(asked.stdout).get("kernelspecs", {})
        entry = specs.get(name)
        if entry is not None and MARK not in entry["spec"].get("metadata", {}):
            spec = msgspec.convert(entry["spec"], KernelSpec)
            return msgspec.structs.replace(spec, resource_dir=entry["resource_dir"])
    raise UnknownKernelSpec(
        f"no kernelspec {name!r} is installed",
        hint="`jupyter kernelspec list` shows those that are",
        kernel=name,
    )


def is_ipykernel(spec: KernelSpec) -> bool:
    """Whether the spec starts ipykernel in the ordinary way, so that ours can take its place."""
    if "-m" not in spec.argv:
        return False
    module = spec.argv[spec.argv.index("-m") + 1 :][:1]
    return module in (["ipykernel_launcher"], ["ipykernel"])


def offers_curve(spec: KernelSpec) -> bool:
    """Whether the kernel can encrypt its channels, as its kernelspec's metadata tells."""
    offered = spec.metadata.get("supported_encryption")
    listed = offered if isinstance(offered, list) else [offered]
    return any(isinstance(item, str) and item.strip().lower() == "curve" for item in listed)
