"""Clear errors in a forked process, in place of waiting for ever for threads of its parent.

Polars and obstore keep threads of their own from their first use on. A fork copies what they know of these threads, but
not the threads. So a process that was forked after that may not use them; one that was forked before may.
"""

from __future__ import annotations

import os
from typing import Final

from anabranch.errors import UnsupportedFeatureError


class Unforked:
    """Use of a library whose threads do not outlive a fork; call it before each use.

    Raises `UnsupportedFeatureError` in a process forked from one that has used it.
    """

    def __init__(self, library: str) -> None:
        self._library = library
        self._process: int | None = None
        """The first process of those forked from each other that used it."""

    def __call__(self) -> None:
        process = os.getpid()
        if self._process is None:
            self._process = process
        elif self._process != process:
            raise UnsupportedFeatureError(
                f"process {process} was forked from {self._process}, which had used Anabranch: the threads of {self._library} "
                "do not outlive a fork, and would be waited for for ever",
                feature="fork",
                hint="start processes with multiprocessing.get_context('spawn') or 'forkserver', for PyTorch with "
                "DataLoader(multiprocessing_context='spawn'); or fork before the first read.",
            )


may_use_polars: Final = Unforked("Polars")
"""Called where manifests are decoded or asked: whatever reads or changes a table comes by there."""
