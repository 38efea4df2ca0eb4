"""`krt kernelspec install`: put a kernelspec in place whose kernels are sessions of ours."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from kernel_runtime.cli import frame, report
from kernel_runtime.errors import UnknownKernelSpec, UsageError
from kernel_runtime.supervisor.kernelspec import MARK


@click.group("kernelspec", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Let any Jupyter tool start sessions as kernels.

    The tool starts what it takes for a kernel; behind it is a journaled session with a supervisor.
    """


@frame.command(
    "install",
    short="Write the kernelspec.",
    example="krt kernelspec install --user\nkrt kernelspec install --session alice --user",
)
@click.option("--kernel", default="python3", show_default=True, metavar="SPEC", help="Kernelspec behind it.")
@click.option(
    "--session", metavar="NAME", help="Always this durable session, instead of an ephemeral one each."
)
@click.option("--name", "spec_name", metavar="NAME", help="Name of the new kernelspec; krt-SPEC by default.")
@click.option("--display-name", metavar="TEXT", help="What people see in a menu.")
@click.option("--prefix", type=click.Path(path_type=Path), metavar="DIR", help="Under DIR/share/jupyter.")
@click.option("--user", is_flag=True, help="For this user (the default).")
@click.option("--sys-prefix", is_flag=True, help="In this Python environment.")
def install(
    *,
    kernel: str,
    session: str | None,
    spec_name: str | None,
    display_name: str | None,
    prefix: Path | None,
    user: bool,
    sys_prefix: bool,
    as_json: bool,
    principal: str | None,
) -> int:
    """Write a kernelspec through which any Jupyter tool starts a session as if it were a kernel."""
    del principal
    if sum([prefix is not None, user, sys_prefix]) > 1:
        raise UsageError("--prefix, --user and --sys-prefix exclude each other", hint="choose one place")
    if session is not None:
        from kernel_runtime import places

        places.check_name(session)
    document = document_for(base_of(kernel), kernel=kernel, session=session, display_name=display_name)
    name = spec_name or (f"krt-{session}" if session else f"krt-{kernel}").lower()
    place = _install(name, document, Path(sys.prefix) if sys_prefix else prefix)
    if as_json:
        report.emit({"name": name, "path": str(place), "kernelspec": document})
    else:
        click.echo(f"installed kernelspec {name} in {place}")
    return 0


command.add_command(install)


def base_of(name: str) -> Any:
    """The installed kernelspec of that name that is not one of ours.

    Raises:
        UnknownKernelSpec: none is installed.
    """
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    manager = KernelSpecManager(ensure_native_kernel=True)
    for directory in manager.kernel_dirs:
        path = Path(directory) / name / "kernel.json"
        if path.is_file():
            spec = KernelSpec.from_resource_dir(str(path.parent))
            if MARK not in spec.metadata:
                return spec
    try:
        found: Any = manager.get_kernel_spec(name)  # entry points and kernels in other configured places
    except KeyError:
        found = None
    if found is not None and MARK not in found.metadata:
        return found
    known = sorted(manager.find_kernel_specs())
    raise UnknownKernelSpec(
        f"no kernelspec {name!r} is installed",
        hint=f"installed are: {', '.join(known) or 'none'} (`jupyter kernelspec list`)",
        kernel=name,
        available=known,
    )


def document_for(base: Any, *, kernel: str, session: str | None, display_name: str | None) -> dict[str, Any]:
    """kernel.json of a kernelspec that stands in for `base`."""
    # -P: a file in the notebook's directory must not stand in for one of our modules
    argv = [sys.executable, "-P", "-m", "kernel_runtime.cli", "kernel", "-f", "{connection_file}"]
    argv += ["--kernel", kernel]
    if session is not None:
        argv += ["--session", session]
    what = f"session {session}" if session else "session"
    return {
        "argv": argv,
        "display_name": display_name or f"{base.display_name} ({what})",
        "language": base.language,
        # as stock says; the stand-in hands it to the supervisor, which owns the ladder
        "interrupt_mode": "signal",
        "metadata": {
            **{key: value for key, value in base.metadata.items() if key != "kernel_provisioner"},
            "supported_encryption": ["curve"],
            MARK: {"kernel": kernel, "session": session},
        },
    }


def _install(name: str, document: dict[str, Any], prefix: Path | None) -> Path:
    from jupyter_client.kernelspec import KernelSpecManager

    base = base_of(document["metadata"][MARK]["kernel"])
    draft = Path(tempfile.mkdtemp(prefix="krt-spec-"))
    try:
        for picture in Path(base.resource_dir or "").glob("logo-*") if base.resource_dir else ():
            shutil.copy(picture, draft)
        (draft / "kernel.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        draft.chmod(0o755)
        try:
            return Path(
                KernelSpecManager().install_kernel_spec(
                    str(draft), kernel_name=name, user=prefix is None, prefix=str(prefix) if prefix else None
                )
            )
        except ValueError as error:
            raise UsageError(
                str(error), hint="letters, digits, '.', '_' and '-' make a kernelspec's name"
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
