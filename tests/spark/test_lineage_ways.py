"""Whatever way rows are written, the commit says where they come from, or that it does not know: nothing is missed silently."""

import pytest

import anabranch
from anabranch.lineage.joining import made_of
from anabranch.lineage.model import TableInput, lineage_of
from anabranch.lineage.store import kind_of
from anabranch.spark.catalog import register_catalog
from anabranch.storage.open import open_storage
from tests.spark import lineage_ways_of_batches, lineage_ways_of_streams, lineage_ways_of_values
from tests.spark.lineage_ways import COLUMNS, WAYS, Ways

_DECLARING = (lineage_ways_of_batches, lineage_ways_of_streams, lineage_ways_of_values)  # which declare them


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ways")


@pytest.fixture(scope="module")
def lake(spark, folder):
    place = str(folder / "warehouse")
    register_catalog(spark, "ways", {"warehouse": place})
    lake = anabranch.Lake(open_storage(place), spark=spark)
    for name in ("a", "b"):
        table = lake.create_table(f"db.{name}", COLUMNS)
        table.append([{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
        table.append([{"id": 3, "v": "x"}])
    lake.table("db.a").create_tag("good", snapshot=1)
    lake.table("db.a").create_branch("side", "good")
    spark.sql("SELECT 1L AS id, 'x' AS v").write.parquet(str(folder / "files"))
    return lake


def names(entry):
    return {i.name if isinstance(i, TableInput) else kind_of(i) for i in made_of(entry)}


def test_there_are_enough_ways():
    assert len(WAYS) >= 60
    assert sum(way.short for way in WAYS) >= 12


@pytest.mark.parametrize(
    "way", [pytest.param(w, id=w.name, marks=() if w.short else (pytest.mark.long,)) for w in WAYS]
)
def test_the_commit_says_what_its_rows_were_made_of(way, spark, lake, folder):
    sink = f"db.{way.name}"
    lake.create_table(sink, COLUMNS)
    way.make(Ways(spark, lake, str(folder / "warehouse"), sink, folder))
    table = lake.table(sink)
    commits = [s for s in table.snapshots() if s.delta_record_count]
    assert commits, "it wrote no rows"
    entries = [lineage_of(s.properties, where=f"snapshot {s.id}") for s in commits]
    if not (way.silent and None in entries):
        assert None not in entries
        named = set().union(*map(names, entries))
        problems = [problem for entry in entries for problem in entry.problems]
        assert bool(problems) == way.problem, problems
        assert named >= way.reads
        assert way.problem or named == way.reads
        # What it read is found from there on, or listed as what may belong.
        read = next((name for name in way.reads if name in ("db.a", "db.b")), None)
        if read is not None:
            assert sink in lake.table(read).lineage.impact("1").tables
    if way.problem or way.silent:
        unknown = {found.table for found in lake.table("db.a").lineage.impact("2").unknown}
        trace = lake.table("db.a").lineage.impact("2")
        assert sink in unknown or sink in trace.tables
