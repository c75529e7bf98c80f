"""The index of lineage: what the commits of a warehouse say, in a database that answers fast.

It is a cache. The commits themselves, and the archive of those that have expired, are the truth: the index is brought up
to date when it is asked, and built anew where it is missing, damaged or of an older release. Importing this loads
SQLAlchemy.
"""

from anabranch.lineage.index.catch_up import CaughtUp
from anabranch.lineage.index.index import LineageIndex
from anabranch.lineage.index.store import IndexStore

__all__ = ["CaughtUp", "IndexStore", "LineageIndex"]
