"""What a replayed program finds of its user's settings and caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_runtime.replay.settings import own_places


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("IPYTHONDIR", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_settings_are_there_and_a_change_stays_in_the_copy(home: Path, tmp_path: Path) -> None:
    """The places used to begin empty.

    matplotlib then drew by its defaults where the record was drawn by a matplotlibrc, and built its list of
    fonts in every replay; IPython ran without the profile that the record was made with.
    """
    write(home / ".config/matplotlib/matplotlibrc", "figure.dpi: 50")
    write(home / ".config/matplotlib/stylelib/ours.mplstyle")
    write(home / ".cache/matplotlib/fontlist-v1.json", "{}")
    write(home / ".ipython/profile_default/ipython_config.py", "c = 1")
    write(home / ".ipython/profile_default/startup/first.py")
    write(home / ".ipython/profile_default/history.sqlite")
    own = {name: Path(place) for name, place in own_places(tmp_path / "own").items()}
    copied = sorted(str(path.relative_to(tmp_path / "own")) for path in (tmp_path / "own").rglob("*.*"))
    assert copied == [
        "ipython/profile_default/ipython_config.py",
        "ipython/profile_default/startup/first.py",
        "matplotlib/fontlist-v1.json",
        "matplotlib/stylelib/ours.mplstyle",
    ]
    rc = own["MPLCONFIGDIR"] / "matplotlibrc"
    assert rc.read_text() == "figure.dpi: 50"
    rc.write_text("changed")
    assert (home / ".config/matplotlib/matplotlibrc").read_text() == "figure.dpi: 50"


def test_what_was_downloaded_before_is_found_in_the_cache(home: Path, tmp_path: Path) -> None:
    write(home / ".cache/library/data.csv", "1,2")
    own = own_places(tmp_path / "own")
    assert (Path(own["XDG_CACHE_HOME"]) / "library/data.csv").read_text() == "1,2"
    write(Path(own["XDG_CACHE_HOME"]) / "new/file")
    assert not (home / ".cache/new").exists()


def test_variables_lead_to_the_settings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "mpl"))
    write(tmp_path / "mpl/matplotlibrc", "a")
    write(tmp_path / "mpl/fontlist-v1.json", "b")
    place = Path(own_places(tmp_path / "own")["MPLCONFIGDIR"])
    assert (place / "matplotlibrc").read_text() + (place / "fontlist-v1.json").read_text() == "ab"


def test_a_home_without_any_of_it(home: Path, tmp_path: Path) -> None:
    assert all(not list(Path(place).iterdir()) for place in own_places(tmp_path / "own").values())
