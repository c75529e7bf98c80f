"""Avro files by column, against fastavro; and what damaged and hostile files come to."""

from __future__ import annotations

import io
import itertools
import json
import tracemalloc

import fastavro
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.avro import container as avro_container
from anabranch.format.avro import files as avro
from anabranch.format.avro.container import Block, frame_container, pack_block, read_blocks, read_header
from anabranch.format.avro.files import RecordSchema, read_columns, read_frame, write_container
from tests.format import avro_oracle as oracle

CODECS = ["null", "deflate", "snappy", "zstandard"]


def record(name: str, **fields):
    return {"type": "record", "name": name, "fields": [{"name": k, "type": v} for k, v in fields.items()]}


def array(items):
    return {"type": "array", "items": items}


PAIR = record("pair", n="long", s="string")
PAIRS = [{"n": i, "s": f"row {i}"} for i in range(100)]


# Containers


@pytest.mark.parametrize("codec", CODECS)
@given(payloads=st.lists(st.binary(min_size=1, max_size=2000), max_size=4))
def test_blocks_come_back_as_they_were_packed(codec, payloads):
    blocks = [Block(i, payload) for i, payload in enumerate(payloads, 1)]
    data = frame_container(b'"null"', [pack_block(block, codec) for block in blocks], codec)
    header = read_header(data, path="f")
    assert (header.schema, header.codec) == (b'"null"', codec)
    assert list(read_blocks(data, header, path="f")) == blocks


@pytest.mark.parametrize("codec", CODECS)
def test_fastavro_reads_what_is_written(codec):
    schema = RecordSchema(json.dumps(PAIR).encode(), fastavro.parse_schema(PAIR))
    data = write_container(schema, PAIRS, codec=codec)
    assert oracle.read(data) == (PAIR, PAIRS)
    assert oracle.read(write_container(schema, [], codec=codec)) == (PAIR, [])
    if codec in ("null", "deflate"):  # fastavro's own reader needs more packages for the others
        assert list(fastavro.reader(io.BytesIO(data))) == PAIRS


def test_equal_content_gives_equal_bytes():
    schema = RecordSchema(json.dumps(PAIR).encode(), fastavro.parse_schema(PAIR))
    assert write_container(schema, PAIRS) == write_container(schema, PAIRS)
    assert write_container(schema, PAIRS)[-16:] != write_container(schema, PAIRS[1:])[-16:]


def test_unknown_compression_is_named():
    data = oracle.frame(PAIR, [], codec="xz")
    with pytest.raises(UnsupportedFeatureError, match=r"manifest-1: .*'xz'") as caught:
        read_frame(data, path="manifest-1")
    assert caught.value.feature == "manifest-compression"


def test_a_header_without_a_codec_means_no_compression():
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(PAIR), PAIRS)
    bare = out.getvalue().replace(b"\x14avro.codec\x08null", b"\x14avro.other\x08null")
    assert read_frame(bare, path="f").to_dicts() == PAIRS


# Any schema, against fastavro


PRIMITIVES = st.sampled_from(["boolean", "int", "long", "float", "double", "string", "bytes"])


def schemas(depth=0):
    if depth > 2:
        return PRIMITIVES
    inner = st.deferred(lambda: schemas(depth + 1))
    single = inner.filter(lambda t: not isinstance(t, list))
    records = st.lists(inner, min_size=1, max_size=3).map(
        lambda ts: record("r", **{f"f{i}": t for i, t in enumerate(ts)})
    )
    return st.one_of(
        PRIMITIVES,
        PRIMITIVES.map(lambda t: ["null", t]),
        PRIMITIVES.map(lambda t: [t, "null"]),
        st.just({"type": "long", "logicalType": "timestamp-millis"}),
        st.just({"type": "enum", "name": "e", "symbols": ["A", "B"]}),
        st.just({"type": "fixed", "name": "f", "size": 3}),
        st.just(["null", "long", "string"]),
        single.map(array),
        single.map(lambda t: array(["null", t])),
        inner.map(lambda t: {"type": "map", "values": t}),
        records,
        records.map(lambda t: ["null", t]),
    )


