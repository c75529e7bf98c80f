"""Limits on the memory of programs that run for long, and beside others."""

from __future__ import annotations

import pyarrow as pa

from anabranch.kernel.log.cache import SHARED


def limit_metadata_cache(capacity: int) -> None:
    """Keep at most so many bytes of manifests and other metadata in this process."""
    SHARED.limit_to(capacity)


def give_back() -> None:
    """Return memory that Arrow, and the C library, hold for later use to the operating system."""
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()
