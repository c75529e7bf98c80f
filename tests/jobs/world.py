"""A source, a sink and a job between them whose commits say what they read, made without Spark."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import anabranch
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput, TableInput
from anabranch.streaming.offsets import Position
from tests.support.tables import make_table, rows, written


def kafka(start, end, *, topic="clicks", source="source 0"):
    """What a batch read of a topic: offsets by partition, from None at the first batch."""

    def offsets(given):
        return None if given is None else {topic: {str(p): at for p, at in enumerate(given)}}

    return SourceInput("kafka", source, offsets(start), offsets(end))


@dataclass
class World:
    """``db.raw`` with snapshots, and ``db.orders`` that a job makes of it."""

    folder: Path
    job: str = "clean"
    query: str = "q1"
    batches: dict = field(default_factory=dict)

    def __post_init__(self):
        self.raw = make_table(self.folder, "db.raw")
        self.orders = make_table(self.folder, "db.orders")
        self.lake = anabranch.connect(str(self.folder))

    def arrive(self, count=1):
        for _ in range(count):
            head = self.raw.snapshot
            self.raw.append(rows(0 if head is None else head.total_record_count, 1))

    def read(self, start, end, table=None):
        """What a batch read of a table, by snapshots."""
        table = table or self.raw
        stamps = {s.id: s.stamp for s in table.snapshots()}
        return TableInput(
            table.name,
            table.table_uuid,
            table.branch_uuid,
            Position(start, stamps.get(start)),
            Position(end, stamps.get(end)),
        )

    def looked_up(self, table, at):
        stamp = {s.id: s.stamp for s in table.snapshots()}[at]
        position = Position(at, stamp, full=True)
        return TableInput(table.name, table.table_uuid, table.branch_uuid, Position(0, None), position)

    def commit(self, *inputs, job=None, query=None, branch=None, problems=()):
        """The next batch of the job, with one row."""
        job, query = job or self.job, query or self.query
        table = self.orders if branch is None else self.orders.branch(branch)
        batch = self.batches[job, query, branch] = self.batches.get((job, query, branch), -1) + 1
        entry = LineageEntry(job, None, None, Engine("spark", query=query, batch=batch), inputs, problems)
        number = 1000 * len(self.batches) + batch
        return table.commit(
            Append(written(table, number, 1)),
            identity=CommitIdentity(f"{job}@{table.branch_uuid}", number),
            properties={LINEAGE_PROPERTY: entry.to_json()},
        ).snapshot


def offset(recorded):
    """The snapshot of a recorded position of a table."""
    return json.loads(recorded.position)["snapshot"]
