"""Options, names, checkpoints and sessions: what needs no JVM."""

import pickle
import subprocess
import sys

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

import anabranch.spark
from anabranch.errors import InvalidInputError, NotFoundError, OptionError, UnsupportedFeatureError
from anabranch.lineage.model import Engine
from anabranch.lineage.spark_offsets import BatchOffsets
from anabranch.spark.context.options import spelled, table_options
from anabranch.spark.context.tables import open_table, view_of
from anabranch.spark.lineage.checkpoint import Checkpoint
from anabranch.spark.lineage.lookups import Lookups
from anabranch.spark.lineage.stream_lineage import batch_origin, batch_sources
from anabranch.spark.source.batch import BatchWriter
from anabranch.spark.source.data_source import AnabranchSource, source_with
from anabranch.spark.source.stream_writer import StreamWriter
from tests.support.lengths import first_short
from tests.support.tables import make_table


def test_names_get_their_capitals_back():
    given = {"CHECKPOINTLOCATION": "c", "read.stream.maxfilespertrigger": "5", "bucket": "2", "x.Y": "z"}
    assert spelled(given, besides=["x.Y"]) == {
        "checkpointLocation": "c",
        "read.stream.maxFilesPerTrigger": "5",
        "bucket": "2",
        "x.Y": "z",
    }
    assert table_options(spelled(given, besides=["x.Y"])).keys() == {
        "read.stream.maxFilesPerTrigger",
        "bucket",
        "x.Y",
    }


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("anabranch.jop", "anabranch.job"),
        ("anabranch.code_version", "anabranch.code-version"),
        ("anabranch.entirely-different-thing", "own"),
        ("scan.versoin", "scan.version"),
        ("SCAN.VERSOIN", "scan.version"),
        ("scan.entirely-different-thing", "leave it out"),
    ],
)
def test_unknown_options_of_ours_are_refused_with_a_suggestion(key, hint):
    with pytest.raises(OptionError, match="unknown option") as caught:
        spelled({key: "x"})
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("key", "ours"), [("versionAsOf", "scan.version"), ("timestampasof", "scan.timestamp")]
)
def test_the_moment_of_a_table_of_a_catalog_is_none_of_the_data_source(tmp_path, key, ours):
    make_table(tmp_path)
    with pytest.raises(OptionError, match="tables of a catalog") as caught:
        AnabranchSource({"path": "db.t", "warehouse": str(tmp_path), key: "1"}).schema()
    assert ours in caught.value.hint
    assert spelled({key: "1"}) == {}


def test_a_table_of_sparks_own_catalog_is_refused_by_that_name(tmp_path):
    make_table(tmp_path)
    with pytest.raises(OptionError, match="Spark's own catalog") as caught:
        AnabranchSource({"path": "db.t", "warehouse": str(tmp_path), "owner": "me"}).schema()
    assert "lake.db.t" in caught.value.hint


@pytest.mark.parametrize("kind", [BatchWriter, StreamWriter])
@pytest.mark.parametrize("key", ["scan.tag-name", "scan.version", "scan.timestamp", "scan.watermark"])
def test_a_write_names_no_moment(tmp_path, kind, key):
    table = make_table(tmp_path)
    with pytest.raises(InvalidInputError, match=f"the write names a moment, {key} = '1'") as caught:
        kind.of(table, StructType(), {"path": "db.t", key: "1"}, overwrite=False)
    assert "leave the option out" in caught.value.hint


def test_values_are_checked_before_anything_is_opened():
    with pytest.raises(OptionError, match=r"read\.stream\.maxFilesPerTrigger"):
        spelled({"read.stream.maxfilespertrigger": "none"})


def test_the_options_of_a_session_travel_with_its_source(tmp_path):
    make_table(tmp_path)
    source = cloudpickle.loads(cloudpickle.dumps(source_with({"warehouse": str(tmp_path)})))
    assert source is not AnabranchSource
    opened = pickle.loads(cloudpickle.dumps(source({"path": "db.t"})))
    assert opened.schema().names == ["id", "v"]
    assert AnabranchSource.defaults == {}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, OptionError, "no table is named"),
        ({"path": "db.t"}, OptionError, "without a warehouse"),
        ({"path": "db.t", "warehouse": "memory://x"}, OptionError, "memory of one process"),
        ({"path": "{w}/db.db/other"}, NotFoundError, "'db.other' does not exist"),
        ({"path": "{w}/elsewhere"}, NotFoundError, "no table at"),
        ({"path": "db.t$snapshots", "warehouse": "{w}"}, InvalidInputError, "system table"),
        ({"path": "db.t$branch_a", "branch": "b", "warehouse": "{w}"}, NotFoundError, "branch 'a'"),
        ({"path": "db.t", "branch": "fix", "warehouse": "{w}"}, NotFoundError, "branch 'fix'"),
    ],
)
def test_tables_that_cannot_be_opened(tmp_path, options, error, message):
    make_table(tmp_path)
    with pytest.raises(error, match=message):
        open_table({key: value.format(w=tmp_path) for key, value in options.items()})


