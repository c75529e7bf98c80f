"""What is asked means what it looks like: one name as text, options that exist, moments by their names."""

import sys
import types
from pathlib import Path

import pytest

import anabranch
from anabranch.format.schema.per_use import check_use
from tests.support.tables import make_table, rows

_names = iter(range(1_000))


@pytest.fixture
def table():
    made = anabranch.connect(f"memory://meaning{next(_names)}").create_table(
        "db.t", "a BIGINT, b BIGINT, ab BIGINT, dt STRING, d STRING, t STRING", partition_by="dt"
    )
    made.append([{"a": 1, "b": 2, "ab": 3, "dt": "x"}])
    return made


def test_text_is_one_name(table):
    assert table.schema.partition_keys == ("dt",)
    assert table.scan(columns="ab").to_arrow().schema.names == ["ab"]
    assert table.changes(0, columns="ab").to_arrow().schema.names == ["ab"]
    assert next(iter(table.tail(columns="ab", idle=0))).schema.names == ["ab"]
    assert set(table.diff("main", "main").rows(columns="ab").to_arrow().schema.names) >= {"ab"}
    table.sort_compact("ab")
    with pytest.raises(anabranch.SchemaError, match="'a, b'"):
        table.scan(columns="a, b")


@pytest.mark.parametrize("wrong", [7, ["a", 7], [None]])
def test_what_is_no_name_is_refused(table, wrong):
    with pytest.raises(anabranch.InvalidInputError, match="named by text"):
        table.scan(columns=wrong)
    with pytest.raises(anabranch.InvalidInputError, match="named by text"):
        table.sort_compact(wrong)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("scan.snapshotid", "scan.snapshot-id"),
        ("branche", "branch"),
        ("versionAsOf", "scan.version"),
        ("timestampAsOf", "scan.timestamp"),
        ("SCAN.MODE", "scan.mode"),
        ("target_file_size", "target-file-size"),
        ("scan.filter", "table.scan(filter)"),
        ("no such thing at all", "page of options"),
    ],
)
def test_options_of_one_use_that_nobody_knows(table, option, meant):
    with pytest.raises(anabranch.OptionError) as raised:
        table.with_options({option: "1"})
    assert option in raised.value.message
    assert meant in raised.value.hint


def test_what_spark_hands_over_is_checked_by_the_same_table():
    from anabranch.spark.context.options import spelled

    assert spelled({"SCAN.FILTER": "a = 1", "path": "db.t", "s3.endpoint": "http://x"}) == {
        "scan.filter": "a = 1",
        "path": "db.t",
        "s3.endpoint": "http://x",
    }
    for option, meant in [
        ("scan.filtre", "scan.filter"),
        ("branche", "branch"),
        ("incremental-between", "table.changes"),
        ("querynam", "queryName"),
    ]:
        with pytest.raises(anabranch.OptionError, match=meant):
            spelled({option: "1"})
    assert spelled({"own.of.the.session": "1"}, besides=["own.of.the.session"])
    check_use({"fields.a.stats-mode": "none"})


def test_stored_options_are_kept_unless_they_are_nearly_one_of_ours(table):
    foreign = {
        *("owner", "sink.parallelism", "changelog.num-retained.min", "tag.creation-period-duration"),
        *(
            "file.compression.per.level",
            "compaction.size-ratio",
            "snapshot.clean-empty-directories",
            "k",
            "path2",
        ),
        *("consumer.ignore-progress", "scan.manifest.parallelism", "commit.force-compact", "num-levels"),
    }
    table.alter().set_option(*("owner", "we")).apply()
    lake = anabranch.connect(f"memory://meaning{next(_names)}")
    kept = lake.create_table("db.t", "id BIGINT", options=dict.fromkeys(foreign, "1")).options
    assert foreign <= kept.keys()
    for wrong, meant in [
        ("bukcet", "bucket"),
        ("target-filesize", "target-file-size"),
        ("write_only", "write-only"),
        ("Write-Only", "write-only"),
        ("snapshot.time-retain", "snapshot.time-retained"),
    ]:
        with pytest.raises(anabranch.OptionError, match=f"did you mean '{meant}'"):
            lake.create_table("db.u", "id BIGINT", options={wrong: "1"})
        with pytest.raises(anabranch.OptionError, match=f"did you mean '{meant}'"):
            table.alter().set_option(wrong, "1").apply()


def test_a_tag_in_a_diff_is_one_of_a_branch(table):
    table.create_tag("good")
    for left in ("good", "snapshot.1"):
        with pytest.raises(anabranch.NotFoundError, match=f"write 'main@{left}'"):
            table.diff(left)
    with pytest.raises(anabranch.NotFoundError) as raised:
        table.diff("nothing-of-that-name")
    assert "main@" not in str(raised.value)
    assert not table.diff("main@good")


def test_a_notebook_leaves_text_as_it_is(table, monkeypatch, capsys):
    """Rich asks the running shell what it is in, and prints by itself in a notebook."""
    table.create_tag("good")
    table.append([{"a": 5, "dt": "y"}])
    expected = str(table.diff("main@good"))
    assert "dt=y" in expected

    class ZMQInteractiveShell:
        pass

    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    display = types.ModuleType("IPython.display")
    display.display = lambda *what, **how: print("printed elsewhere")
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert str(table.diff("main@good")) == expected
    assert capsys.readouterr().out == ""


def test_health_and_maintain_agree(tmp_path):
    table = make_table(tmp_path, options={"compaction.max.file-num": "5"})
    for i in range(4):
        table.append(rows(i, 1))
    [finding] = table.health().findings
    for dry_run in (True, False):
        done = table.maintain(dry_run=dry_run)
        assert [f.command for f in done.left] == [finding.command] == ["anabranch compact db.t --full"]
        assert finding.command in str(done)
    table.append(rows(4, 1))
    assert table.health().findings[0].is_upkeep
    assert table.maintain(dry_run=True).left == ()
    assert table.maintain().left == ()
    assert table.health().findings == ()


def test_a_missing_data_file_is_told_as_such(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, 1))
    next(tmp_path.rglob("*.parquet")).unlink()
    assert "is missing: reading fails" in str(table.maintain(dry_run=True))
    for read in (table.scan().to_arrow, lambda: [*table.scan().to_batches()], table.changes(0).to_arrow):
        with pytest.raises(anabranch.NotFoundError, match=r"the data file .*\.parquet does not exist"):
            read()


@pytest.mark.parametrize("form", [str, Path])
def test_a_lake_made_of_a_path_is_sent_to_connect(tmp_path, form):
    with pytest.raises(anabranch.InvalidInputError, match="cannot open a warehouse") as refused:
        anabranch.Lake(form(tmp_path))
    assert f"anabranch.connect({str(tmp_path)!r})" in refused.value.hint
