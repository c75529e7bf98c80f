"""Scans: reads of a table as values, planned and read in the forms that users ask for."""

from typing import TYPE_CHECKING

from anabranch.lazy import lazy_names

if TYPE_CHECKING:
    from anabranch.scan.scan import Scan

__all__ = ["Scan"]

# Tasks of Spark read through modules of this package without what a `Scan` needs.
if not TYPE_CHECKING:  # to which it would mean that there is every name
    __getattr__ = lazy_names(__name__, {"Scan": "anabranch.scan.scan"})
