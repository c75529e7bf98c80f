"""Division of a text into statements."""

from __future__ import annotations

from anabranch.spark.sql.scanner import words_of


def statements_of(script: str) -> list[str]:
    """Return the statements between semicolons, as typed; empty ones and lone comments are left out.

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