def with_distinct_names(schema, numbers):
    if isinstance(schema, list):
        return [with_distinct_names(branch, numbers) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    named = {
        k: with_distinct_names(v, numbers) if k in ("type", "items", "values") else v
        for k, v in schema.items()
    }
    if "name" in named:
        named["name"] += str(next(numbers))
    if "fields" in named:
        named["fields"] = [{**f, "type": with_distinct_names(f["type"], numbers)} for f in named["fields"]]
    return named


def values(schema):
    if isinstance(schema, list):
        return st.one_of(*(values(branch).map(lambda v, b=branch: (name_of(b), v)) for branch in schema))
    match schema if isinstance(schema, str) else schema["type"]:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-(2**31), 2**31 - 1)
        case "long":
            return st.integers(-(2**63), 2**63 - 1)
        case "float":
            return st.floats(width=32, allow_nan=False)
        case "double":
            return st.floats(allow_nan=False)
        case "string":
            return st.text(max_size=20)
        case "bytes":
            return st.binary(max_size=20)
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=3, max_size=3)
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3)
        case "record":
            return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})


def name_of(branch) -> str:
    return branch if isinstance(branch, str) else branch.get("name", branch["type"])


def plain(schema):
    """The schema without logical types, which fastavro would apply."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {k: plain(v) for k, v in schema.items() if k != "logicalType"}
    return schema


def column_paths(schema, path=""):
    """Fields that can be columns, by their path."""
    if isinstance(schema, list) and len(schema) == 2 and "null" in schema:
        schema = next(branch for branch in schema if branch != "null")
    if isinstance(schema, dict) and schema["type"] == "record":
        return [p for f in schema["fields"] for p in column_paths(f["type"], f"{path}.{f['name']}")]
    return [path[1:]] if is_column(schema) else []


def is_column(schema):
    if isinstance(schema, list):
        return len(schema) == 2 and "null" in schema and all(b == "null" or is_column(b) for b in schema)
    if isinstance(schema, dict):
        match schema["type"]:
            case "array":
                return is_column(schema["items"])
            case "record":
                return all(is_column(f["type"]) for f in schema["fields"])
            case kind:
                return kind not in ("enum", "fixed", "map")
    return True


def at(value, path):
    for name in path.split("."):
        value = None if value is None else value[name]
    return value


@settings(deadline=None)
@given(data=st.data(), codec=st.sampled_from(CODECS), rows_per_block=st.integers(1, 5))
def test_any_file_reads_as_fastavro_reads_it(data, codec, rows_per_block):
    fields = data.draw(st.lists(schemas(), min_size=1, max_size=5))
    schema = record("root", **{f"c{i}": field for i, field in enumerate(fields)})
    schema = with_distinct_names(schema, itertools.count())
    rows = data.draw(st.lists(values(schema), max_size=8))
    written = oracle.write(schema, rows, codec=codec, rows_per_block=rows_per_block)
    _, expected = oracle.read(oracle.write(plain(schema), rows))

    frame = read_frame(written, path="f")

    assert frame.columns == column_paths(schema)
    assert frame.height == (len(rows) if frame.columns else 0)
    for path in frame.columns:
        assert frame.get_column(path).to_list() == [at(row, path) for row in expected], path


def test_named_types_are_resolved_in_their_namespaces():
    stats = {
        "type": "record",
        "name": "stats",
        "namespace": "a.b",
        "fields": [{"name": "v", "type": "bytes"}],
    }
    schema = {
        "type": "record",
        "name": "root",
        "namespace": "a.b",
        "fields": [
            {"name": "one", "type": stats},
            {"name": "two", "type": "stats"},
            {"name": "three", "type": ["null", "a.b.stats"]},
            {"name": "four", "type": {"type": "array", "items": "stats"}},
        ],
    }
    row = {"one": {"v": b"1"}, "two": {"v": b"2"}, "three": {"v": b"3"}, "four": [{"v": b"4"}]}
    assert read_frame(oracle.write(schema, [row]), path="f").to_dicts() == [
        {"one.v": b"1", "two.v": b"2", "three.v": b"3", "four": [{"v": b"4"}]}
    ]


def test_a_union_of_null_and_the_record_at_the_top(monkeypatch):
    """As paimon-rust writes it; by column, not record by record."""
    monkeypatch.setattr(avro, "_decode_records", None)
    nested = record("root", a="long", inner=["null", record("inner", s="string", b=["null", "bytes"])])
    rows = [{"a": 1, "inner": {"s": "x", "b": None}}, {"a": 2, "inner": {"s": "y", "b": b"z"}}]
    assert read_frame(oracle.write(["null", nested], rows), path="f").to_dicts() == [
        {"a": 1, "inner.s": "x", "inner.b": None},
        {"a": 2, "inner.s": "y", "inner.b": b"z"},
    ]


def test_absent_records_are_absent_fields():
    schema = record("root", s="string", inner=["null", record("inner", t="string")])
    rows = [{"s": "a", "inner": {"t": "b"}}, {"s": "c", "inner": None}]
    assert read_frame(oracle.write(schema, rows), path="f").rows() == [("a", "b"), ("c", None)]


def test_arrays_in_counted_blocks():
    """A block of an array may say how many bytes it takes; its count is negative then."""
    payload = b"\x02a" + b"\x03\x04\x02\x04" + b"\x02\x08" + b"\x00"
    data = oracle.frame(record("root", s="string", n=array("long")), [(1, payload)])
    assert read_frame(data, path="f").rows() == [("a", [1, 2, 4])]


# Many files at once

WANTED = {"number": ("n", pl.Int64()), "text": ("s", pl.String()), "new": ("added", pl.String())}
OTHER = record(
    "other", s=["null", "string"], added="string", n="int", ignored={"type": "map", "values": "long"}
)


@given(
    sizes=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=12),
    batch=st.sampled_from([1, 30, 1 << 20]),
    chunk=st.sampled_from([1, 300, 1 << 20]),
)
def test_many_files_keep_their_order(sizes, batch, chunk):
    files, expected = [], []
    for i, (other, rows) in enumerate(sizes):
        here = [{"n": 10 * i + j, "s": f"{i}.{j}"} for j in range(rows)]
        if other:
            here = [{**row, "added": "new", "ignored": {"x": 1}} for row in here]
        files.append((f"f{i}", oracle.write(OTHER if other else PAIR, here, rows_per_block=2)))
        expected += [(row["n"], row["s"], row.get("added")) for row in here]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(avro, "_BATCH_BYTES", batch)
        patch.setattr(avro, "_CHUNK_BYTES", chunk)
        frame, counts = read_columns(files, WANTED)
    assert frame.rows() == expected
    assert frame.schema == {"number": pl.Int64, "text": pl.String, "new": pl.String}
    assert counts == [rows for _, rows in sizes]


@pytest.mark.parametrize("claim", [-1, 1])
def test_a_file_with_a_wrong_row_count_is_found_among_others(claim):
    good = oracle.write(PAIR, PAIRS)
    bad = oracle.write(PAIR, PAIRS[:7], claim=claim)
    files = [("f0", good), ("f1", good), ("f2", bad), ("f3", good)]
    with pytest.raises(CorruptTableError, match=r"^f2: the \d+ rows") as caught:
        read_columns(files, WANTED)
    assert caught.value.path == "f2"


def test_wrong_row_counts_that_add_up_are_no_concern_of_the_rows():
    """One block claims a row less and the next one more: the rows are all there, in order."""
    out = [oracle.read(oracle.write(PAIR, PAIRS))[1]]
    first, second = (
        b"".join(b"%c%c%s" % (2 * row["n"], 2 * len(row["s"]), row["s"].encode()) for row in rows)
        for rows in (PAIRS[:5], PAIRS[5:9])
    )
    data = oracle.frame(PAIR, [(4, first), (5, second)])
    assert read_frame(data, path="f").to_dicts() == out[0][:9]


def test_a_field_of_another_type():
    data = oracle.write(record("root", n="string", s="string"), [{"n": "1", "s": "x"}])
    with pytest.raises(CorruptTableError, match="f: expected the field n as Int64, found String"):
        read_columns([("f", data)], WANTED)


def test_no_files():
    frame, counts = read_columns([], WANTED)
    assert (frame.columns, frame.height, counts) == (list(WANTED), 0, [])


# Hostile files


def nested_arrays(depth):
    return "long" if depth == 0 else array(nested_arrays(depth - 1))


@pytest.mark.parametrize(
    "schema",
    [
        b"not json",
        b"[" * 100_000,
        b'{"type": "record", "name": "r", "fields": [{"name": "x", "type": "r"}]}',
        b'{"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "r"]}]}',
        b'{"type": "record", "name": "r"}',
        b'{"type": "record", "name": "r", "fields": [{"name": "x", "type": "missing"}]}',
        b'"long"',
        b'["null", "long"]',
        b"[]",
        b"17",
        json.dumps(record("r", x=array("null"))).encode(),
        json.dumps(record("r", x=array(record("empty")))).encode(),
        json.dumps(record("r", x=array({"type": "fixed", "name": "f", "size": 0}))).encode(),
        json.dumps(record("r", x={"type": "fixed", "name": "f", "size": -1})).encode(),
        json.dumps(record("r", x={"type": "fixed", "name": "f", "size": 10**15})).encode(),
        json.dumps(record("r", x=nested_arrays(40))).encode(),
        json.dumps(record("r", **{f"f{i}": "long" for i in range(6000)})).encode(),
        json.dumps(record("r", **{"not a name": "long"})).encode(),
        json.dumps({**PAIR, "fields": PAIR["fields"] * 2}).encode(),
    ],
)
def test_schemas_that_are_refused(schema):
    data = oracle.frame(schema, [(1, b"\0" * 100)])
    with pytest.raises(CorruptTableError, match=r"^f: its Avro schema cannot be used"):
        read_frame(data, path="f")


def test_a_schema_that_grows_when_written_out_is_refused():
    doubling = [record("t0", x="long")]
    for i in range(1, 14):
        doubling.append(record(f"t{i}", a=doubling[-1], b=f"t{i - 1}"))
    with pytest.raises(CorruptTableError, match="cannot be used"):
        read_frame(oracle.frame(doubling[-1], [(1, b"\0" * 10)]), path="f")


def test_rows_that_take_no_bytes_are_refused():
    with pytest.raises(CorruptTableError, match="a row takes at least 1"):
        read_frame(oracle.frame(record("r", x="null"), [(2**60, b"")]), path="f")
    with pytest.raises(CorruptTableError, match="claims 1000000000000 rows in 100 bytes"):
        read_frame(oracle.frame(PAIR, [(10**12, b"\0" * 100)]), path="f")


def zstd_frame_claiming(size: int) -> bytes:
    """A frame header with an 8-byte content size, and an empty last block."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"


