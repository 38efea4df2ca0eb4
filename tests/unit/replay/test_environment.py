"""What differs between the recorded environment and the replay's."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_runtime.errors import UsageError
from kernel_runtime.replay.environment import difference, rebuilt


def _environment(**packages: tuple[str, str]) -> dict[str, Any]:
    return {
        "fingerprint": str(sorted(packages.items())),
        "python": {"version": "3.11.2"},
        "platform": {"machine": "x86_64"},
        "packages": {name: {"version": one[0], "digest": one[1]} for name, one in packages.items()},
    }


def test_versions_contents_and_what_came_and_went() -> None:
    was = _environment(a=("1", "x"), b=("1", "x"), c=("1", "x"), d=("1", "x"))
    now = _environment(a=("1", "x"), b=("2", "y"), c=("1", "z"), e=("1", "x"))
    now["python"] = {"version": "3.12.0"}
    found = difference(was, now)
    assert (found["known"], found["same"]) == (True, False)
    assert found["python"] == [{"what": "version", "recorded": "3.11.2", "replayed": "3.12.0"}]
    assert found["platform"] == []
    assert [(row["name"], row["why"]) for row in found["packages"]] == [
        ("b", "version"),
        ("c", "content"),
        ("d", "missing"),
        ("e", "new"),
    ]


def test_the_same_is_the_same_and_nothing_is_said_of_what_is_not_known() -> None:
    one = _environment(a=("1", "x"))
    same = difference(one, one)
    assert (same["same"], same["packages"], same["git"]) == (True, [], [])
    assert difference(None, one) == {"known": False, "why": "the record does not tell its environment"}
    assert difference(one, None) == {"known": False, "why": "the replay does not tell its environment"}
    with pytest.raises(UsageError, match="no environment"):
        rebuilt(None)
