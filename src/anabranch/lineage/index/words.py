"""Texts as numbers: identities, names of jobs and sources occur in every row of the index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from anabranch.lineage.index.tables import WORDS

_AT_ONCE: Final = 500


class Words:
    """The numbers of texts, as seen by one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        """Return the number of a text that `learn` has seen."""
        return self._known[text]

    def learn(self, texts: Iterable[str]) -> None:
        """Assign numbers to texts that have none yet."""
        missing = sorted({text for text in texts if text not in self._known})
        self._look(missing)
        new = [{"text": text} for text in missing if text not in self._known]
        if new:
            insert_new(self._connection, WORDS, new)
            self._look([row["text"] for row in new])

    def _look(self, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), _AT_ONCE):
            wanted = sa.select(WORDS.c.text, WORDS.c.id).where(
                WORDS.c.text.in_(texts[start : start + _AT_ONCE])
            )
            self._known.update((text, number) for text, number in self._connection.execute(wanted))


def insert_new(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, skipping those whose key exists."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    if rows:
        connection.execute(insert(table).on_conflict_do_nothing(), list(rows))