ZEROS = 40 << 20
BOMBS = {
    "zstandard that claims 10 GB": ("zstandard", lambda: zstd_frame_claiming(10 << 30)),
    "zstandard that claims 2**63 bytes": ("zstandard", lambda: zstd_frame_claiming(2**63)),
    "zstandard that claims less than there is": (
        "zstandard",
        lambda: zstd_frame_claiming(50)[:-3] + oracle.compress("zstandard-streaming", bytes(ZEROS))[6:],
    ),
    "zstandard": ("zstandard", lambda: oracle.compress("zstandard", bytes(ZEROS))),
    "zstandard of unknown size": ("zstandard", lambda: oracle.compress("zstandard-streaming", bytes(ZEROS))),
    "deflate": ("deflate", lambda: oracle.compress("deflate", bytes(ZEROS))),
    "snappy that claims 4 GB": ("snappy", lambda: b"\xff\xff\xff\xff\x0f" + bytes(50)),
    "nothing as snappy": ("snappy", lambda: b""),
    "nothing as zstandard": ("zstandard", lambda: b""),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_compression_bombs(bomb, monkeypatch):
    codec, make = BOMBS[bomb]
    packed = make()
    monkeypatch.setattr(avro_container, "MAX_EXPANSION", 100)
    data = oracle.frame(PAIR, [(1, packed)], codec=codec)
    allowed = max(avro_container.MIN_EXPANDED, 100 * len(data))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptTableError, match=r"^f: damaged Avro block"):
            read_frame(data, path="f")
        assert tracemalloc.get_traced_memory()[1] < 2.2 * allowed
    finally:
        tracemalloc.stop()


