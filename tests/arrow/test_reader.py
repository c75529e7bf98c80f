"""Planned files become the rows that were asked for, in order, and nothing else."""

import datetime as dt
import itertools
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.arrow import reader, row_buffer
from anabranch.arrow.files import native_path
from anabranch.arrow.reader import ReadContext, read_schema
from anabranch.errors import (
    CorruptTableError,
    InvalidNameError,
    NotFoundError,
    SchemaError,
    StorageError,
    UnsupportedFeatureError,
)
from anabranch.expr.evaluate import filter_mask
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import Field
from anabranch.kernel.scan.split import Split
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.arrow.helpers import (
    context_of,
    filtered,
    make_schema,
    read_batches,
    read_table,
    reading,
    round_trip,
    rows_of,
    splits_of,
    stored_paths,
    write,
)
from tests.format.row_values import atomic_types, from_physical, same, values_of
from tests.support.faults import FaultyStorage, fail, run

COUNT = 10_000
SCHEMA = make_schema("id BIGINT NOT NULL, s STRING, d DOUBLE, t TIMESTAMP(9), r ROW<x INT, y STRING>")


def _table():
    return rows_of(
        SCHEMA,
        {
            "id": range(COUNT),
            "s": [None if n % 7 == 0 else f"s{n % 100}" for n in range(COUNT)],
            "d": [float("nan") if n % 11 == 0 else n / 4 - 100 for n in range(COUNT)],
            "t": [n * 10**12 for n in range(COUNT)],
            "r": [None if n % 5 == 0 else {"x": n, "y": "y"} for n in range(COUNT)],
        },
    )


@pytest.fixture(scope="module", params=["memory", "local"])
def written(request, tmp_path_factory):
    """Some files of several row groups each, and all their rows."""
    storage = MemoryStorage() if request.param == "memory" else LocalStorage(tmp_path_factory.mktemp("table"))
    context = context_of(SCHEMA, storage)
    table = _table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_buffer, "MAX_ROWS", 900)
        messages = [m for start in range(0, COUNT, 2500) for m in write([table.slice(start, 2500)], context)]
    return context, splits_of(messages, context), table


def test_everything(written):
    context, splits, table = written
    assert len(splits) == 4
    assert bits(read_table(splits, reading(context))) == bits(table)
    assert bits(pa.Table.from_batches(read_batches(splits, reading(context)))) == bits(table)
    assert bits(read_table(splits[1:3], reading(context))) == bits(table.slice(2500, 5000))


@pytest.mark.parametrize("threads", [1, 8])
def test_the_order_does_not_depend_on_threads(written, threads):
    context, splits, table = written
    assert bits(read_table(splits, reading(context, threads=threads))) == bits(table)


def test_columns_come_in_the_order_they_are_asked_for(written):
    context, splits, table = written
    assert read_table(splits, reading(context), columns=["r", "id"]).equals(table.select(["r", "id"]))
    assert read_schema(reading(context), ["t"]).equals(to_arrow_schema([SCHEMA.field("t")]))


def test_no_columns_are_a_count(written):
    context, splits, _ = written
    assert read_table(splits, reading(context), columns=[]).num_rows == COUNT
    assert sum(b.num_rows for b in read_batches(splits, reading(context), columns=[])) == COUNT
    predicate = filtered(SCHEMA, "id < 10")
    assert read_table(splits, reading(context), columns=[], predicate=predicate).num_rows == 10


def test_an_unknown_column_is_refused_before_anything_is_read(written):
    context, splits, _ = written
    with pytest.raises(SchemaError, match="did you mean 'id'"):
        read_batches(splits, reading(context), columns=["idd"])
    with pytest.raises(SchemaError, match="twice"):
        read_table(splits, reading(context), columns=["id", "id"])


PREDICATES = [
    "id >= 2500 AND id < 2600",
    "id = 4711",
    "id < 0",
    "s = 's3' OR s IS NULL",
    "s LIKE 's1%' AND d > 1000",
    "d > 2000",
    "d <= -90 OR d = CAST('NaN' AS DOUBLE)",
    "t >= TIMESTAMP '1970-03-01 00:00:00'",
    "r IS NULL AND id > 9000",
    "r.x > 9990 OR r.y IS NULL",
    "id > 100 AND TRUE",
]


