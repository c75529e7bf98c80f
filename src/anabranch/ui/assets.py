"""The page's own files, and what a browser may load beside them."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files


def read_asset(name: str) -> bytes:
    """Return a file of the page."""
    return (files("anabranch.ui") / "static" / name).read_bytes()


def policy(scripts: str, styles: str) -> str:
    """Return a content security policy: nothing from elsewhere, and no script or style but those named."""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    )


def hashed(text: str) -> str:
    """Return a script or style inside of a page as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
