"""Commands of ours as text that can be pasted into a shell."""

from __future__ import annotations

import shlex


def command_line(*words: str) -> str:
    """Return a command line that a shell takes for exactly these words after ``anabranch``.

    Names of tables and tags may hold blanks, quotes and dollar signs: what others named is never run as a command.
    """
    return shlex.join(("anabranch", *words))