@pytest.mark.parametrize("text", PREDICATES)
@pytest.mark.parametrize("columns", [None, ["s"], ["id", "d"]])
def test_exactly_the_rows_for_which_the_predicate_is_true(written, text, columns):
    context, splits, table = written
    predicate = filtered(SCHEMA, text)
    expected = table.filter(filter_mask(predicate, table))
    expected = expected if columns is None else expected.select(columns)
    how = {"columns": columns, "predicate": predicate}
    assert bits(read_table(splits, reading(context), **how)) == bits(expected)
    batches = [*read_batches(splits, reading(context), **how)]
    assert all(batch.num_rows for batch in batches)
    assert bits(pa.Table.from_batches(batches, expected.schema)) == bits(expected)


def bits(table):
    """The table with something that equals itself in the place of NaN."""
    for i, field in enumerate(table.schema):
        if field.type == pa.float64():
            values = table.column(i)
            table = table.set_column(i, field, pc.if_else(pc.is_nan(values), 1e300, values))
    return table.combine_chunks()


@pytest.mark.parametrize("limit", [0, 1, 899, 900, 2501, COUNT, COUNT + 5])
def test_a_limit_gives_the_first_rows(written, limit):
    context, splits, table = written
    assert bits(read_table(splits, reading(context), limit=limit)) == bits(table.slice(0, limit))
    assert sum(b.num_rows for b in read_batches(splits, reading(context), limit=limit)) == min(limit, COUNT)
    predicate = filtered(SCHEMA, "id >= 100 AND s IS NOT NULL")
    expected = table.filter(filter_mask(predicate, table)).slice(0, limit).select(["id"])
    assert read_table(splits, reading(context), columns=["id"], predicate=predicate, limit=limit).equals(
        expected
    )


def test_a_limit_reads_no_more_files_than_it_needs():
    context = context_of(SCHEMA, FaultyStorage(MemoryStorage()))
    table = _table()
    splits = splits_of([m for n in range(50) for m in write([table.slice(n, 1)], context)], context)
    context.storage.forget_calls()
    read_table(splits, reading(context, threads=2), limit=3)
    assert len({call.path for call in context.storage.calls}) < 10


def test_columns_that_decide_are_read_first_and_others_only_where_rows_are_kept(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 500)
    context = context_of(SCHEMA, FaultyStorage(MemoryStorage()))
    table = rows_of(
        SCHEMA,
        {
            "id": np.random.default_rng(4).permutation(COUNT),  # so that no row group can be passed over
            "s": [f"text that takes room {n}" for n in range(COUNT)],
            "d": [0.0] * COUNT,
            "t": [0] * COUNT,
            "r": [None] * COUNT,
        },
    )
    splits = splits_of(write([table], context), context)
    context.storage.forget_calls()
    found = read_table(splits, reading(context), columns=["s"], predicate=filtered(SCHEMA, "id = 77"))
    assert found.num_rows == 1
    groups = COUNT // 500
    assert (
        context.storage.counts()["get_range"] == 2 + groups + 1
    )  # footer, once more to prune; ids; one text


def test_row_groups_are_passed_over_by_their_statistics(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 500)
    context = context_of(SCHEMA, FaultyStorage(MemoryStorage()))
    splits = splits_of(write([_table()], context), context)
    context.storage.forget_calls()
    predicate = filtered(SCHEMA, "id BETWEEN 1000 AND 1499")
    assert read_table(splits, reading(context), columns=["id"], predicate=predicate).num_rows == 500
    assert context.storage.counts()["get_range"] == 3


def test_a_column_added_later_prunes_files_without_it():
    context = context_of(SCHEMA, FaultyStorage(MemoryStorage()))
    splits = splits_of(write([_table()], context), context)
    newer = replace(
        SCHEMA, fields=(*SCHEMA.fields, Field(99, "n", SCHEMA.field("id").type.with_nullable(True)))
    )
    for text, expected, requests in (("n = 1", 0, 1), ("n IS NULL AND id < 5", 5, 3)):
        context.storage.forget_calls()
        predicate = filtered(newer, text)
        assert read_table(splits, reading(context, newer), predicate=predicate).num_rows == expected
        assert context.storage.counts()["get_range"] == requests


def test_distant_files_are_read_in_few_requests():
    storage = FaultyStorage(MemoryStorage())
    context = context_of(SCHEMA, storage)
    splits = splits_of(write([_table()], context), context)
    storage.forget_calls()
    assert read_table(splits, reading(context)).num_rows == COUNT
    assert storage.counts() == {"get_range": 2}  # the footer and the one row group


def test_memory_is_bounded_when_nobody_takes_the_rows(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_ROWS", 100)
    storage = FaultyStorage(MemoryStorage())
    context = context_of(SCHEMA, storage)
    splits = splits_of(write([_table()], context), context)
    storage.forget_calls()
    batches = read_batches(splits, reading(context, threads=2))
    next(batches)
    threading.Event().wait(0.2)
    assert storage.counts()["get_range"] < 12
    batches.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("anabranch-read")]


