"""The lineage index: what the commits of a warehouse record, in a database for fast queries.

It is a cache. The commits themselves, and the archive of expired ones, are the truth: the index is brought up
to date when queried, and rebuilt if it is missing, damaged or of an older release. Importing this loads
SQLAlchemy.
"""

from anabranch.lineage.index.catch_up import CaughtUp
from anabranch.lineage.index.index import LineageIndex
from anabranch.lineage.index.store import IndexStore

__all__ = ["CaughtUp", "IndexStore", "LineageIndex"]
