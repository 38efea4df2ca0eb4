"""The wheel in an environment of its own, as `pip install kernel-runtime[lab]` leaves it.

What the tests run in has the sources installed instead: what a wheel alone brings, such as the file that
enables the server extension, is not there. All other packages are taken from there; nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it."""

    prefix: Path

    @property
    def python(self) -> str:
        return str(self.prefix / "bin" / "python")

    def environment(self) -> dict[str, str]:
        """Where Jupyter finds what else is installed; the wheel's own data is found in the prefix."""
        return {
            "JUPYTER_CONFIG_PATH": str(self.prefix.parent / "etc"),
            "JUPYTERLAB_DIR": str(Path(sys.prefix, "share", "jupyter", "lab")),
        }

    def run(self, *arguments: str, **env: str) -> str:
        """What Python says, both streams."""
        done = subprocess.run(
            [self.python, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            cwd=self.prefix,
            env={**os.environ, **self.environment(), **env},
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}"
        return done.stdout


def installed(place: Path) -> Installed:
    """Build the wheel and install it under a directory."""
    _do(
        sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(place / "dist"), str(ROOT)
    )
    made = Installed(place / "environment")
    # what enables the others' extensions; an installation of the sources may have put ours beside them
    shutil.copytree(
        Path(sys.prefix, "etc", "jupyter"), place / "etc", ignore=shutil.ignore_patterns("kernel_runtime*")
    )
    venv.create(made.prefix, symlinks=True)
    packages = Path(made.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # behind its own packages; the .pth files beside those, an editable install's among them, are not read
    (packages / "everything-else.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = (place / "dist").glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        f"--python={made.python}",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    _do(*pip, "--disable-pip-version-check", "--ignore-installed", str(wheel))
    assert str(made.prefix) in made.run("-c", "import kernel_runtime; print(kernel_runtime.__file__)")
    return made


def _do(*argv: str) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
