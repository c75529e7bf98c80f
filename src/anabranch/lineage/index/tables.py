"""The tables of the index. Repeated texts (identities, names of jobs) are stored as numbers, by `words`.

An index is a cache: one of an older version is dropped and rebuilt, one of a newer version is left
alone and refused.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    false,
    true,
)

VERSION: Final = 2
"""Schema version: changes whenever the tables do, or what is put into them."""

METADATA: Final = MetaData()
PREFIX: Final = "anabranch_lineage_"
_ID: Final = BigInteger().with_variant(Integer, "sqlite")
"""SQLite autonumbers rows only if the column is INTEGER."""


def _table(name: str, *parts: Column[Any]) -> Table:
    return Table(f"{PREFIX}{name}", METADATA, *parts, sqlite_with_rowid=name in ("words", "entries"))


def _key(name: str) -> Column[int]:
    """Return a column of the key: a number of `words`, or a snapshot id."""
    return Column(name, BigInteger, primary_key=True, autoincrement=False)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


META: Final = _table("meta", Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

WORDS: Final = _table(
    "words",
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("text", Text, nullable=False, unique=True),
)

LINES: Final = _table(
    "lines",
    _key("branch"),
    Column("branch_uuid", Text, nullable=False, unique=True),
    Column("table_uuid", Text, nullable=False, index=True),
    Column("table_name", Text, nullable=False),
    Column("branch_name", Text),
    Column("fork_branch", Text),
    Column("fork_snapshot", BigInteger),
    Column("is_main", Boolean, nullable=False),
    Column("warehouse", Text, nullable=False),
    Column("is_dropped", Boolean, nullable=False),
    Column("newest", BigInteger, nullable=False),
    Column("newest_stamp", Text, nullable=False),
)
"""`newest` is 0 for a branch without own commits. `is_dropped` if the table was last missing from its warehouse."""

COMMITS: Final = _table(
    "commits",
    _key("branch"),
    _key("snapshot"),
    Column("stamp", Text, nullable=False),
    Column("kind", Text, nullable=False),
    _number("time_millis"),
    _number("schema_id"),
    _number("added"),
    Column("base_branch", BigInteger),
    Column("base_snapshot", BigInteger),
    Column("restores", Boolean, nullable=False),
    Column("unread", Text),
    Column("job", BigInteger),
    Column("engine", BigInteger),
    Column("is_break", Boolean, nullable=False),
    Column("has_rows", Boolean, nullable=False),
    Column("is_unsaid", Boolean, nullable=False),
)
"""`job` and `engine` of the entry, if commits of this kind bring rows."""
_OF_BREAKS: Final = (COMMITS.c.base_branch, COMMITS.c.base_snapshot, COMMITS.c.restores)
for _name, _flag, _value, _more in (
    ("breaks", COMMITS.c.is_break, true(), _OF_BREAKS),
    ("rowless", COMMITS.c.has_rows, false(), ()),
    ("unsaid", COMMITS.c.is_unsaid, true(), ()),
):
    # SQLite prefers it to the key because the flag is among its columns, and it covers the query.
    Index(
        f"{PREFIX}{_name}",
        COMMITS.c.branch,
        _flag,
        COMMITS.c.snapshot,
        *_more,
        sqlite_where=_flag == _value,
        postgresql_where=_flag == _value,
    )

ENTRIES: Final = _table("entries", _key("branch"), _key("snapshot"), Column("entry", Text, nullable=False))
"""The entry as in the snapshot's property."""

PROBLEMS: Final = _table(
    "problems", _key("branch"), _key("snapshot"), _key("number"), Column("problem", Text, nullable=False)
)

GAPS: Final = _table("gaps", _key("branch"), _key("first"), _number("last"))
"""Ids between commits of a branch about which nothing is known."""

READS: Final = _table(
    "reads",
    _key("sink"),
    _key("snapshot"),
    _key("number"),
    _number("time_millis"),
    _number("job"),
    Column("kind", Text, nullable=False),
    _number("source"),
    _number("after"),
    _number("through"),
    _number("whole"),
    Column("width", SmallInteger, nullable=False),
    Column("has_rows", Boolean, nullable=False),
)
"""`has_rows` is that of the commit. `width` is the number of binary digits of `through` - `after`: reads that are about as wide are found by where they end."""
Index(f"{PREFIX}readers", READS.c.source, READS.c.width, READS.c.through)

OTHER_READS: Final = _table(
    "other_reads",
    _key("sink"),
    _key("snapshot"),
    _key("number"),
    _number("time_millis"),
    _number("job"),
    Column("kind", Text, nullable=False),
    _number("name"),
    _number("source"),
    Column("has_rows", Boolean, nullable=False),
)
"""`source` is the identity of the source, in `words`."""

INPUTS: Final = _table(
    "inputs",
    _key("sink"),
    _key("job"),
    _key("query"),
    _key("source"),
    _key("snapshot"),
)
"""The commits that named each source: `input_key` in `words`. `query` is 0 for a commit without one."""

INPUT_KEYS: Final = _table("input_keys", _key("sink"), _key("job"), _key("query"), _key("source"))
"""The distinct combinations of these."""

FLOWS: Final = _table(
    "flows",
    _key("sink"),
    _key("source"),
    _key("job"),
    Column("is_merge", Boolean, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", BigInteger),
    _number("commits"),
    _number("first_millis"),
    _number("last_millis"),
)
"""Totals over the commits. `name` for sources other than tables."""

JOBS: Final = _table(
    "jobs",
    _key("sink"),
    _key("job"),
    _number("commits"),
    _number("first_millis"),
    _number("last_millis"),
    _number("last_snapshot"),
    _number("engine"),
)
"""Totals over the commits; `engine` is that of the newest."""

OF_COMMITS: Final = (COMMITS, ENTRIES, PROBLEMS, READS, OTHER_READS, INPUTS)
"""The tables with rows per commit."""


def owner(table: Table) -> Column[int]:
    """Return the column that identifies the branch of a row."""
    return table.c.branch if "branch" in table.c else table.c.sink