def test_large_row_groups_are_streamed_bit_by_bit(written, monkeypatch):
    monkeypatch.setattr(reader, "_STREAM_ABOVE", 1)
    monkeypatch.setattr(reader, "_STREAM_ROWS", 128)
    context, splits, table = written
    batches = [*read_batches(splits, reading(context))]
    assert max(b.num_rows for b in batches) <= 128
    assert bits(pa.Table.from_batches(batches)) == bits(table)
    predicate = filtered(SCHEMA, "id >= 130 AND id < 140")
    assert [b.num_rows for b in read_batches(splits, reading(context), predicate=predicate)] == [10]


def test_files_of_this_machine_are_read_without_the_store(tmp_path):
    storage = FaultyStorage(MemoryStorage())
    assert native_path(storage, "a/b") is None
    local = LocalStorage(tmp_path).scoped("t")
    assert native_path(local, "a/b") == str(tmp_path / "t" / "a" / "b")
    with pytest.raises(InvalidNameError):
        native_path(local, "../b")


def test_nothing_to_read():
    context = context_of(SCHEMA)
    assert read_table([], reading(context)).equals(_table().slice(0, 0))
    assert [*read_batches([], reading(context))] == []


def changed(split, **values):
    """The split, with something else said of its only file."""
    return Split(split.partition, split.bucket, (split.files[0]._replace(**values),))


def _one_file(storage=None):
    context = context_of(SCHEMA, storage)
    splits = splits_of(write([_table()], context), context)
    (path,) = stored_paths(context.storage)
    return context, splits, path


@pytest.mark.parametrize("local", [False, True])
def test_a_file_that_is_gone(tmp_path, local):
    context, splits, path = _one_file(LocalStorage(tmp_path) if local else None)
    context.storage.delete(path)
    with pytest.raises(NotFoundError, match="removed although it is needed") as caught:
        read_table(splits, reading(context))
    assert path in str(caught.value)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda _: b"",
        lambda data: data[:-40] + b"\xff" * 20 + data[-20:],
        lambda data: b"\0" * len(data),
        lambda data: data[:100] + b"\xff" * (len(data) // 2 - 100) + data[len(data) // 2 :],
        lambda _: b"no Parquet at all",
    ],
    ids=["cut", "empty", "footer", "zeros", "pages", "other"],
)
def test_a_damaged_file_is_named(tmp_path, damage, local):
    context, splits, path = _one_file(LocalStorage(tmp_path) if local else None)
    data = damage(context.storage.get(path))
    context.storage.put(path, data)
    for read in (read_table, lambda *how: [*read_batches(*how)]):
        with pytest.raises(CorruptTableError, match="cannot be decoded") as caught:
            read(splits, reading(context))
        assert caught.value.path == path


def test_a_file_with_other_rows_than_its_manifest_says():
    context, splits, path = _one_file()
    (split,) = splits
    wrong = changed(split, row_count=COUNT - 1)
    with pytest.raises(
        CorruptTableError, match=f"{COUNT} rows, its manifest entry says {COUNT - 1}"
    ) as caught:
        read_table([wrong], reading(context))
    assert caught.value.path == path


def test_a_format_that_is_not_read():
    context, (split,), _ = _one_file()
    wrong = changed(split, format="lance")
    with pytest.raises(UnsupportedFeatureError, match="lance"):
        read_table([wrong], reading(context))


def test_errors_of_the_store_are_its_own():
    inner = MemoryStorage()
    _, splits, _ = _one_file(inner)
    for nth in (1, 2):
        faulty = FaultyStorage(inner, [fail("get_range", nth=nth)])
        with pytest.raises(StorageError) as caught:
            read_table(splits, ReadContext(faulty, SCHEMA.fields, lambda _: SCHEMA))
        assert caught.value.retryable


def test_a_file_that_disappears_between_footer_and_rows():
    inner = MemoryStorage()
    _, splits, _ = _one_file(inner)
    faulty = FaultyStorage(inner, [run("after", "get_range", inner.delete)])
    with pytest.raises(NotFoundError, match="plan the read again"):
        read_table(splits, ReadContext(faulty, SCHEMA.fields, lambda _: SCHEMA))


def test_folders_that_look_like_columns_mean_nothing(tmp_path):
    schema = make_schema("p STRING, v INT", partition_keys=("p",))
    table = rows_of(schema, {"p": ["1", "2", None], "v": [1, 2, 3]})
    found = round_trip(schema, table, storage=LocalStorage(tmp_path))
    assert found.equals(table)


