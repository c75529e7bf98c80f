"""Converts commits to rows of the index's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

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
)
from anabranch.lineage.index.words import Words, insert_new
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
