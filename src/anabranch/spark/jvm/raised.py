"""Recovery of our errors from the PySpark errors that carry their text."""

from __future__ import annotations

import threading
from collections import OrderedDict

from anabranch.errors import AnabranchError

_MOST = 64
_LOCK = threading.Lock()
_ERRORS: OrderedDict[str, AnabranchError] = OrderedDict()


def remember_raised(error: AnabranchError) -> None:
    """Remember an error on its way through the JVM, which keeps only its text."""
    with _LOCK:
        _ERRORS[str(error)] = error
        _ERRORS.move_to_end(str(error))
        while len(_ERRORS) > _MOST:
            _ERRORS.popitem(last=False)


def raised_as(error: Exception) -> AnabranchError | None:
    """Return our error whose text is in PySpark's error; None if it is Spark's own."""
    text = str(error)
    with _LOCK:
        return next((known for shown, known in reversed(_ERRORS.items()) if shown in text), None)
