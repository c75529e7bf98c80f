"""Merged manifests say the same as those they replace, whatever was added, deleted and added again."""

import itertools
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.format.avro.container import read_header
from anabranch.format.records.data_file import EMPTY_ROW, FileKind, ManifestEntry, SimpleStats
from anabranch.format.records.snapshot import CommitKind
from anabranch.format.rows.binary_row import encode_row, with_arity
from anabranch.kernel.commit.base import Change
from anabranch.kernel.commit.manifest_writer import ManifestWriter, merge_manifests
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
EAGER = {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "1 b"}
LATE = {"manifest.merge-min-count": "100", "manifest.full-compaction-threshold-size": "7 kb"}


def _table(**how):
    return make_table(f"memory://merge{next(_names)}", **how)


def _manifests(table):
    return table.context.manifests.of_snapshot(table.snapshot)


@dataclass(frozen=True)
class _Restore:
    """Take files of an older snapshot back in, as a rollback that is a commit does."""

    entries: tuple
    depends_on_base: bool = True

    def on(self, base):
        gone = base.live.with_kind(FileKind.DELETE).to_entries()
        return Change(CommitKind.OVERWRITE, [*gone, *self.entries])


def _live_entries(table):
    return tuple(table.context.manifests.entries(_manifests(table)).live().to_entries())


@pytest.mark.parametrize("options", [{}, {"manifest.merge-min-count": "2"}, EAGER, LATE], ids=str)
def test_a_file_that_was_deleted_and_added_again_is_live(options):
    table = _table(options=options)
    table.append(rows(0, 3))
    old = _live_entries(table)
    table.overwrite(rows(10, 2))
    table.commit(_Restore(old))
    assert ids_of(table) == [0, 1, 2]
    for i in range(5):
        table.append(rows(20 + i, 1))
    table.overwrite(rows(30, 1))
    table.commit(_Restore(old))
    assert ids_of(table) == [0, 1, 2]


def test_a_full_merge_leaves_large_manifests_alone():
    table = _table(options={"manifest.target-file-size": "1 b", **EAGER})
    for i in range(4):
        table.append(rows(i, 1))
    settled = [m.file_name for m in _manifests(table)]
    table.overwrite(rows(9, 1))
    table.append(rows(10, 1))
    assert sum(m.num_deleted_files for m in _manifests(table)) == 0
    table.append(rows(11, 1))
    assert ids_of(table) == [9, 10, 11]
    assert len(settled) == 4


@pytest.mark.long
def test_a_small_first_manifest_does_not_make_every_merge_full():
    """Only small manifests and those with deletions are what piles up."""
    table = _table(
        options={
            "manifest.target-file-size": "4 kb",
            "manifest.merge-min-count": "1000",
            "manifest.full-compaction-threshold-size": "30 kb",
        }
    )
    table.append(rows(0, 1))
    schema, context = table.schema, table.context
    writer = ManifestWriter(context, schema, schema.options)
    entry = _live_entries(table)[0]
    many = [replace(entry, file=replace(entry.file, file_name=f"data-{i}.parquet")) for i in range(20_000)]
    large = writer.manifests(many)
    assert sum(m.file_size for m in large) > 30_000
    gone = writer.manifests([replace(entry, kind=FileKind.DELETE)])
    context.storage.put_many(writer.objects)
    merged = merge_manifests(
        [*_manifests(table), *large, *gone], ManifestWriter(context, schema, schema.options)
    )
    kept = {m.file_name for m in merged}
    assert all(m.file_name in kept for m in large[1:-1])
    assert sum(m.num_deleted_files for m in merged) == 1, "not worth a full merge yet"


# What manifest lists say of partitions


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_bounds_that_are_not_known_stay_so_when_manifests_are_merged(kind):
    """NaN has no place in an order, so a manifest with it has no bounds, and neither has a merged one."""
    table = _table(
        schema=f"id BIGINT, f {kind}", partition_by=["f"], options={"manifest.merge-min-count": "2"}
    )
    f = pa.float32() if kind == "FLOAT" else pa.float64()
    table.append(pa.table({"id": [1, 9], "f": pa.array([float("nan"), 50.0], f)}))
    for i in range(2, 6):
        table.append(pa.table({"id": [i], "f": pa.array([float(i)], f)}))
    assert len(_manifests(table)) < 5
    assert ids_of(table, filter="f = 50") == [9]
    assert ids_of(table, filter="f > 10") == [1, 9]
    assert ids_of(table, filter="f = 3") == [3]