@given(st.data())
def test_every_type_and_value_comes_back(data):
    types = data.draw(st.lists(atomic_types(), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*(st.none() | values_of(t) for t in types)), min_size=1, max_size=8))
    fields = [Field(i, f"c{i}", t) for i, t in enumerate(types)]
    columns = [
        from_physical(list(values), t) for t, values in zip(types, zip(*rows, strict=True), strict=True)
    ]
    schema = make_schema(fields)
    table = pa.Table.from_arrays(columns, schema=to_arrow_schema(schema.fields))
    found = round_trip(schema, table)
    assert found.schema.equals(table.schema)
    for column, expected in zip(found.columns, table.columns, strict=True):
        assert same(_raw(column), _raw(expected))


def _raw(column):
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.int32()).to_pylist()
    return column.to_pylist()


NESTED = [
    ("ARRAY<ARRAY<INT>>", [[[1, None], None, []], None, []]),
    ("ARRAY<ROW<x INT NOT NULL, y STRING>>", [[{"x": 1, "y": None}, None], [], None]),
    ("ROW<a ROW<b ROW<c INT NOT NULL> NOT NULL>, l ARRAY<INT NOT NULL> NOT NULL>",
     [{"a": {"b": {"c": 1}}, "l": []}, {"a": None, "l": [1]}, None]),
    ("MAP<INT, ARRAY<TIMESTAMP(9)>>", [[(1, [None, dt.datetime(1969, 12, 31, 23)]), (2, None)], [], None]),
    ("MAP<STRING, ROW<m MAP<STRING, BYTES>>>", [[("a", {"m": [("b", b"\0")]}), ("", None)], None]),
    ("MULTISET<ROW<x INT>>", [[({"x": 1}, 3)], []]),
    ("ARRAY<DECIMAL(20, 2) NOT NULL> NOT NULL", [[], []]),
]  # fmt: skip


@pytest.mark.parametrize(("sql_type", "values"), NESTED, ids=[t for t, _ in NESTED])
def test_nested_values_come_back(sql_type, values):
    schema = make_schema(f"c {sql_type}")
    table = rows_of(schema, {"c": values * 3})
    found = round_trip(schema, table)
    found.validate(full=True)
    assert found.equals(table)


def test_nested_values_below_nulls_do_not_disturb():
    """Members that are NOT NULL in rows that are null, with whatever lies below."""
    schema = make_schema("c ROW<x INT NOT NULL, l ARRAY<INT NOT NULL> NOT NULL>")
    (field,) = to_arrow_schema(schema.fields)
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, None, 3], pa.int32()), pa.array([[1], None, [2]], field.type.field(1).type)],
        fields=list(field.type),
        mask=pa.array([False, True, False]),
    )
    found = round_trip(schema, pa.Table.from_arrays([hidden], schema=pa.schema([field])))
    assert found.column("c").to_pylist() == [{"x": 1, "l": [1]}, None, {"x": 3, "l": [2]}]


def test_files_of_several_schemas_in_one_read():
    old = make_schema("a INT, b STRING")
    new = replace(
        old,
        id=1,
        fields=(old.fields[1], Field(2, "a", old.field("b").type), Field(3, "c", old.field("a").type)),
    )
    storage = MemoryStorage()
    before, after = context_of(old, storage), context_of(new, storage)
    splits = splits_of(write([rows_of(old, {"a": [1, 2], "b": ["x", "y"]})], before), before)
    splits += splits_of(write([rows_of(new, {"b": ["z"], "a": ["t"], "c": [3]})], after), after)
    schemas = {0: old, 1: new}
    found = read_table(splits * 2, ReadContext(storage, new.fields, schemas.__getitem__))
    rows = [{"b": "x", "a": None, "c": None}, {"b": "y", "a": None, "c": None}, {"b": "z", "a": "t", "c": 3}]
    assert found.to_pylist() == rows * 2


def test_no_file_stays_open(tmp_path):
    import gc
    import os

    context, splits, _ = _one_file(LocalStorage(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for limit in (None, 5):
        for batch in itertools.islice(read_batches(splits * 20, reading(context), limit=limit), 3):
            assert batch.num_rows
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_footers_that_arrow_annotated_are_read_by_the_schema(tmp_path):
    """The types that Arrow notes in files of its own do not matter."""
    storage = MemoryStorage()
    context, splits, path = _one_file(storage)
    sink = pa.BufferOutputStream()
    annotated = _table().set_column(1, "s", _table().column("s").dictionary_encode())
    pq.write_table(annotated, sink)
    storage.put(path, sink.getvalue().to_pybytes())
    (split,) = splits
    split = changed(split, size=sink.getvalue().size)
    assert bits(read_table([split], reading(context))) == bits(_table())
