"""Ten thousand forgeries of a bundle, and none that passes.

Each is one change: of a byte of the file, with nothing repaired; or of an entry, by somebody who makes the
manifest and the container anew so that only the chain can tell. What the chain cannot tell alone (a tail
cut off, a last entry or a whole chain computed anew) is told by an anchor, which those attempts are given.

The same seed gives the same forgery, and every forgery differs from the bundle by how it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kernel_runtime.evidence import standalone
from tests.unit.evidence.support import (
    anchor_of,
    container,
    members_of,
    redacted,
    rehash,
    repaired,
    rows_of,
    with_manifest,
    write,
)

Forged = tuple[bytes, str | None]
"""the file, and the anchors that are given with it"""


class Base:
    """A bundle, and what a forger has of it."""

    def __init__(self, directory: Path) -> None:
        self.path = write(directory)
        self.data = redacted(self.path)
        self.path.write_bytes(self.data)
        self.members = members_of(self.path)
        self.rows = rows_of(self.members)
        self.anchor = anchor_of(self.rows[-1][0], self.rows[-1][9])

    def copy(self) -> list[list[Any]]:
        return [list(row) for row in self.rows]


def other_text(random: Random, text: str) -> str:
    """The text with another character in one place, or one more."""
    at = random.randrange(len(text) + 1)
    there = text[at : at + 1]
    letter = random.choice([c for c in '0aZ"\\ \n\té\u2028😀' if c != there])
    return text[:at] + letter + text[at + random.randint(0, 1) :]


def a_byte(random: Random, base: Base) -> Forged:
    data = bytearray(base.data)
    data[random.randrange(len(data))] ^= random.randrange(1, 256)
    return bytes(data), None


def bytes_at_an_end(random: Random, base: Base) -> Forged:
    more = random.randbytes(random.randint(1, 80))
    cut = random.randint(1, 300)
    return random.choice([base.data + more, more + base.data, base.data[:-cut], base.data[cut:]]), None


def a_column(random: Random, base: Base) -> Forged:
    rows = base.copy()
    row, column = random.choice(rows), random.randrange(10)
    value = row[column]
    if isinstance(value, int):
        row[column] = value + random.choice([-1, 1]) * random.randint(1, 1 << random.randint(0, 62))
    elif value is None:
        row[column] = random.choice(["", "a"])
    else:
        row[column] = None if column == 6 and random.random() < 0.5 else other_text(random, value)
    return repaired(base.members, rows), None


def two_swapped(random: Random, base: Base) -> Forged:
    rows = base.copy()
    one, other = random.sample(range(len(rows)), 2)
    rows[one], rows[other] = rows[other], rows[one]
    return repaired(base.members, rows), None


def one_moved(random: Random, base: Base) -> Forged:
    """And numbered anew, each with a hash that fits its own columns."""
    rows = base.copy()
    one, other = random.sample(range(len(rows)), 2)
    rows.insert(other, rows.pop(one))
    return repaired(base.members, [rehash([seq, *row[1:]]) for seq, row in enumerate(rows, 1)]), None


def one_dropped(random: Random, base: Base) -> Forged:
    rows = base.copy()
    del rows[random.randrange(len(rows) - 1)]
    return repaired(base.members, rows), None


def one_doubled(random: Random, base: Base) -> Forged:
    rows = base.copy()
    at = random.randrange(len(rows))
    rows.insert(random.choice([at, len(rows)]), rows[at])
    return repaired(base.members, rows), None


def one_inserted(random: Random, base: Base) -> Forged:
    """It follows the one before it rightly; the one behind it follows another."""
    rows = base.copy()
    at = random.randrange(1, len(rows))
    new = list(random.choice(rows))
    new[0], new[8], new[10] = rows[at][0], rows[at - 1][9], other_text(random, new[10])
    new[7] = standalone.sha256(new[10].encode())
    rows.insert(at, rehash(new))
    return repaired(base.members, rows), None


def a_payload(random: Random, base: Base) -> Forged:
    rows = base.copy()
    row = random.choice(rows)
    row[10] = other_text(random, row[10])
    return repaired(base.members, rows), None


def a_payload_and_its_digest(random: Random, base: Base) -> Forged:
    rows = base.copy()
    row = random.choice(rows)
    row[10] = other_text(random, row[10])
    row[7] = standalone.sha256(row[10].encode())
    return repaired(base.members, rows), None


def a_payload_its_digest_and_hash(random: Random, base: Base) -> Forged:
    rows = base.copy()
    at = random.randrange(len(rows))
    changed = [*rows[at][:10], other_text(random, rows[at][10])]
    changed[7] = standalone.sha256(changed[10].encode())
    rows[at] = rehash(changed)
    return repaired(base.members, rows), base.anchor if at == len(rows) - 1 else None


def the_tail(random: Random, base: Base) -> Forged:
    rows = base.copy()[: -random.randint(1, 8)]
    return repaired(base.members, rows), base.anchor


def the_whole_chain(random: Random, base: Base) -> Forged:
    """From one entry on, everything computed anew."""
    rows = base.copy()
    at = random.randrange(len(rows))
    rows[at][10] = other_text(random, rows[at][10])
    rows[at][7] = standalone.sha256(rows[at][10].encode())
    for number in range(at, len(rows)):
        rows[number][8] = rows[number - 1][9] if number else standalone.GENESIS
        rows[number] = rehash(rows[number])
    return repaired(base.members, rows), base.anchor


def another_member(random: Random, base: Base) -> Forged:
    """The manifest is as it was."""
    name = random.choice([name for name in base.members if name != standalone.MANIFEST])
    text = other_text(random, base.members[name].decode())
    return container({**base.members, name: text.encode()}), None


def the_environment(random: Random, base: Base) -> Forged:
    """The manifest fits it."""
    text = other_text(random, base.members[standalone.ENVIRONMENT].decode())
    return container(with_manifest({**base.members, standalone.ENVIRONMENT: text.encode()})), None


def the_manifest(random: Random, base: Base) -> Forged:
    """Anywhere but in the name of the version that wrote it, which nothing else tells."""
    data = bytearray(base.members[standalone.MANIFEST])
    start = data.index(b'"kernel_runtime": "') + len(b'"kernel_runtime": "')
    end = data.index(b'"', start)
    at = random.choice([at for at in range(len(data)) if not start <= at < end])
    data[at] ^= random.randrange(1, 128)
    return container({**base.members, standalone.MANIFEST: bytes(data)}), None


FORGERIES: tuple[Callable[[Random, Base], Forged], ...] = (
    a_byte,
    bytes_at_an_end,
    a_column,
    two_swapped,
    one_moved,
    one_dropped,
    one_doubled,
    one_inserted,
    a_payload,
    a_payload_and_its_digest,
    a_payload_its_digest_and_hash,
    the_tail,
    the_whole_chain,
    another_member,
    the_environment,
    the_manifest,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("bundle"))


def undetected(base: Base, directory: Path, attempts: range) -> list[str]:
    """What passed."""
    target = directory / "forged.zip"
    passed = []
    for seed in attempts:
        random = Random(seed)
        # every second one is a byte of the file: what happens to disks
        forge = a_byte if seed % 2 else FORGERIES[seed // 2 % len(FORGERIES)]
        data, anchor = forge(random, base)
        target.write_bytes(data)
        found = standalone.verify(str(target), anchor)
        if found["ok"] or not found["problems"]:
            passed.append(f"{forge.__name__}, seed {seed}")
    return passed


def test_the_bundle_itself_is_well(base: Base, tmp_path: Path):
    """Else every forgery would be found for another reason than its own."""
    for data in (base.data, repaired(base.members, base.rows), container(with_manifest(base.members))):
        assert data == base.data
        (tmp_path / "same.zip").write_bytes(data)
        found = standalone.verify(str(tmp_path / "same.zip"), base.anchor)
        assert (found["ok"], found["problems"]) == (True, [])


def test_three_hundred_forgeries_are_found(base: Base, tmp_path: Path):
    assert undetected(base, tmp_path, range(300)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_forgeries_are_found(base: Base, tmp_path: Path):
    assert undetected(base, tmp_path, range(1000, 11_000)) == []


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_what_is_found_is_what_was_changed(
    base: Base, tmp_path: Path, forge: Callable[[Random, Base], Forged]
):
    """A forgery of the chain is found in the chain, not by the container that the forger repaired."""
    data, anchor = forge(Random(7), base)
    (tmp_path / "forged.zip").write_bytes(data)
    problems = standalone.verify(str(tmp_path / "forged.zip"), anchor)["problems"]
    where = {problem["where"] for problem in problems}
    if forge in (a_byte, bytes_at_an_end):
        assert "container" in where
    else:
        assert "container" not in where
    if forge in (the_tail, the_whole_chain):
        assert where == {"anchor"}
