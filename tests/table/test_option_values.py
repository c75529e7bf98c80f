"""Values that nothing could use afterwards are refused when they are given, before anything is written."""

import pytest

import anabranch
from tests.support.tables import make_table, rows


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    made.append(rows(0, 2))
    return made


def files_of(table, folder):
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("retained", ["999999999999 d", "9223372036854775808 ms", 2**63, -1])
def test_what_is_kept_too_long_to_be_read(table, tmp_path, retained):
    table.create_tag("good")
    before = files_of(table, tmp_path)
    for work in (
        lambda: table.create_tag("a", retained=retained),
        lambda: table.replace_tag("good", retained=retained),
        lambda: table.create_branch("b", "good", retained=retained),
    ):
        with pytest.raises(anabranch.InvalidInputError, match="kept"):
            work()
        assert files_of(table, tmp_path) == before
    table.create_tag("b", retained="9223372036854775807 ms")
    assert table.tag("b").scan().count() == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tag.default-time-retained", "999999999999 d"),
        ("snapshot.time-retained", "999999999999 d"),
        ("source.split.open-file-cost", "9999999 TB"),
        ("source.split.target-size", "9999999 TB"),
        ("target-file-size", "9999999 TB"),
        ("file.compression.zstd-level", "2147483648"),
        ("file.compression.zstd-level", "99"),
        ("file.compression", "x"),
        ("metadata.stats-mode", "a,b"),
        ("metadata.stats-mode", "truncate(0)"),
        ("manifest.merge-min-count", "99999999999999999999999"),
    ],
)
def test_values_of_options_that_nothing_could_use(table, tmp_path, key, value):
    before = files_of(table, tmp_path)
    with pytest.raises(anabranch.OptionError, match=key):
        table.alter().set_option(key, value).apply()
    with pytest.raises(anabranch.OptionError, match=key):
        anabranch.connect(str(tmp_path)).create_table("other.t", "id INT", options={key: value})
    assert files_of(table, tmp_path) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [("file.compression", "LZ4"), ("file.compression", "uncompressed"), ("file.compression.zstd-level", "22"),
     ("file.compression.zstd-level", "-5"), ("metadata.stats-mode", "Truncate(7)"), ("target-file-size", "8 TB")],
)  # fmt: skip
def test_values_at_the_bounds_are_used(table, key, value):
    table.alter().set_option(key, value).apply()
    table.append(rows(2, 2))
    assert table.scan().count() == 4


@pytest.mark.parametrize("found", ["orc", "avro"])
def test_a_format_of_files_that_is_only_read(table, tmp_path, found):
    """No append could write it, so nobody makes a table of it."""
    before = files_of(table, tmp_path)
    for work in (
        lambda: anabranch.connect(str(tmp_path)).create_table(
            "db.u", "id INT", options={"file.format": found}
        ),
        lambda: table.alter().set_option("file.format", found).apply(),
    ):
        with pytest.raises(anabranch.UnsupportedFeatureError, match=f"{found}.*parquet"):
            work()
        assert files_of(table, tmp_path) == before
    table.alter().set_option("file.format", "parquet").apply()