def test_a_file_may_expand_as_far_as_real_ones_do():
    rows = [{"n": 1, "s": "x" * 400}] * 20_000
    data = oracle.write(PAIR, rows, codec="zstandard", rows_per_block=20_000)
    assert 400 * len(rows) / len(data) > 200
    assert read_frame(data, path="f").height == len(rows)


def test_frames_of_streaming_writers_do_not_say_their_size():
    packed = oracle.compress("zstandard-streaming", b"\x02\x02x" * 200_000)
    assert zstandard.frame_content_size(packed) == -1
    data = oracle.frame(PAIR, [(200_000, packed)], codec="zstandard")
    assert read_frame(data, path="f").get_column("s").to_list() == ["x"] * 200_000
    with pytest.raises(CorruptTableError, match=r"^f: damaged Avro block"):
        read_frame(oracle.frame(PAIR, [(200_000, packed[:-5])], codec="zstandard"), path="f")


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_a_block_that_is_cut_short_or_too_long(codec):
    packed = oracle.compress(codec, b"\x02\x02x" * 50)
    for damaged in (packed[:-1], packed + b"\0")[: 1 if codec == "deflate" else 2]:
        with pytest.raises(CorruptTableError, match=r"^f: damaged Avro block"):
            read_frame(oracle.frame(PAIR, [(50, damaged)], codec=codec), path="f")


