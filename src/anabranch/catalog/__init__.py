"""The catalog: names, databases and listings in a warehouse folder."""

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.identifier import Identifier

__all__ = ["FilesystemCatalog", "Identifier"]
