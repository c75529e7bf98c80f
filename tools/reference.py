"""Writes the pages of docs/ that are made from the code: run by `make docs`, and checked by a test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import command_reference
import conflict_reference
import error_reference
import metric_reference
import option_reference
import procedure_reference
import system_table_reference

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (
    option_reference,
    error_reference,
    conflict_reference,
    metric_reference,
    system_table_reference,
    command_reference,
    procedure_reference,
)


def pages() -> dict[Path, str]:
    """The text of each page, by its file."""
    return {DOCS / made.PATH: made.page() for made in PAGES}


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
