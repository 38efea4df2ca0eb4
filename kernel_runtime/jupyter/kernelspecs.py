"""The kernelspec by which a page starts a session.

Where none of `krt kernelspec install` is installed, one is made up: "Python 3 (session)" beside "Python 3".
In this server its kernels are durable sessions; to other programs it is what `krt kernelspec install` says.
"""

from __future__ import annotations

import sys

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from kernel_runtime.client.session_files import DEFAULT_KERNEL

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
