"""Which kernels are installed. Loads jupyter_client, so import it only where a spec is named."""

from __future__ import annotations

from kernel_runtime.errors import UnknownKernelSpec


def available() -> dict[str, str]:
    """Installed kernelspecs: name to the directory that holds its kernel.json."""
    from jupyter_client.kernelspec import KernelSpecManager

    found: dict[str, str] = KernelSpecManager().find_kernel_specs()
    return found


def require(name: str) -> None:
    """Refuse a kernelspec that is not installed.

    Raises:
        UnknownKernelSpec: with the installed ones in its hint and `fields["available"]`.
    """
    found = sorted(available())
    if name not in found:
        raise UnknownKernelSpec(
            f"no kernelspec {name!r} is installed",
            hint=f"installed are: {', '.join(found) or 'none'} (`jupyter kernelspec list`)",
            kernel=name,
            available=found,
        )


def runnable(name: str) -> str:
    """The kernelspec whose kernel a session can start: of one of ours, the one behind it.

    `krt-SPEC` where that is not installed (JupyterLab makes one up) is SPEC.

    Raises:
        UnknownKernelSpec: none is installed.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    found = available()
    bare = name.removeprefix("krt-")
    if name not in found and bare in found:
        name = bare
    require(name)
    mark = KernelSpecManager().get_kernel_spec(name).metadata.get("kernel_runtime")
    return runnable(str(mark.get("kernel") or "python3")) if isinstance(mark, dict) else name
