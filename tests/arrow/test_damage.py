"""Damaged data files: every flipped bit is noticed or harmless, and no footer ends the process."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch
from anabranch.arrow.parquet_footer import KEY
from anabranch.errors import CorruptTableError
from tests.support.hostile import bad, survive
from tests.support.lengths import first_short
from tests.support.tables import make_table

COLUMNS = "id BIGINT NOT NULL, v STRING, f DOUBLE, b BOOLEAN, t TIMESTAMP(9), l ARRAY<INT>"
COUNT = 400


def _rows(count=COUNT):
    numbers = range(count)
    return pa.table(
        {
            "id": pa.array([i * 7919 % 1000 for i in numbers], pa.int64()),
            "v": [f"x{i % 37}" for i in numbers],
            "f": [i / 7 for i in numbers],
            "b": [None if i % 5 == 0 else i % 2 == 0 for i in numbers],
            "t": pa.array([i * 10**9 + i for i in numbers], pa.timestamp("ns")),
            "l": pa.array([[i, i + 1] for i in numbers], pa.list_(pa.int32())),
        }
    )


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A table of one file, and where that is."""
    folder = tmp_path_factory.mktemp("damage")
    make_table(folder, schema=COLUMNS).append(_rows())
    (path,) = folder.rglob("data-*.parquet")
    return folder, path, path.read_bytes()


def _footer_start(data):
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _flip(data, *bits):
    changed = bytearray(data)
    for bit in bits:
        changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def _read(folder):
    table = anabranch.connect(str(folder)).table("db.t")
    whole = table.scan().to_arrow()
    # One column alone has no other beside it that would have to be as long.
    alone = [table.scan(columns=[name]).to_arrow() for name in whole.column_names]
    some = table.scan("id >= 500").to_arrow()
    return whole, alone, some


def read_with_flips(item):
    """``same`` or ``wrong`` for a file with flipped bits; raises what reading it raises."""
    folder, path, data, bits = item
    with open(path, "wb") as file:
        file.write(_flip(data, *bits))
    whole, alone, some = _read(folder)
    right = _rows().cast(whole.schema)
    same = (
        whole.equals(right)
        and all(column.equals(right.select(column.column_names)) for column in alone)
        and some.sort_by("id").equals(right.filter(pa.compute.field("id") >= 500).sort_by("id"))
    )
    return "same" if same else "wrong"


def _check_every_flip_is_noticed_or_harmless(pristine, bits):
    folder, path, data = pristine
    try:
        outcomes = survive(read_with_flips, [(str(folder), str(path), data, (bit,)) for bit in bits])
    finally:
        path.write_bytes(data)
    assert not bad(outcomes), bad(outcomes)[:3]
    assert [o.item[3] for o in outcomes if o.value == "wrong"] == []
    for outcome in outcomes:
        if outcome.kind == "refused":
            assert outcome.value[0] == "CorruptTableError"
            assert path.name in outcome.value[2]
    return outcomes


@pytest.mark.long
def test_a_flipped_bit_anywhere_in_a_data_file_is_noticed_or_harmless(pristine):
    bits = random.Random(1).sample(range(8 * len(pristine[2])), 120)
    outcomes = _check_every_flip_is_noticed_or_harmless(pristine, bits)
    assert sum(o.kind == "refused" for o in outcomes) > 90


@pytest.mark.long
def test_every_flipped_bit_of_a_data_file_is_noticed_or_harmless(pristine):
    _check_every_flip_is_noticed_or_harmless(pristine, range(8 * len(pristine[2])))


def _footer_flips(data, seed, count):
    """Bits of the footer, but those of the key of its checksum, without which there is none."""
    random_ = random.Random(seed)
    key = data.rfind(KEY)
    mark = range(8 * key, 8 * (key + len(KEY) + 2) if key >= 0 else 0)
    bits = [bit for bit in range(8 * _footer_start(data), 8 * (len(data) - 8)) if bit not in mark]
    return [tuple(random_.sample(bits, random_.choice([1, 2, 4, 16]))) for _ in range(count)]


