"""Converts commits to rows of the index's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from anabranch.lineage.commit import Commit, CommitRef
from anabranch.lineage.index.tables import (
    COMMITS,
    ENTRIES,
    INPUT_KEYS,
    INPUTS,
    OF_COMMITS,
    OTHER_READS,
    PROBLEMS,
    READS,
    WORDS,
)
from anabranch.lineage.store import input_key, other_reads_of, reads_of, source_id

Rows = dict[sa.Table, list[dict[str, Any]]]


def insert_commits(connection: sa.Connection, words: Words, commits: Sequence[Commit]) -> None:
    """Insert commits of one branch that are not in the index yet."""
    words.learn(text for commit in commits for text in _texts(commit))
    rows: Rows = {table: [] for table in (*OF_COMMITS, INPUT_KEYS)}
    for commit in commits:
        _add(rows, words, commit)
    for table in OF_COMMITS:
        if rows[table]:
            connection.execute(table.insert(), rows[table])
    keys = {tuple(row.values()): row for row in rows[INPUT_KEYS]}
    insert_new(connection, INPUT_KEYS, list(keys.values()))


def _add(rows: Rows, words: Words, commit: Commit) -> None:
    branch, snapshot, entry = words[commit.branch_uuid], commit.snapshot, commit.entry
    rows[COMMITS].append(_row(words, commit))
    if entry is None:
        return
    rows[ENTRIES].append({"branch": branch, "snapshot": snapshot, "entry": entry.to_json()})
    rows[PROBLEMS] += (
        {"branch": branch, "snapshot": snapshot, "number": number, "problem": problem}
        for number, problem in enumerate(entry.problems)
    )
    place = {"sink": branch, "snapshot": snapshot, "has_rows": commit.has_rows}
    rows[READS] += (
        {
            **place,
            "number": number,
            "time_millis": read.time_millis,
            "job": words[read.job],
            "kind": read.kind,
            "source": words[read.source],
            "after": read.after,
            "through": read.through,
            "whole": read.whole,
            "width": max(read.through - read.after, 0).bit_length(),
        }
        for number, read in enumerate(reads_of(commit))
    )
    rows[OTHER_READS] += (
        {
            **place,
            "number": number,
            "time_millis": other.time_millis,
            "job": words[other.job],
            "kind": other.kind,
            "name": words[other.name],
            "source": words[source_id(other.kind, other.name)],
        }
        for number, other in enumerate(other_reads_of(commit))
    )
    for job, query, source in _inputs(commit):
        key = {
            "sink": branch,
            "job": words[job],
            "query": 0 if query is None else words[query],
            "source": words[source],
        }
        rows[INPUT_KEYS].append(key)
        rows[INPUTS].append({**key, "snapshot": snapshot})


def _row(words: Words, commit: Commit) -> dict[str, Any]:
    base, entry = commit.base, commit.entry
    is_told = entry is not None and commit.may_bring_rows and not entry.is_anonymous
    tells = entry if is_told else None
    return {
        "branch": words[commit.branch_uuid],
        "snapshot": commit.snapshot,
        "stamp": commit.stamp,
        "kind": commit.kind,
        "time_millis": commit.time_millis,
        "schema_id": commit.schema_id,
        "added": commit.added,
        "base_branch": None if base is None else words[base.branch_uuid],
        "base_snapshot": None if base is None else base.snapshot,
        "restores": commit.restores,
        "unread": commit.unread,
        "job": None if tells is None else words[tells.job],
        "engine": None if tells is None else words[tells.engine.name],
        "is_break": base != CommitRef(commit.branch_uuid, commit.snapshot - 1) or commit.restores,
        "has_rows": commit.has_rows,
        "is_unsaid": commit.has_rows and entry is None,
    }


def _inputs(commit: Commit) -> Iterator[tuple[str, str | None, str]]:
    """Yield job, query and source for each position that the commit records; see `CommitStore.newest_inputs`."""
    entry = commit.entry
    if entry is None or entry.taken is not None or entry.is_of_no_job or not commit.may_bring_rows:
        return
    for key in sorted({input_key(read) for read in entry.consumed} or {""}):
        yield entry.job, entry.engine.query, key


def _texts(commit: Commit) -> Iterable[str]:
    """Yield all texts whose numbers `_add` needs."""
    yield commit.branch_uuid
    if commit.base is not None:
        yield commit.base.branch_uuid
    if commit.entry is not None:
        yield commit.entry.job
        yield commit.entry.engine.name
    for read in reads_of(commit):
        yield from (read.job, read.source)
    for other in other_reads_of(commit):
        yield from (other.job, other.name, source_id(other.kind, other.name))
    for job, query, source in _inputs(commit):
        yield from (job, source, *(() if query is None else (query,)))


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
