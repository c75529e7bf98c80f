"""The catalog: names, databases and listings in a warehouse folder."""

from typing import TYPE_CHECKING

from anabranch.lazy import lazy_names

if TYPE_CHECKING:
    from anabranch.catalog.filesystem import FilesystemCatalog
    from anabranch.catalog.folders import Identifier, NameListing

__all__ = ["FilesystemCatalog", "Identifier", "NameListing"]

if not TYPE_CHECKING:  # to which it would mean that there is every name
    __getattr__ = lazy_names(
        __name__,
        {
            "FilesystemCatalog": "anabranch.catalog.filesystem",
            "Identifier": "anabranch.catalog.folders",
            "NameListing": "anabranch.catalog.folders",
        },
    )