@pytest.mark.long
def test_damaged_footers_are_clear_errors(pristine):
    folder, path, data = pristine
    flips = _footer_flips(data, 2, 300)
    try:
        outcomes = survive(read_with_flips, [(str(folder), str(path), data, bits) for bits in flips])
    finally:
        path.write_bytes(data)
    for outcome in outcomes:
        assert outcome.kind == "refused", outcome
        assert outcome.value[0] == "CorruptTableError"
        assert path.name in outcome.value[2]


@pytest.mark.parametrize("count", first_short([100, 300]))
def test_damaged_footers_without_a_checksum_end_no_process(pristine, count):
    """Files of other writers: some damage cannot be noticed there, but none does harm."""
    folder, path, data = pristine
    foreign = data.replace(KEY, b"x" * len(KEY))
    assert foreign != data
    flips = _footer_flips(foreign, 3, count)
    try:
        outcomes = survive(read_with_flips, [(str(folder), str(path), foreign, bits) for bits in flips])
    finally:
        path.write_bytes(data)
    assert not bad(outcomes), bad(outcomes)[:3]
    for outcome in outcomes:
        if outcome.kind == "refused":
            assert outcome.value[0] in {"CorruptTableError", "UnsupportedFeatureError"}
            assert path.name in outcome.value[2]


def _page_bit(data):
    """A bit in the middle of the pages of a file."""
    return 8 * (_footer_start(data) // 2)


def test_pages_have_checksums_unless_the_table_wants_none(tmp_path):
    for name, options in {"db.checked": {}, "db.bare": {"file.checksum": "false"}}.items():
        make_table(tmp_path, name, COLUMNS, options=options).append(_rows())
    sizes = {}
    for path in tmp_path.rglob("data-*.parquet"):
        data = path.read_bytes()
        sizes["checked" if "checked" in str(path) else "bare"] = len(data)
        with pytest.raises(OSError, match="CRC") if "checked" in str(path) else _nothing_of("CRC"):
            pq.ParquetFile(
                pa.BufferReader(_flip(data, _page_bit(data))), page_checksum_verification=True
            ).read()
    assert sizes["checked"] > sizes["bare"]


class _nothing_of:
    """Passes over whatever is raised but what has a word in it."""

    def __init__(self, word):
        self.word = word

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return error is None or self.word not in str(error)


def _with_silent_flip(tmp_path, **options):
    """A table of one file of numbers that are stored as they are, one bit of them flipped."""
    table = make_table(tmp_path, schema="n BIGINT", options={"file.compression": "none", **options})
    table.append(pa.table({"n": pa.array([i * 1_000_003 for i in range(1000)], pa.int64())}))
    (path,) = tmp_path.rglob("data-*.parquet")
    path.write_bytes(_flip(path.read_bytes(), _page_bit(path.read_bytes())))
    return anabranch.connect(str(tmp_path)).table("db.t"), path


def test_a_flipped_bit_is_told_with_the_file_and_a_way_out(tmp_path):
    table, path = _with_silent_flip(tmp_path)
    with pytest.raises(CorruptTableError, match="CRC") as caught:
        table.scan().to_arrow()
    assert caught.value.path.endswith(path.name)
    with pytest.raises(CorruptTableError, match="CRC"):
        list(table.scan().to_batches())
    with pytest.raises(CorruptTableError, match="CRC"):
        table.changes(0).to_arrow()


def test_reads_check_no_checksums_where_the_option_says_so(tmp_path):
    table, _ = _with_silent_flip(tmp_path)
    table.alter().set_option("file.checksum", "false").apply()
    assert len(table.scan().to_arrow()) == 1000
    assert len(table.changes(0).to_arrow()) == 1000


@pytest.mark.parametrize("checked", ["true", "false"])
def test_compaction_never_carries_a_flipped_bit_on(tmp_path, checked):
    table, path = _with_silent_flip(tmp_path)
    table.alter().set_option("file.checksum", checked).apply()
    for _ in range(5):
        table.append(pa.table({"n": pa.array([1], pa.int64())}))
    before = table.snapshot.id
    for rewriting in (lambda: table.compact(full=True), lambda: table.sort_compact(by=["n"])):
        with pytest.raises(CorruptTableError, match="CRC") as caught:
            rewriting()
        assert caught.value.path.endswith(path.name)
    assert table.snapshot.id == before
