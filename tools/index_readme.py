"""Prints README.md as a package index needs it: links and pictures with whole addresses, because an index has no tree beside the page.

python tools/index_readme.py https://host/owner/anabranch/raw/v0.1.0 > README.index.md
"""

import re
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def readme(base: str) -> str:
    """The README with every address inside of the tree below a base."""
    text = re.sub(r"\]\((?!https?:|#)([^)]+)\)", rf"]({base.rstrip('/')}/\1)", README.read_text())
    return re.sub(r'(src|srcset|href)="(?!https?:|#)([^"]+)"', rf'\1="{base.rstrip("/")}/\2"', text)


if __name__ == "__main__":
    print(readme(sys.argv[1]), end="")
