"""Rows that Polars' own reader gives are those that Arrow gives; what it must not see is read by Arrow."""

import datetime as dt
import os
import random
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch
from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.frames import polars_frame

COLUMNS = (
    "id BIGINT NOT NULL, flag BOOLEAN, tiny TINYINT, small SMALLINT, n INT, f FLOAT, x DOUBLE, s STRING, b BYTES, day DATE, "
    "ms TIMESTAMP(3), us TIMESTAMP(6), z TIMESTAMP_LTZ(6), d DECIMAL(20, 3), nested ARRAY<INT>"
)
FLAT = ["id", "flag", "tiny", "small", "n", "f", "x", "s", "b", "day", "ms", "us", "z"]
ROWS = 25_000
"""Of which `id` and `b` take more than a megabyte in a file."""


def any_rows(seed, count=ROWS):
    chance = random.Random(seed)
    noise = chance.randbytes

    def column(make, null=0.1):
        return [None if chance.random() < null else make() for _ in range(count)]

    odd = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324]
    texts = ["", "a", "ä€😀", "x" * 300, "'", "\x00"]
    moment = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": pa.array([chance.getrandbits(63) for _ in range(count)], pa.int64()),
            "flag": pa.array(column(lambda: chance.random() < 0.5), pa.bool_()),
            "tiny": pa.array(column(lambda: chance.randint(-128, 127)), pa.int8()),
            "small": pa.array(column(lambda: chance.randint(-(2**15), 2**15 - 1)), pa.int16()),
            "n": pa.array(column(lambda: chance.randint(-(2**31), 2**31 - 1)), pa.int32()),
            "f": pa.array(column(lambda: chance.choice([*odd[:5], chance.random()])), pa.float32()),
            "x": pa.array(column(lambda: chance.choice([*odd, chance.random()])), pa.float64()),
            "s": column(lambda: chance.choice([*texts, noise(4).hex()])),
            "b": pa.array(column(lambda: noise(chance.randint(0, 90))), pa.binary()),
            "day": column(lambda: dt.date.fromordinal(chance.randint(1, 3_652_059))),
            "ms": pa.array(column(lambda: chance.randint(-(10**13), 10**13)), pa.timestamp("ms")),
            "us": pa.array(column(lambda: chance.randint(-(10**16), 10**16)), pa.timestamp("us")),
            "z": pa.array(
                column(lambda: moment + dt.timedelta(seconds=chance.random() * 1e8)),
                pa.timestamp("us", "UTC"),
            ),
            "d": pa.array([None] * count, pa.decimal128(20, 3)),
            "nested": pa.array([[1, None]] * count, pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    """Two large files, and a small one between them."""
    home = tmp_path_factory.mktemp("lake")
    table = anabranch.connect(str(home)).create_table("db.t", COLUMNS)
    for seed, count in ((1, ROWS), (2, 30), (3, ROWS)):
        table.append(any_rows(seed, count))
    return home


@pytest.fixture
def table(warehouse):
    return anabranch.connect(str(warehouse)).table("db.t")


@pytest.fixture
def direct(monkeypatch):
    """A one for each file that Polars read."""
    calls = []
    read = pl.read_parquet
    monkeypatch.setattr(pl, "read_parquet", lambda file, **how: calls.append(1) or read(file, **how))
    return calls


def check_same(scan):
    found = scan.to_polars()
    wanted = pl.from_arrow(scan.to_arrow())
    assert found.schema == wanted.schema
    assert found.equals(wanted), "rows and their order"
    for name in [name for name in ("f", "x") if name in found.columns]:
        # 0.0 and -0.0 are equal
        assert (1 / found[name]).equals(1 / wanted[name])


def test_all_types_in_the_order_of_the_files(table, direct):
    check_same(table.scan(columns=FLAT))
    assert direct == [1, 1]
    check_same(table.scan(columns=["s", "id", "z"]))
    assert len(direct) == 4


def test_what_arrow_must_read(table, direct):
    check_same(table.scan())
    check_same(table.scan("n > 0", columns=FLAT))
    check_same(table.scan(columns=FLAT, limit=20_000))
    check_same(table.scan(columns=["id", "_file"]))
    assert table.scan(columns=[]).to_polars().width == 0
    assert direct == []


def test_columns_that_changed(tmp_path, direct):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "a BIGINT, b BYTES, c INT")
    rows = any_rows(5).select(["id", "b", "n"]).rename_columns(["a", "b", "c"])
    table.append(rows)
    table.alter().rename_column("a", "b2").rename_column("b", "a").apply()
    table.append(rows.rename_columns(["b2", "a", "c"]))
    check_same(table.scan())
    assert direct == [1, 1], "two files by two sets of names"
    table.alter().add_column("e", "INT").apply()
    table.alter().widen_column("c", "BIGINT").apply()
    check_same(table.scan(columns=["b2", "a"]))
    assert direct == [1, 1, 1, 1]
    check_same(table.scan(columns=["c"]))
    check_same(table.scan(columns=["e"]))
    assert direct == [1, 1, 1, 1]


