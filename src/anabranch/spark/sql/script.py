"""Several statements in one text."""

from __future__ import annotations

from anabranch.spark.sql.scanner import words_of


def statements_of(script: str) -> list[str]:
    """The statements between semicolons, as they were typed; what is empty or only a comment is left out.

    Raises `SqlError` for a quote or comment that is never closed.
    """
    found, begin = [], None
    for word in words_of(script):
        if word.is_(";"):
            if begin is not None:
                found.append(script[begin : word.start].rstrip())
            begin = None
        elif begin is None:
            begin = word.start
    if begin is not None:
        found.append(script[begin:].strip())
    return found
