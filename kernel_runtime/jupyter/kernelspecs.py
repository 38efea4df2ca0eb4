"""The kernelspec by which a page starts a session.

Where none of `krt kernelspec install` is installed, one is made up: "Python 3 (session)" beside "Python 3".
In this server its kernels are durable sessions; to other programs it is what `krt kernelspec install` says.
"""

from __future__ import annotations

import re
import sys
import uuid
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from kernel_runtime import places
from kernel_runtime.client import session_files
from kernel_runtime.client.session_files import DEFAULT_KERNEL, SessionFile
from kernel_runtime.errors import SessionExists
from kernel_runtime.jupyter import identity

NAME = "krt-python3"
_MARK = "kernel_runtime"
"""in the metadata of a kernelspec of ours, as `krt kernelspec install` writes it"""


def kernel_behind(spec: KernelSpec) -> str | None:
    """The kernelspec that a session of this one runs; None where it is none of ours."""
    mark = (spec.metadata or {}).get(_MARK)
    return str(mark.get("kernel") or DEFAULT_KERNEL) if isinstance(mark, dict) else None


def session_of(spec: KernelSpec) -> str | None:
    """The session that each kernel of this kernelspec is; None where each is a new one."""
    mark = (spec.metadata or {}).get(_MARK)
    return mark.get("session") if isinstance(mark, dict) else None


def session_spec(specs: KernelSpecManager | None, kernel_name: str | None) -> KernelSpec | None:
    """The kernelspec of that name if its kernels are sessions; None for any other."""
    if not kernel_name or specs is None:
        return None
    try:
        spec = specs.get_kernel_spec(kernel_name)
    except KeyError:  # stock says so, and better
        return None
    return spec if kernel_behind(spec) is not None else None


def make_session(spec: KernelSpec, *, cwd: str, notebook: Path | None) -> SessionFile:
    """The session that a kernelspec names, or a new one, named after its notebook.

    Raises:
        SessionExists: no name is left.
        StorageFault, UsageError: it cannot be made.
    """
    named = session_of(spec)
    if named is not None and session_files.exists(named):
        return session_files.load(named)
    for name in [named] if named is not None else _names(notebook):
        try:
            return session_files.create(
                name, kernel=kernel_behind(spec), cwd=cwd, notebook=notebook, principal=identity.asking()
            )
        except SessionExists:
            continue
    raise SessionExists(f"no name is left for a session of {notebook}", hint="`krt ls` lists the sessions")


def _names(notebook: Path | None) -> list[str]:
    """Names to try for a new session."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", notebook.stem if notebook else "console").strip("-._")[:56]
    base = stem if places.NAME.fullmatch(stem) else "notebook"
    return [base, *(f"{base}-{number}" for number in range(2, 100)), f"{base[:30]}-{uuid.uuid4().hex}"]


class SessionKernelSpecManager(KernelSpecManager):
    """Stock's manager, and one kernelspec more."""

    def find_kernel_specs(self) -> dict[str, str]:
        found: dict[str, str] = super().find_kernel_specs()
        if DEFAULT_KERNEL in found:
            found.setdefault(NAME, found[DEFAULT_KERNEL])
        return found

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        if kernel_name == NAME and NAME not in super().find_kernel_specs():
            return self._made_up()
        return super().get_kernel_spec(kernel_name)

    def remove_kernel_spec(self, name: str) -> str:
        if name == NAME and NAME not in super().find_kernel_specs():
            raise KeyError(name)  # it lies nowhere, and its pictures are another one's
        return str(super().remove_kernel_spec(name))

    def _made_up(self) -> KernelSpec:
        base = super().get_kernel_spec(DEFAULT_KERNEL)
        argv = [sys.executable, "-P", "-m", "kernel_runtime.cli", "kernel", "-f", "{connection_file}"]
        return KernelSpec(
            argv=[*argv, "--kernel", DEFAULT_KERNEL],
            display_name="Python 3 (session)",
            language=base.language,
            resource_dir=base.resource_dir,
            interrupt_mode="signal",
            metadata={"supported_encryption": ["curve"], _MARK: {"kernel": DEFAULT_KERNEL, "session": None}},
        )
