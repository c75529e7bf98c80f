"""The names in a warehouse, without what reading a table loads."""

from __future__ import annotations

from anabranch.catalog import Listing
from anabranch.storage.open import open_storage


def names_in(warehouse: str) -> Listing:
    """Return the names of databases and tables at a path or URL."""
    return Listing(open_storage(warehouse))