def test_partitions_tags_and_branches(tmp_path, direct):
    table = anabranch.connect(str(tmp_path)).create_table(
        "db.t", "p STRING, id BIGINT, b BYTES", partition_by=["p"]
    )
    rows = any_rows(6).select(["id", "b"])
    for p in ("x=1/é %20", "b"):
        table.append(rows.append_column("p", pa.array([p] * len(rows))))
    table.create_tag("before")
    table.overwrite(rows.slice(0, 20).append_column("p", pa.array(["b"] * 20)))
    check_same(table.scan("p = 'b'"))
    check_same(table.scan())
    check_same(table.at("before").scan())
    assert direct == [1, 1, 1]


@pytest.fixture
def single(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, b BYTES, s STRING")
    table.append(any_rows(7).select(["id", "b", "s"]))
    return table


def test_a_flipped_bit_is_never_a_value(single, tmp_path, direct):
    wanted = single.scan().to_polars()
    assert direct == [1]
    (path,) = tmp_path.glob("db.db/t/bucket-*/*.parquet")
    whole = path.read_bytes()
    chance = random.Random(8)
    failed = 0
    for position in [4, *range(5, 60), *(chance.randrange(len(whole)) for _ in range(60))]:
        harmed = bytearray(whole)
        harmed[position] ^= 1 << chance.randrange(8)
        path.write_bytes(harmed)
        try:
            found = single.scan().to_polars()
        except AnabranchError as error:
            assert isinstance(error, CorruptTableError)
            failed += 1
        else:
            assert found.equals(wanted)
    assert failed > 60
    path.write_bytes(whole[:-100])
    with pytest.raises(CorruptTableError):
        single.scan().to_polars()


def test_files_without_checksums_are_read_by_arrow(single, tmp_path, direct):
    (path,) = tmp_path.glob("db.db/t/bucket-*/*.parquet")
    rows = pq.read_table(path).replace_schema_metadata(None)
    pq.write_table(rows, path, compression="zstd", write_page_checksum=True)
    check_same(single.scan())
    pq.write_table(rows, path, compression="zstd")
    check_same(single.scan())
    assert direct == []


@pytest.mark.long
def test_many_files_are_not_all_open(tmp_path, monkeypatch, direct):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, b BYTES")
    for seed in range(5):
        table.append(any_rows(seed).select(["id", "b"]))
    opened, most = [], []
    open_here = polars_frame.open_here

    def watched(*how):
        opened.append(open_here(*how))
        most.append(sum(not file.closed for file in opened))
        return opened[-1]

    monkeypatch.setattr(polars_frame, "open_here", watched)
    check_same(table.scan())
    assert direct == [1] * 5
    assert max(most) <= polars_frame.available_cores()
    assert all(file.closed for file in opened)


def test_names_that_polars_takes_for_patterns(tmp_path, direct):
    """Another column was given, or a raw error."""
    rows = any_rows(9).select(["b", "id", "n"]).rename_columns(["^x.*$", "x1", "*"])
    table = anabranch.connect(str(tmp_path)).create_table("db.t", data=rows)
    for columns in (["^x.*$"], ["*"], ["*", "^x.*$"], None):
        check_same(table.scan(columns=columns))
    assert direct == []
    table.alter().rename_column("^x.*$", "plain").rename_column("x1", "^plain$").apply()
    check_same(table.scan(columns=["plain"]))
    check_same(table.scan(columns=["^plain$"]))
    assert direct == []


@pytest.mark.long
def test_few_files_may_be_open(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, b BYTES")
    for seed in range(24):
        table.append(any_rows(seed % 3).select(["id", "b"]))
    code = (
        "import resource, sys, anabranch; t = anabranch.connect(sys.argv[1]).table('db.t'); t.scan().to_arrow(); "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2); print(t.scan().to_polars().height)"
    )
    for most in (40, 60, 80, 100):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(most)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.strip() == str(24 * ROWS), done.stderr[-2_000:]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a link look like somebody else's")
def test_a_link_that_is_planted_after_the_footer_was_read_is_not_followed(tmp_path, monkeypatch):
    lake = anabranch.connect(str(tmp_path))
    for name in ("db.private", "db.shared"):
        lake.create_table(name, "id BIGINT, b BYTES").append(any_rows(10).select(["id", "b"]))
    (secret,), (shared,) = (
        tmp_path.glob(f"db.db/{name}/bucket-*/*.parquet") for name in ("private", "shared")
    )
    stored = polars_frame._stored_names

    def plant(*how):
        if not shared.is_symlink():
            shared.unlink()
            shared.symlink_to(secret)
            os.chown(shared, 4321, 4321, follow_symlinks=False)
        return stored(*how)

    monkeypatch.setattr(polars_frame, "_stored_names", plant)
    with pytest.raises(anabranch.StorageError, match="not followed"):
        lake.table("db.shared").scan().to_polars()
