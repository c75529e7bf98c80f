"""Streams that read what is replaced."""

from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput
from tests.branches.replacing import parted
from tests.support.tables import written


def origin(job, start, end, kind="kafka", topic="events"):
    def offset(value):
        return None if value is None else {topic: {"0": value}}

    entry = LineageEntry(
        job,
        None,
        None,
        Engine("spark", query=job, batch=0),
        (SourceInput(kind, "source 0", offset(start), offset(end)),),
    )
    return {LINEAGE_PROPERTY: entry.to_json()}


def commit(table, first, count, start, end, **how):
    table.commit(
        Append(written(table, first, count)),
        identity=CommitIdentity(f"{first}@x", end),
        properties=origin("job", start, end, **how),
    )


def caught_up(fix_ends, main_ends=(30, 40)):
    """Main read to 40 in two commits after the two parted at 20, the branch in commits to these ends."""
    table = parted(fix=0, main=0)
    start = 20
    for end in main_ends:
        commit(table, 1000 + end, 1, start, end)
        start = end
    start, fix = 20, table.branch("fix")
    for end in fix_ends:
        commit(fix, 2000 + end, 1, start, end)
        start = end
    return table
