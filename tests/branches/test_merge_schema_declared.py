"""Files of a branch under main's schema: under which version, and with which statistics."""

from dataclasses import replace

from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta, SimpleStats
from anabranch.format.rows.binary_row import decode_row, encode_row, with_arity
from anabranch.format.schema.change import DropColumn, RenameColumn, SetNullable
from anabranch.kernel.merge.declare import declared, declared_as
from anabranch.kernel.merge.schema import merge_schemas
from tests.branches.merge_schemas import add, changed, on_branch, schema, widen

COLUMNS = "a INT NOT NULL, b STRING, c INT"


def version_for(ours=(), theirs=(), *, later=(), columns=COLUMNS):
    """For a file written after `theirs`, in a branch that then did `later`: the version it is declared under."""
    base = schema(columns)
    main, written = changed(base, *ours), on_branch(base, *theirs)
    merged = merge_schemas(base, main, changed(written, *later)).schema
    found = declared_as(written, merged, [main, base])
    named = (("merged", merged), ("main", main), ("base", base), (None, None))
    return next(name for name, version in named if version is found)


def test_the_merged_schema_if_each_column_is_the_same_there():
    assert version_for() == "merged"
    assert version_for([add("mine")], [add("theirs")]) == "merged"
    assert version_for([], [SetNullable("a")]) == "merged"
    assert version_for([SetNullable("a")], []) == "merged"


def test_an_older_version_of_main_if_main_changed_the_column_since():
    assert version_for([widen("c", "BIGINT")]) == "base"
    assert version_for([RenameColumn("c", "x"), add("c")]) == "base"


def test_columns_that_were_dropped_are_passed_over_where_no_version_has_them():
    assert version_for([DropColumn("c")]) == "base"
    assert version_for([add("x"), DropColumn("c")]) == "base"
    assert version_for([], [add("x")], later=[DropColumn("x")]) == "merged"
    # Another column of the name would be read in their place.
    assert version_for([DropColumn("c"), add("c")]) == "base"
    assert version_for([], [add("x")], later=[DropColumn("x"), add("x")]) == "main"


def test_none_if_a_column_would_be_lost_or_misread():
    assert version_for([widen("c", "BIGINT")], [add("theirs")]) is None
    assert version_for([], [add("x")], later=[widen("x", "BIGINT")]) is None
    assert version_for([], [add("x")], later=[RenameColumn("x", "y")]) is None
    assert version_for([add("s.z")], [add("n")], columns="a INT, s ROW<x INT>") is None


def file_of(written, low, high, counts, columns=None):
    fields = written.fields if columns is None else [written.field(name) for name in columns]
    types = [f.type for f in fields]
    rows = (with_arity(len(types), encode_row(types, values)) for values in (low, high))
    return DataFileMeta(
        "data-1.parquet", 100, 7, SimpleStats(*rows, counts), 0, 6, written.id, value_stats_cols=columns
    )


def stats_of(file, fields):
    types = [f.type for f in fields]
    stats = file.value_stats
    return decode_row(types, stats.min_values), decode_row(types, stats.max_values), stats.null_counts


def test_statistics_are_laid_out_to_the_width_of_the_version():
    base = schema(COLUMNS)
    written = on_branch(base, add("theirs"))
    merged = merge_schemas(base, changed(base, add("mine"), DropColumn("b")), written).schema
    file = file_of(written, (1, "k", None, 5), (9, "l", None, 6), (0, 1, None, 2))
    found = declared(file, written, merged)
    assert [f.name for f in merged.fields] == ["a", "c", "mine", "theirs"]
    assert found.schema_id == merged.id
    assert stats_of(found, merged.fields) == ((1, None, None, 5), (9, None, None, 6), (0, None, 7, 2))
    assert replace(found, schema_id=file.schema_id, value_stats=file.value_stats) == file


def test_statistics_of_chosen_columns_keep_their_names():
    base = schema(COLUMNS)
    written = on_branch(base, add("theirs"))
    merged = merge_schemas(base, changed(base, DropColumn("b")), written).schema
    file = file_of(written, (1, 5), (9, 6), (0, 2), columns=("a", "theirs"))
    assert declared(file, written, merged) == replace(file, schema_id=merged.id)
    file = file_of(written, ("k", 5), ("l", 6), (0, 2), columns=("b", "theirs"))
    found = declared(file, written, merged)
    assert found.value_stats_cols == ("theirs",)
    assert stats_of(found, [merged.field("theirs")]) == ((5,), (6,), (2,))


def test_unknown_statistics_stay_unknown():
    base = schema(COLUMNS)
    written = on_branch(base, add("theirs"))
    file = DataFileMeta("data-1.parquet", 100, 7, EMPTY_STATS, 0, 6, written.id)
    merged = merge_schemas(base, changed(base, add("mine")), written).schema
    found = declared(file, written, merged)
    assert stats_of(found, merged.fields) == ((None,) * 5, (None,) * 5, (None, None, None, 7, None))
