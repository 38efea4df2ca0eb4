"""What hatch_build.py puts into wheels and sdists, and what it says where it cannot.

Built from a copy of the sources by hatchling itself. The page's part is a stand-in of two files: what is held
here is where it goes, and when it is made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BUILT = "kernel_runtime/jupyter/labextension"
DATA = "share/jupyter/labextensions/@kernel-runtime/lab"
NEEDED = [
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "hatch_build.py",
    "kernel_runtime",
    "labextension",
    "notebooks",
    "pyproject.toml",
]
LEFT_OUT = shutil.ignore_patterns("__pycache__", "node_modules", "lib", "*.pyc")
NPM = """\
#!/bin/sh
echo "$@" >> {log}
case "$1" in
run)
  /bin/mkdir -p ../{built}/static
  echo '{{}}' > ../{built}/package.json
  echo 1 > ../{built}/static/a.js
  ;;
esac
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The project without the page's part built, and with files that belong in no distribution."""
    project = tmp_path / "project"
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, project / name, ignore=LEFT_OUT)
        else:
            project.mkdir(exist_ok=True)
            shutil.copy2(ROOT / name, project / name)
    shutil.rmtree(project / BUILT, ignore_errors=True)
    (project / "labextension" / "node_modules").mkdir()
    (project / "labextension" / "node_modules" / "heavy.js").touch()
    return project


def stand_in(project: Path, *, older: bool = False) -> None:
    """The page's part, as if npm had built it; older than a source if asked."""
    (project / BUILT / "static").mkdir(parents=True)
    (project / BUILT / "static" / "a.js").write_text("1\n")
    (project / BUILT / "package.json").write_text("{}\n")
    if older:
        os.utime(project / BUILT / "package.json", (1.0, 1.0))


def build(project: Path, target: str, *, npm: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What hatchling says; where there is no npm to be found, unless one is given."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(project / "dist")],
        cwd=project,
        env={"PATH": str(npm.parent) if npm is not None else str(project / "nowhere")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def content_of(project: Path, target: str) -> set[str]:
    """Paths in the distribution that was built: in an sdist from its own root."""
    (made,) = (project / "dist").glob("*.whl" if target == "wheel" else "*.tar.gz")
    if target == "wheel":
        return set(zipfile.ZipFile(made).namelist())
    with tarfile.open(made) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def data_of(content: set[str]) -> set[str]:
    """What of a wheel goes to JupyterLab's place in the environment."""
    return {name.partition(f"/data/{DATA}/")[2] for name in content if f"/data/{DATA}/" in name}


def test_a_wheel_has_the_pages_part_where_jupyterlab_looks(sources: Path) -> None:
    stand_in(sources)
    made = build(sources, "wheel")
    assert made.returncode == 0, made.stderr
    content = content_of(sources, "wheel")
    assert data_of(content) == {"package.json", "static/a.js", "install.json"}
    # once, and nothing of what it is made of
    assert not [name for name in content if name.startswith((BUILT, "labextension"))]
    assert any(name.endswith("etc/jupyter/jupyter_server_config.d/kernel_runtime.json") for name in content)


def test_an_sdist_has_it_beside_its_sources_and_a_wheel_of_that_needs_no_node(
    sources: Path, tmp_path: Path
) -> None:
    stand_in(sources)
    made = build(sources, "sdist")
    assert made.returncode == 0, made.stderr
    content = content_of(sources, "sdist")
    assert {f"{BUILT}/package.json", f"{BUILT}/static/a.js", "labextension/src/index.ts"} <= content
    assert {"labextension/package-lock.json", "labextension/install.json", "hatch_build.py"} <= content
    assert not [name for name in content if "node_modules" in name]
    (archive,) = (sources / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = build(unpacked, "wheel")
    assert again.returncode == 0, again.stderr
    assert data_of(content_of(unpacked, "wheel")) == {"package.json", "static/a.js", "install.json"}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_without_it_and_without_npm_nothing_is_built_and_it_says_what_to_do(
    sources: Path, target: str, older: bool
) -> None:
    """Not there, or made of older sources: neither is a distribution that anybody should have."""
    if older:
        stand_in(sources, older=True)
    made = build(sources, target)
    assert made.returncode != 0
    assert "there is no npm to build it" in made.stderr + made.stdout
    assert "make labextension" in made.stderr + made.stdout
    assert "Traceback" not in made.stderr
    assert not [*(sources / "dist").glob("*")]


@pytest.mark.parametrize("older", [False, True])
def test_npm_builds_it_from_the_lock_where_it_is_missing_or_old(
    sources: Path, tmp_path: Path, older: bool
) -> None:
    if older:
        stand_in(sources, older=True)
    log, npm = tmp_path / "npm.log", tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM.format(log=log, built=BUILT))
    npm.chmod(0o755)
    made = build(sources, "wheel", npm=npm)
    assert made.returncode == 0, made.stderr
    first, second = log.read_text().splitlines()
    assert first.startswith("ci --ignore-scripts")
    assert second == "run build"
    assert data_of(content_of(sources, "wheel")) == {"package.json", "static/a.js", "install.json"}
    assert build(sources, "wheel").returncode == 0, "what npm built is taken as it is"


def test_a_build_of_npms_that_fails_fails_the_distribution(sources: Path, tmp_path: Path) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\nexit 3\n")
    npm.chmod(0o755)
    made = build(sources, "wheel", npm=npm)
    assert made.returncode != 0
    assert not [*(sources / "dist").glob("*")]


def test_an_editable_installation_needs_neither(sources: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from hatchling.build import build_editable; print(build_editable(sys.argv[1]))",
            str(tmp_path),
        ],
        cwd=sources,
        env={"PATH": str(sources / "nowhere")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert data_of(set(zipfile.ZipFile(wheel).namelist())) == set()
