"""What SECURITY.md says is held by tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_names_is_there():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[^`]+)`", page))
    assert len(named) >= 8
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    for part in re.split(r"\n(?=- )", page):
        if part.startswith("- ") and " never " in part:
            assert "Held by" in part or "held by" in part, part
