"""Limits on the memory of programs that run for long, and beside others."""

from __future__ import annotations

import gc
import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa

from anabranch.kernel.log.cache import SHARED


def limit_metadata_cache(capacity: int) -> None:
    """Keep at most so many bytes of manifests and other metadata in this process."""
    SHARED.limit_to(capacity)


def give_back() -> None:
    """Return memory that Arrow, and the C library, hold for later use to the operating system."""
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()


def keep_pandas_out() -> None:
    """Let Arrow take pandas for absent in this process, unless it is loaded already.

    With the first list that it converts, Arrow imports pandas to ask whether the list is one of its frames: a third of a second,
    and 50 MB. Whoever imports pandas by itself still gets it.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out", name=fullname)


def settle_imports() -> None:
    """Leave what was loaded so far out of the search for garbage: it stays for as long as the process does."""
    gc.collect()
    gc.freeze()
