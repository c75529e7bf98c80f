"""Reading on past what is damaged: who shows all there is is told what could not be read.

Whoever acts on what is read gets the error: what is left out might be just what stands against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anabranch.errors import AnabranchError

T = TypeVar("T")
N = TypeVar("N")

Unread = Callable[[str, AnabranchError], None]
"""Called with what cannot be read, as people name it, and why. It may be called from several threads."""


def tried(what: N, read: Callable[[], T], unread: Callable[[N, AnabranchError], object] | None) -> T | None:
    """Return what `read` returns, or None once `unread` was called with its error; without `unread` that is raised.

    So is what may succeed later: a store that does not answer has damaged nothing.
    """
    try:
        return read()
    except AnabranchError as error:
        if unread is None or error.retryable:
            raise
        unread(what, error)
        return None