def test_a_table_is_found_by_its_path_or_its_name(tmp_path, monkeypatch):
    table = make_table(tmp_path / "w")
    monkeypatch.chdir(tmp_path)
    for options in (
        {"path": "db.t", "warehouse": "w"},
        {"path": "w/db.db/t"},
        {"path": f"file://{tmp_path}/w/db.db/t"},
        {"path": "db.t", "warehouse": str(tmp_path / "w"), "branch": "main"},
    ):
        found = open_table(options)
        assert (found.name, found.table_uuid) == ("db.t", table.table_uuid)
    (tmp_path / "w" / "db.db" / "t").rename(tmp_path / "moved")
    assert open_table({"path": str(tmp_path / "moved")}).table_uuid == table.table_uuid


def test_an_empty_table_can_be_viewed(tmp_path):
    make_table(tmp_path)
    view = view_of({"path": "db.t", "warehouse": str(tmp_path)})
    assert view.snapshot is None
    assert view.plan(view.predicate("id > 3")).splits == []


def test_a_checkpoint_must_be_where_spark_keeps_it(tmp_path):
    with pytest.raises(OptionError, match="checkpointLocation"):
        Checkpoint.of({})
    with pytest.raises(NotFoundError, match="no file 'metadata'") as caught:
        Checkpoint.of({"checkpointLocation": str(tmp_path)})
    assert "absolute path" in caught.value.hint
    with pytest.raises(UnsupportedFeatureError, match="hdfs"):
        Checkpoint.of({"checkpointLocation": "hdfs://host/checkpoint"})
    (tmp_path / "metadata").write_text('{"id":"q-1"}')
    for place in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert Checkpoint.of({"checkpointLocation": place}).query_id == "q-1"


def test_lineage_that_cannot_be_gathered_is_reported_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "metadata").write_text('{"id":"q-1"}')
    checkpoint = Checkpoint.of({"checkpointLocation": str(tmp_path)})

    def found():
        sources = batch_sources(checkpoint, 3, Lookups())
        return batch_origin(sources, "job", "c1", "run", Engine("spark", batch=3)), sources.offsets

    entry, offsets = found()
    assert offsets is None
    assert (entry.job, entry.run, entry.inputs) == ("job", "run", ())
    assert "offsets of batch 3" in entry.problems[0]
    assert "incomplete" in caplog.text
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":7}\n{"logOffset":1}')
    entry, offsets = found()
    assert not entry.knows_positions
    assert (offsets.watermark_millis, entry.code) == (7, "c1")
    assert "offsets of batch 2, where this one begins" in entry.problems[0]
    (tmp_path / "offsets" / "2").write_text("damaged")
    assert found()[0].problems
    assert isinstance(checkpoint.batch_offsets(3), BatchOffsets)


def test_a_missing_java_is_said_before_spark_is_started(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match="no 'java' is on the PATH") as caught:
        anabranch.spark.session(str(tmp_path))
    assert "install Java 17" in caught.value.hint
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="JAVA_HOME is"):
        anabranch.spark.session(str(tmp_path), remote="local[2]")


@pytest.mark.parametrize("module", first_short(["grpc", "grpc_status"]))
def test_without_what_connect_needs_a_program_that_is_no_file_fails_with_words(tmp_path, module):
    """Spark takes such a program for its own documentation's tests, and ends it as if all were well."""
    program = (
        f"import sys; sys.modules['{module}'] = None\n"
        "import anabranch.spark\n"
        f"anabranch.spark.session({str(tmp_path)!r}, remote='sc://localhost:1')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UnsupportedFeatureError: Spark Connect needs the package grpcio" in done.stderr
    assert "pip install 'pyspark[connect]'" in done.stderr
