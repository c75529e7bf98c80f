"""System tables named with a dot: ``db.t.snapshots`` is ``db.t$snapshots``, as users of Iceberg write it."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.system_tables import SYSTEM_TABLES


def undotted(parts: Sequence[str]) -> tuple[str, str] | None:
    """Return database and ``t$snapshots`` for the parts of ``db.t.snapshots``; None for any other name."""
    if len(parts) != 3 or parts[2].lower() not in SYSTEM_TABLES:
        return None
    return parts[0], f"{parts[1]}${parts[2].lower()}"
