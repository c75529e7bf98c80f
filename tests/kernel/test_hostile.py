"""Damaged or hostile metadata gives a clear error that names the file, in bounded time and memory."""

import itertools
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows

_numbers = itertools.count()
REFUSALS = (anabranch.CorruptTableError, anabranch.UnsupportedFeatureError, anabranch.NotFoundError)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pristine")
    table = make_table(folder, schema="id BIGINT, v STRING, p STRING", partition_by=["p"])
    for i in range(3):
        table.append(rows(i, 2).append_column("p", [["x", "y"]]))
    return folder


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


def _fresh_copy(pristine, scratch):
    """A copy in a folder never used before: manifests are cached by the place they were read from."""
    for old in scratch.iterdir():
        shutil.rmtree(old)
    return shutil.copytree(pristine, scratch / f"copy-{next(_numbers)}")


def _victims(folder):
    root = folder / "db.db" / "t"
    return [p for kind in ("schema", "snapshot", "manifest") for p in sorted((root / kind).iterdir())]


def _read_all(folder):
    table = anabranch.connect(str(folder)).table("db.t")
    return table.scan("id > 0").to_arrow().num_rows + table.scan().to_arrow().num_rows


def _damage_bytes(data, pristine, scratch):
    copy = _fresh_copy(pristine, scratch)
    victim = data.draw(st.sampled_from(_victims(copy)))
    content = bytearray(victim.read_bytes())
    match data.draw(st.sampled_from(["flip", "cut", "junk", "insert"])):
        case "flip":
            for _ in range(data.draw(st.integers(1, 4))):
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        case "cut":
            content = content[: data.draw(st.integers(0, len(content)))]
        case "junk":
            content = bytearray(data.draw(st.binary(max_size=200)))
        case "insert":
            at = data.draw(st.integers(0, len(content)))
            content[at:at] = data.draw(st.binary(min_size=1, max_size=20))
    victim.write_bytes(bytes(content))
    try:
        _read_all(copy)
    except REFUSALS as error:
        assert str(error)


def _values():
    leaf = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=10),
        st.sampled_from(["../../etc/passwd", "/etc/passwd", "a/b", "..", "\x00", "x" * 5000]),
    )  # fmt: skip
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )


def _mutate_json(data, pristine, scratch):
    copy = _fresh_copy(pristine, scratch)
    victim = data.draw(
        st.sampled_from([p for p in _victims(copy) if p.parent.name != "manifest" and "-" in p.name])
    )
    content = json.loads(victim.read_text())
    (content.get("properties") or {}).pop(
        "anabranch.checksum", None
    )  # so that more than the checksum is asked
    key = data.draw(st.sampled_from(sorted(content)))
    if data.draw(st.booleans()):
        del content[key]
    else:
        content[key] = data.draw(_values())
    victim.write_text(json.dumps(content))
    try:
        _read_all(copy)
    except REFUSALS as error:
        assert str(error)


DAMAGES = pytest.mark.parametrize("damage", first_short([_damage_bytes, _mutate_json]), ids=["bytes", "json"])


@DAMAGES
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_what_is_damaged_is_refused_or_harmless(damage, data, pristine, scratch):
    damage(data, pristine, scratch)


@pytest.mark.long
@DAMAGES
@settings(max_examples=2_000, deadline=None)
@given(data=st.data())
def test_much_that_is_damaged_is_refused_or_harmless(damage, data, pristine, scratch):
    damage(data, pristine, scratch)


@pytest.mark.parametrize(
    ("kind", "name"), [("schema", "schema-0"), ("snapshot", "snapshot-3"), ("manifest", None)], ids=str
)
def test_the_damaged_file_is_named(pristine, tmp_path, kind, name):
    copy = tmp_path / "copy"
    shutil.copytree(pristine, copy)
    folder = copy / "db.db" / "t" / kind
    victim = folder / name if name else next(p for p in folder.iterdir() if "list" in p.name)
    for path in [victim] if name else [p for p in folder.iterdir() if "list" in p.name]:
        path.write_bytes(b"garbage")
    with pytest.raises(anabranch.CorruptTableError, match=kind):
        _read_all(copy)


def test_a_missing_data_file_is_named(pristine, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(pristine, copy)
    victim = next((copy / "db.db" / "t").rglob("data-*"))
    victim.unlink()
    with pytest.raises((anabranch.CorruptTableError, anabranch.NotFoundError), match=victim.name):
        _read_all(copy)


def test_hints_are_never_trusted(pristine, tmp_path):
    for i, hint in enumerate([b"", b"99", b"1", b"x", b"-3", b"9" * 40, b"2\n", b"\xff"]):
        copy = tmp_path / str(i)
        shutil.copytree(pristine, copy)
        for name in ("LATEST", "EARLIEST"):
            (copy / "db.db" / "t" / "snapshot" / name).write_bytes(hint)
        table = anabranch.connect(str(copy)).table("db.t")
        assert table.snapshot.id == 3
        assert table.append(rows(9, 1).append_column("p", [["x"]])).id == 4


BAD_NAMES = ["", " ", ".", "..", "a/b", "a\\b", "../x", "a\x00b", "a\nb", "x" * 300, ".hidden"]


@pytest.mark.parametrize("bad", BAD_NAMES, ids=repr)
def test_bad_names_are_refused_before_anything_is_written(tmp_path, bad):
    lake = anabranch.connect(str(tmp_path / "lake"))
    with pytest.raises(anabranch.InvalidNameError):
        lake.create_database(bad)
    with pytest.raises(anabranch.InvalidNameError):
        lake.create_table(f"db.{bad}", "id INT")
    with pytest.raises(anabranch.InvalidNameError):
        lake.create_table(f"{bad}.t", "id INT")
    if bad.strip() in ("", "..", ".") or any(c in bad for c in "\x00\n"):
        with pytest.raises(anabranch.InvalidInputError):
            lake.create_table("db.t", anabranch_schema(bad))
    assert not Path(tmp_path / "lake").exists() or not any((tmp_path / "lake").iterdir())


def anabranch_schema(name):
    import pyarrow as pa

    return pa.schema([(name, pa.int32())])


@pytest.mark.parametrize(
    ("options", "columns", "feature"),
    [
        ({"bucket": "0"}, "id INT", None),
        ({"bucket": "-2"}, "id INT", None),
        ({"bucket": "2"}, "id INT", None),
        ({"bucket-key": "id"}, "id INT", None),
        ({"bucket": "2", "bucket-key": "nope"}, "id INT", None),
        ({"bucket": "many"}, "id INT", None),
        ({"anabranch.nonsense": "1"}, "id INT", None),
        ({"primary-key": "id"}, "id INT", "primary-key"),
        ({"deletion-vectors.enabled": "true"}, "id INT", "deletion-vectors"),
        ({"row-tracking.enabled": "true"}, "id INT", None),
    ],
    ids=str,
)
def test_tables_we_could_not_serve_are_not_made(tmp_path, options, columns, feature):
    lake = anabranch.connect(str(tmp_path / "lake"))
    with pytest.raises((anabranch.InvalidInputError, anabranch.UnsupportedFeatureError)) as caught:
        lake.create_table("db.t", columns, options=options)
    if feature is not None:
        assert getattr(caught.value, "feature", None) == feature
    assert not (tmp_path / "lake" / "db.db" / "t").exists()