def test_partitions_that_are_all_null_do_not_blur_the_bounds_of_others():
    table = _table(
        schema="id BIGINT, p STRING", partition_by=["p"], options={"manifest.merge-min-count": "2"}
    )
    for i, p in enumerate([None, "b", None, "c"]):
        table.append(pa.table({"id": [i], "p": pa.array([p], pa.string())}))
    merged = _manifests(table)[0]
    assert merged.num_added_files == 3
    assert merged.partition_stats.null_counts == (2,)
    assert table.scan("p = 'x'").plan().report.steps[1].manifests == 0
    assert ids_of(table, filter="p IS NULL") == [0, 2]
    assert ids_of(table, filter="p = 'c'") == [3]


@pytest.mark.parametrize(
    "stats",
    [SimpleStats(EMPTY_ROW, EMPTY_ROW, ()), SimpleStats(EMPTY_ROW, EMPTY_ROW, (None,))],
    ids=["none", "no bounds"],
)
def test_manifests_without_partition_statistics_can_be_merged(stats):
    table = _table(
        schema="id BIGINT, p STRING", partition_by=["p"], options={"manifest.merge-min-count": "2"}
    )
    for i in range(2):
        table.append(pa.table({"id": [i], "p": ["a"]}))
    metas = [replace(m, partition_stats=stats) for m in _manifests(table)]
    merged = merge_manifests(metas, ManifestWriter(table.context, table.schema, table.schema.options))
    assert [(m.num_added_files, m.partition_stats.null_counts) for m in merged] == [(2, (None,))]
    unknown = with_arity(1, encode_row([f.type for f in table.schema.partition_fields], [None]))
    assert (merged[0].partition_stats.min_values, merged[0].partition_stats.max_values) == (unknown, unknown)


@pytest.mark.parametrize("codec", ["zstd", "null", "deflate", "snappy"])
def test_merged_manifests_are_compressed_as_the_table_says(codec):
    table = _table(options={"manifest.compression": codec, "manifest.merge-min-count": "2"})
    for i in range(5):
        table.append(rows(i, 1))
    raw = [table.context.manifests.raw(m.file_name) for m in _manifests(table)]
    assert {read_header(data, path="m").codec for data in raw} == {{"zstd": "zstandard"}.get(codec, codec)}
    assert ids_of(table) == [0, 1, 2, 3, 4]


# Against a model: a set of live files, changed step by step

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(0, 3)),
        st.tuples(st.just("again"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=25,
)
sizes = st.fixed_dictionaries(
    {
        "manifest.merge-min-count": st.sampled_from(["1", "2", "3", "100"]),
        "manifest.target-file-size": st.sampled_from(["1 b", "1500 b", "8 mb"]),
        "manifest.full-compaction-threshold-size": st.sampled_from(["1 b", "6 kb", "12 kb", "16 mb"]),
    }
)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(steps=steps, options=sizes)
def test_merging_keeps_what_is_live_and_its_order(steps, options):
    table = _table(schema="id BIGINT, p STRING", partition_by=["p"], options=options)
    table.append(pa.table({"id": [0], "p": ["x"]}))
    template = _live_entries(table)[0]
    context, schema = table.context, table.schema
    metas, live, gone = [], [], []
    numbers = itertools.count()
    for action, count in steps:
        match action:
            case "add":
                names = [f"data-{next(numbers)}.parquet" for _ in range(count)]
                changes = [(FileKind.ADD, name) for name in names]
                live += names
            case "remove":
                out, live = live[:count], live[count:]
                changes = [(FileKind.DELETE, name) for name in out]
                gone += out
            case _:
                back, gone = gone[:count], gone[count:]
                changes = [(FileKind.ADD, name) for name in back]
                live += back
        writer = ManifestWriter(context, schema, options)
        metas = merge_manifests(metas, writer)
        metas += writer.manifests([_entry(template, *change) for change in changes])
        context.storage.put_many(writer.objects)
    found = context.manifests.entries(metas).live().df
    assert found["file_name"].to_list() == live


def _entry(template, kind, name):
    return ManifestEntry(
        kind,
        template.partition,
        template.bucket,
        template.total_buckets,
        replace(template.file, file_name=name),
    )
