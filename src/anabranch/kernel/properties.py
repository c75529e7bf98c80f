"""Keys of the properties that our snapshots carry."""

from __future__ import annotations

BRANCH_PROPERTY = "anabranch.branch"
"""Identity of the branch a snapshot was made on."""
WRITER_PROPERTY = "anabranch.writer"
"""That we wrote it, and with which version."""
PARENT_PROPERTY = "anabranch.parent"
"""Stamp of the snapshot it was built on."""
OVERWRITE_PROPERTY = "anabranch.overwrite"
"""Which partitions an overwrite replaced."""
ROLLBACK_PROPERTY = "anabranch.rollback"
"""Which snapshot a rollback brought back."""
WATERMARK_PROPERTY = "anabranch.watermark"
"""How far event time has come in the sources of the rows."""
REWRITE_PROPERTY = "anabranch.rewrite"
"""How a compaction rewrote files; it changed no rows."""
