"""From an error of PySpark back to the error of ours that it is about."""

from __future__ import annotations

import threading
from collections import OrderedDict

from anabranch.errors import AnabranchError

_MOST = 64
_LOCK = threading.Lock()
_ERRORS: OrderedDict[str, AnabranchError] = OrderedDict()


def remember_raised(error: AnabranchError) -> None:
    """An error is on its way through the JVM, which keeps only its text."""
    with _LOCK:
        _ERRORS[str(error)] = error
        _ERRORS.move_to_end(str(error))
        while len(_ERRORS) > _MOST:
            _ERRORS.popitem(last=False)


def raised_as(error: Exception) -> AnabranchError | None:
    """The error of ours whose text is in that of PySpark's error; None if it is Spark's own."""
    text = str(error)
    with _LOCK:
        return next((known for shown, known in reversed(_ERRORS.items()) if shown in text), None)
