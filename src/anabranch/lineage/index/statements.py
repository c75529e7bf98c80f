"""The index's SELECT statements, built once. They take ``branch``, a number of `words`, and often a range of ids."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from anabranch.lineage.index.tables import (
    COMMITS,
    ENTRIES,
    FLOWS,
    GAPS,
    INPUT_KEYS,
    INPUTS,
    JOBS,
    LINES,
    OTHER_READS,
    PROBLEMS,
    READS,
    WORDS,
)

_BRANCH: Final = sa.bindparam("branch", type_=sa.BigInteger)
_FIRST: Final = sa.bindparam("first", type_=sa.BigInteger)
_LAST: Final = sa.bindparam("last", type_=sa.BigInteger)
_JOB: Final = WORDS.alias("job_word")
_SINK: Final = WORDS.alias("sink_word")
_SOURCE: Final = WORDS.alias("source_word")
_OTHER: Final = WORDS.alias("other_word")


def _marked(mark: sa.ColumnElement[bool]) -> sa.Select[Any]:
    in_range = COMMITS.c.snapshot.between(_FIRST, _LAST)
    wanted = sa.select(COMMITS.c.snapshot).where(COMMITS.c.branch == _BRANCH, in_range, mark)
    return wanted.order_by(COMMITS.c.snapshot)


NUMBER: Final = sa.select(WORDS.c.id).where(WORDS.c.text == sa.bindparam("text"))

LINES_OF_ALL: Final = sa.select(LINES)
LINES_OF_TABLE: Final = LINES_OF_ALL.where(LINES.c.table_uuid == sa.bindparam("table"))
LINE: Final = LINES_OF_ALL.where(LINES.c.branch_uuid == sa.bindparam("branch"))

_COMMIT: Final = (
    sa.select(COMMITS, LINES.c.table_uuid, LINES.c.branch_uuid, _OTHER.c.text.label("base"), ENTRIES.c.entry)
    .join(LINES, LINES.c.branch == COMMITS.c.branch)
    .outerjoin(_OTHER, _OTHER.c.id == COMMITS.c.base_branch)
    .outerjoin(
        ENTRIES, sa.and_(ENTRIES.c.branch == COMMITS.c.branch, ENTRIES.c.snapshot == COMMITS.c.snapshot)
    )
    .where(COMMITS.c.branch == _BRANCH)
)
COMMIT: Final = _COMMIT.where(COMMITS.c.snapshot == _FIRST)
COMMITS_FROM: Final = (
    _COMMIT.where(COMMITS.c.snapshot >= _FIRST).order_by(COMMITS.c.snapshot).limit(sa.bindparam("at_most"))
)

BREAKS: Final = (
    sa.select(COMMITS.c.snapshot, _OTHER.c.text, COMMITS.c.base_snapshot, COMMITS.c.restores)
    .outerjoin(_OTHER, _OTHER.c.id == COMMITS.c.base_branch)
    .where(COMMITS.c.branch == _BRANCH, COMMITS.c.is_break == sa.true())
    .order_by(COMMITS.c.snapshot)
)
ROWLESS: Final = _marked(COMMITS.c.has_rows == sa.false())
UNSAID: Final = _marked(COMMITS.c.is_unsaid == sa.true())
GAPS_OF: Final = sa.select(GAPS.c.first, GAPS.c.last).where(GAPS.c.branch == _BRANCH).order_by(GAPS.c.first)
PROBLEMS_OF: Final = (
    sa.select(PROBLEMS.c.snapshot, PROBLEMS.c.problem)
    .where(PROBLEMS.c.branch == _BRANCH, PROBLEMS.c.snapshot.between(_FIRST, _LAST))
    .order_by(PROBLEMS.c.snapshot, PROBLEMS.c.number)
)

_READ: Final = (
    sa.select(
        *(_SINK.c.text, READS.c.snapshot, READS.c.time_millis, _JOB.c.text, READS.c.kind, _SOURCE.c.text),
        *READS.c["after", "through", "whole"],
    )
    .join(_SINK, _SINK.c.id == READS.c.sink)
    .join(_JOB, _JOB.c.id == READS.c.job)
    .join(_SOURCE, _SOURCE.c.id == READS.c.source)
    .where(READS.c.has_rows == sa.true())
)
READS_OF: Final = _READ.where(READS.c.sink == _BRANCH, READS.c.snapshot.between(_FIRST, _LAST)).order_by(
    READS.c.snapshot, READS.c.number
)
WIDEST: Final = sa.select(sa.func.max(READS.c.width)).where(READS.c.source == _BRANCH)
READERS: Final = _READ.where(
    READS.c.source == _BRANCH,
    READS.c.width == sa.bindparam("width"),
    READS.c.through.between(_FIRST, sa.bindparam("furthest", type_=sa.BigInteger)),
    READS.c.after < _LAST,
)
"""``furthest`` is the highest end of a read of that width that begins before the end of the range."""

OTHER_READS_OF: Final = (
    sa.select(
        *(_SINK.c.text, OTHER_READS.c.snapshot, OTHER_READS.c.time_millis),
        *(_JOB.c.text, OTHER_READS.c.kind, _OTHER.c.text),
    )
    .join(_SINK, _SINK.c.id == OTHER_READS.c.sink)
    .join(_JOB, _JOB.c.id == OTHER_READS.c.job)
    .join(_OTHER, _OTHER.c.id == OTHER_READS.c.name)
    .where(
        OTHER_READS.c.sink == _BRANCH,
        OTHER_READS.c.snapshot.between(_FIRST, _LAST),
        OTHER_READS.c.has_rows == sa.true(),
    )
    .order_by(OTHER_READS.c.snapshot, OTHER_READS.c.number)
)

ALL_FLOWS: Final = (
    sa.select(
        *(_SOURCE.c.text, FLOWS.c.kind, _OTHER.c.text, _SINK.c.text, _JOB.c.text),
        *FLOWS.c["is_merge", "commits", "first_millis", "last_millis"],
    )
    .join(_SOURCE, _SOURCE.c.id == FLOWS.c.source)
    .join(_SINK, _SINK.c.id == FLOWS.c.sink)
    .join(_JOB, _JOB.c.id == FLOWS.c.job)
    .outerjoin(_OTHER, _OTHER.c.id == FLOWS.c.name)
)
ALL_JOBS: Final = (
    sa.select(
        *(_JOB.c.text, _SINK.c.text, _OTHER.c.text),
        *JOBS.c["commits", "first_millis", "last_millis", "last_snapshot"],
    )
    .join(_JOB, _JOB.c.id == JOBS.c.job)
    .join(_SINK, _SINK.c.id == JOBS.c.sink)
    .join(_OTHER, _OTHER.c.id == JOBS.c.engine)
)

_NEWEST_OF_KEY: Final = (
    sa.select(sa.func.max(INPUTS.c.snapshot))
    .where(*(INPUTS.c[key.name] == key for key in INPUT_KEYS.c), INPUTS.c.snapshot.between(_FIRST, _LAST))
    .scalar_subquery()
)
NEWEST_INPUTS: Final = (
    sa.select(_JOB.c.text, _OTHER.c.text, _SOURCE.c.text, _NEWEST_OF_KEY)
    .select_from(INPUT_KEYS)
    .join(_JOB, _JOB.c.id == INPUT_KEYS.c.job)
    .join(_SOURCE, _SOURCE.c.id == INPUT_KEYS.c.source)
    .outerjoin(_OTHER, _OTHER.c.id == INPUT_KEYS.c.query)
    .where(INPUT_KEYS.c.sink == _BRANCH)
)
