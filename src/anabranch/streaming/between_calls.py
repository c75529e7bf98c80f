"""Table functions for what was added between two moments, as Paimon names them, in statements of all kinds.

``paimon_incremental_query('db.t', 'good', 10)`` is ``db.t /*+ OPTIONS('incremental-between' = 'good,10') */``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from anabranch.errors import SqlError
from anabranch.options import INCREMENTAL_BETWEEN, INCREMENTAL_BETWEEN_TIMESTAMP

FUNCTIONS: Final = {
    "paimon_incremental_query": INCREMENTAL_BETWEEN.key,
    "paimon_incremental_between_timestamp": INCREMENTAL_BETWEEN_TIMESTAMP.key,
}
"""Option of each function."""
_PART: Final = re.compile("`(?:[^`]|``)+`|[^.`]+")
_SIGNS: Final = ("(", ",", ",", ")")


class _Word(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


def between_calls(words: Sequence[_Word]) -> Iterator[tuple[int, int, str]]:
    """Yield where calls of the functions begin and end, and the table with a hint that each stands for.

    Raises `SqlError` for a call that is not of a table and two moments, all of them literals.
    """
    for place, word in enumerate(words):
        option = FUNCTIONS.get(word.text.lower()) if word.kind == "word" else None
        if option is None or place + 1 >= len(words) or words[place + 1].text != "(":
            continue
        given = words[place + 2 : place + 8 : 2]
        signs = tuple(found.text for found in words[place + 1 : place + 8 : 2])
        values = [found.text[1:-1] if found.kind == "text" else found.text for found in given]
        is_call = signs == _SIGNS and given[0].kind == "text" and all(_is_plain(found) for found in given)
        parts = _PART.findall(values[0]) if is_call else []
        if not parts or ".".join(parts) != values[0]:
            raise SqlError(
                f"{word.text} is not written as it is understood here",
                hint=f"write {word.text.lower()}('db.t', 'good', '10'), with literals, or the option '{option}': "
                f"db.t /*+ OPTIONS('{option}' = 'good,10') */.",
            )
        name = ".".join(part if part.startswith("`") else f"`{part}`" for part in parts)
        yield (
            word.start,
            words[place + 7].end,
            f"{name} /*+ OPTIONS('{option}' = '{values[1]},{values[2]}') */",
        )


def _is_plain(word: _Word) -> bool:
    return word.kind == "number" or (word.kind == "text" and not re.search(r"['\"\\]", word.text[1:-1]))
