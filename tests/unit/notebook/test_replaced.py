"""What is kept of notebooks that were replaced: whole, private, bounded, the newest in any case."""

import os
import stat

import pytest

from kernel_runtime.errors import ReadOnlyStorage
from kernel_runtime.notebook import put, replaced
from kernel_runtime.notebook.replaced import Replaced


@pytest.fixture
def kept(tmp_path):
    return Replaced(tmp_path / "replaced")


def contents(kept: Replaced) -> list[bytes]:
    return [path.read_bytes() for path in sorted(kept.directory.iterdir())]


def test_it_is_private_and_named_by_its_time(kept):
    path = kept.keep(b"one")
    assert path.read_bytes() == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.directory.stat().st_mode) == 0o700
    assert path.name[10] == "T"


def test_many_within_a_second_are_in_their_order_and_the_same_is_kept_once(kept):
    for number in range(20):
        kept.keep(b"%d" % number)
    assert kept.keep(b"19") == max(kept.directory.iterdir())
    assert contents(kept) == [b"%d" % number for number in range(20)]


def test_the_oldest_go_first(kept, monkeypatch):
    monkeypatch.setattr(replaced, "MOST", 3)
    for number in range(5):
        kept.keep(b"%d" % number)
    assert contents(kept) == [b"2", b"3", b"4"]


def test_the_newest_stays_however_large(kept, monkeypatch):
    monkeypatch.setattr(replaced, "MOST_BYTES", 10)
    kept.keep(b"1" * 6)
    kept.keep(b"2" * 6)
    assert contents(kept) == [b"2" * 6]
    kept.keep(b"3" * 60)
    assert contents(kept) == [b"3" * 60]


def test_what_cannot_be_kept_is_an_error(kept, monkeypatch):
    def refuses(*_args):
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(put, "_write_synced", refuses)
    with pytest.raises(ReadOnlyStorage, match="replaced"):
        kept.keep(b"one")
