"""Mimebundles become valid JSON, and changes are told."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from kernel_runtime.kernel.jsonpack import pack
from kernel_runtime.kernel.mime import NOTE_KEY, clean_bundle


def test_what_is_json_passes_without_a_note():
    data = {"text/plain": "é", "application/json": {"a": [1, 2.5, None, True, "x"]}}
    assert clean_bundle(data, {"k": 1}) == (data, {"k": 1})


@pytest.mark.parametrize(
    "value, plain",
    [
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (Decimal("1.10"), "1.10"),
        ({1 }, [1]),
        (b"\x00\xff", "AP8="),
        ("a\ud800", "a\\ud800"),
        ({1: 2}, {"1": 2}),
    ],
)  # fmt: skip
def test_what_is_not_is_changed_and_told(value, plain):
    data, metadata = clean_bundle({"application/json": [value]}, None)
    assert data["application/json"] == [plain]
    assert metadata[NOTE_KEY]
    json.loads(json.dumps(data, allow_nan=False))


def test_a_cycle_ends():
    cycle: list[object] = []
    cycle.append(cycle)
    data, _ = clean_bundle({"application/json": cycle}, None)
    json.loads(pack(data))


def test_many_changes_are_summed_up():
    _, metadata = clean_bundle({"application/json": [float("nan")] * 100}, None)
    assert metadata[NOTE_KEY][20:] == ["and 80 more"]


def test_the_encoder_takes_anything():
    class Broken:
        def __repr__(self) -> str:
            raise ValueError

    assert json.loads(pack({"x": Broken(), "s": "\ud800", 3: {4}}))["s"] == "\\ud800"
