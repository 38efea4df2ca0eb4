"""docs/replay.md names every rule of a replay's comparison, in the words of the rule."""

from __future__ import annotations

from pathlib import Path

from kernel_runtime.replay.compare import RULES

PAGE = Path(__file__).parent.parent.parent / "docs" / "replay.md"


def test_every_rule_is_described_as_it_describes_itself() -> None:
    page = PAGE.read_text()
    rows = dict(
        line.split(" | ", 1) for line in page.splitlines() if line.startswith("| `") and " | " in line
    )
    for rule in RULES:
        row = rows[f"| `{rule.name}`{'' if rule.default else ' (off)'}"]
        begins = rule.description.replace("<metadata>", "`<metadata>`")
        assert row.startswith(begins), rule.name
