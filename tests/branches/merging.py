"""A small table with a branch, to merge."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

import anabranch
from anabranch.errors import CommitConflictError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import EntryFrame
from anabranch.format.records.snapshot import CommitKind
from anabranch.kernel.actions.append import added_entries
from anabranch.kernel.commit.base import Base, Change
from anabranch.kernel.scan.partitions import key_of_row

_names = itertools.count()
SCALABLE, QUEUE = {}, {"bucket": "1"}
MODES = [SCALABLE, QUEUE]


def lake():
    return anabranch.connect(f"memory://merging{next(_names)}")


def parted(options=SCALABLE, schema="id BIGINT NOT NULL, dt STRING"):
    """A table by `dt` with the rows 1 and 2 in ``a`` and 3 in ``b``, and the branch `fix` of that."""
    table = lake().create_table("db.t", schema, partition_by=["dt"], options=options)
    table.append(rows([1, 2], "a"))
    table.append(rows([3], "b"))
    return table, branched(table)


def branched(table, name="fix"):
    """A new branch of what there is."""
    table.create_tag(f"for-{name}")
    table.create_branch(name, f"for-{name}")
    return table.branch(name)


def rows(ids, dt):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * len(ids), pa.string())})


def contents(table, dt=None):
    """Ids in the order they are read, or those of one partition."""
    found = table.scan(columns=["id", "dt"]).to_arrow()
    pairs = zip(found["id"].to_pylist(), found["dt"].to_pylist(), strict=True)
    return sorted(i for i, d in pairs) if dt is None else [i for i, d in pairs if d == dt]


def conflicts_of(table, name="fix", **how):
    """(kind, partition) of each conflict that the merge meets."""
    try:
        table.merge_branch(name, **how)
    except CommitConflictError as error:
        return [(conflict.kind, conflict.partition) for conflict in error.conflicts]
    return []


def outcomes(result):
    return {one.partition: (str(one.outcome), one.rows_added, one.rows_removed) for one in result.partitions}


@dataclass(frozen=True)
class Foreign:
    """A commit as another engine may make it: any entries under any kind."""

    kind: CommitKind
    entries: Callable[[Base], list]
    properties: dict = field(default_factory=dict)
    depends_on_base = True

    def on(self, base):
        return Change(self.kind, self.entries(base), self.properties)


def commit_as_others(table, kind, entries, **properties):
    return table.commit(Foreign(kind, entries, properties)).snapshot


def rewriting(table, dt, kind=CommitKind.COMPACT, keep=lambda i: True):
    """All files of a partition become one, whoever wrote them and whenever; with only the rows to keep."""
    ids = [i for i in contents(table, dt) if keep(i)]
    new = added_entries(written(table, ids, dt)) if ids else []

    def entries(base):
        gone = EntryFrame(base.live.df).with_kind(FileKind.DELETE).to_entries()
        names = {key_of_row(e.partition, base.schema): e.partition for e in gone}
        return [*(e for e in gone if e.partition == names[(dt,)]), *new]

    return commit_as_others(table, kind, entries)


def written(table, ids, dt):
    """Commit messages of rows that are written but not committed."""
    writer = table.writer()
    return writer.write([batch.cast(writer.schema) for batch in rows(ids, dt).to_batches()])
