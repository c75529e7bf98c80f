"""Standard input, which a process may not have."""

from __future__ import annotations

import sys
from typing import TextIO

from anabranch.errors import InvalidInputError


def standard_input() -> TextIO:
    """Return standard input, for ``-``. Raises `InvalidInputError` where the process was started with it closed."""
    if sys.stdin is None:  # so Python says it, as of programs that cron or a supervisor starts with `<&-`
        raise InvalidInputError(
            "'-' reads standard input, but standard input is closed",
            hint="name a file in place of '-', or give the command its input: `< FILE` or a pipe.",
        )
    return sys.stdin
