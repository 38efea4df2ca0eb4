"""Every link in the documentation leads somewhere that is in the repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)


def _documents() -> list[Path]:
    listed = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    return sorted(listed)


def _anchors(path: Path) -> set[str]:
    """Anchors as GitHub makes them of headings."""
    text = _FENCE.sub("", path.read_text())
    plain = (re.sub(r"[`*]", "", heading).lower() for heading in _HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", _documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in _LINK.findall(_FENCE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        there = file.exists() and file.is_relative_to(ROOT)
        if not there or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


def test_the_index_names_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    missing = [
        str(path.relative_to(ROOT / "docs"))
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "README.md" and str(path.relative_to(ROOT / "docs")) not in index
    ]
    assert not missing


def test_make_targets_are_explained() -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "bench", "lint", "docs", "conformance", "lock", "clean"):
        assert re.search(rf"^{target}\s+\S", told, re.MULTILINE)