@pytest.mark.parametrize(
    "payload",
    [
        b"\x02" + b"\xff" * 9 + b"\x01",  # a string of -2**63 bytes
        b"\x02" + b"\xfe" * 9 + b"\x01",
        b"\xff" * 30,
        b"\x02\x06\xff\xfe\xfd",  # not UTF-8
        b"\x02",
        b"\x02\x7f",
    ],
)
def test_hostile_rows(payload):
    """Polars panics on some of these; no panic gets out."""
    with pytest.raises(CorruptTableError, match=r"^f: "):
        read_frame(oracle.frame(PAIR, [(1, payload)]), path="f")


def test_arrays_that_claim_more_items_than_there_are():
    schema = record("root", s="string", n=array("long"))
    for count in (
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02",
    ):
        with pytest.raises(CorruptTableError, match=r"^f: "):
            read_frame(oracle.frame(schema, [(1, b"\x02x" + count + b"\x02" * 20)]), path="f")


def seeds():
    nested = record(
        "root", s="string", n=["null", array(["null", "long"])], inner=record("i", b="bytes", k="int")
    )
    rows = [{"s": f"s{i}", "n": [i, None], "inner": {"b": b"x" * i, "k": i}} for i in range(30)]
    return [oracle.write(nested, rows, codec=codec, rows_per_block=10) for codec in CODECS]


SEEDS = seeds()


def survives(data: bytes) -> None:
    try:
        read_frame(data, path="f")
    except (CorruptTableError, UnsupportedFeatureError) as error:
        assert error.path == "f"


@given(st.binary(max_size=200))
def test_random_bytes(data):
    survives(data)
    survives(b"Obj\x01" + data)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=11), st.integers(0, 4)), max_size=3),
    end=st.integers(0, 20) | st.none(),
)
def test_damaged_files(seed, edits, end):
    data = bytearray(seed)
    for position, insert, cut in edits:
        start = position % len(data)
        data[start : start + cut] = insert
    survives(bytes(data if end is None else data[: -end - 1]))


@settings(max_examples=300, deadline=None)
@given(
    rows=st.integers(0, 40),
    payload=st.binary(max_size=60),
    edit=st.integers(0, 10**6),
    byte=st.integers(0, 255),
)
def test_damaged_rows(rows, payload, edit, byte):
    """Damage behind the compression, where no checksum helps."""
    header = read_header(SEEDS[0], path="f")
    (first, *_) = read_blocks(SEEDS[0], header, path="f")
    damaged = bytearray(first.payload)
    damaged[edit % len(damaged)] = byte
    survives(oracle.frame(header.schema, [(first.rows, bytes(damaged))]))
    survives(oracle.frame(header.schema, [(rows, payload)]))
