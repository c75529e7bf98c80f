"""What the sources of a stream are called, by what its checkpoint holds."""

import itertools
import json

import pytest

from anabranch.lineage.model import SourceInput
from anabranch.lineage.spark_offsets import BatchOffsets, inputs_between
from anabranch.spark.lineage.checkpoint import common_folder, describe, source_names
from anabranch.storage.open import open_storage
from tests.support.faults import FaultyStorage, fail

_names = itertools.count()


@pytest.fixture
def checkpoint():
    return open_storage(f"memory://source-names{next(_names)}")


def log(checkpoint, source, batch, *paths):
    lines = ["v1", *(json.dumps({"path": path, "timestamp": 1, "batchId": 0}) for path in paths)]
    checkpoint.put(f"sources/{source}/{batch}", "\n".join(lines).encode())


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["file:///data/in/a.json"], "file:/data/in"),
        (["file:///data/in/a.json", "file:///data/in/b/c.json"], "file:/data/in"),
        (["file:///data/in/dt=1/a.json", "file:///data/in/dt=2/a.json"], "file:/data/in"),
        (["file:///data/in/dt=1/a.json"], "file:/data/in"),
        (["file:///data/my%20in/a.json"], "file:/data/my in"),
        (["s3a://bucket/in/a", "s3a://bucket/in/b"], "s3a://bucket/in"),
        (["s3a://bucket/in/a", "s3a://other/in/b"], None),
        (["file:///a.json"], None),
        ([], None),
    ],
)
def test_files_lie_in_a_folder(paths, folder):
    assert common_folder(paths) == folder


def test_a_folder_stays_what_the_first_batch_says(checkpoint):
    log(checkpoint, "0", 0, "file:///data/in/a.json")
    assert source_names(checkpoint, ["0"], []) == {"0": "file:/data/in"}
    checkpoint.delete("sources/0/0")
    log(checkpoint, "0", "9.compact", "file:///data/b.json")
    log(checkpoint, "1", "19.compact", "file:///more/b.json")
    log(checkpoint, "1", "20", "file:///other/b.json")
    assert source_names(checkpoint, ["0", "1"], []) == {"0": "file:/data/in", "1": "file:/more"}


def test_others_are_called_as_spark_calls_them(checkpoint):
    assert source_names(checkpoint, [], ["0", "1"]) == {}
    describe(checkpoint, ["FileStreamSource[file:/x]", "RateStreamV2[rowsPerSecond=1]"])
    log(checkpoint, "0", 0, "file:///data/in/a.json")
    assert source_names(checkpoint, ["0"], ["1"]) == {
        "0": "file:/data/in",
        "1": "RateStreamV2[rowsPerSecond=1]",
    }


def test_names_that_cannot_be_found_are_missing(checkpoint):
    assert source_names(checkpoint, ["0"], []) == {}
    log(checkpoint, "0", 0, "file:///data/in/a.json")
    broken = FaultyStorage(checkpoint, [fail("list")])
    assert source_names(broken, ["0"], []) == {}
    checkpoint.put("anabranch/source-folders.json", b"{")
    assert source_names(checkpoint, ["0"], []) == {}


def test_inputs_carry_the_names_and_say_the_same_without():
    before = BatchOffsets({}, {"0": {"logOffset": 1}, "1": "5", "2": {"t": {"0": 1}}})
    after = BatchOffsets({}, {"0": {"logOffset": 2}, "1": "6", "2": {"t": {"0": 2}}})
    names = {"0": "file:/in", "1": "RateStreamV2", "2": "KafkaV2[Subscribe[t]]"}
    assert inputs_between(before, after, names) == (
        SourceInput("files", "source 0", {"logOffset": 1}, {"logOffset": 2}, "file:/in"),
        SourceInput("unknown", "source 1", "5", "6", "RateStreamV2"),
        SourceInput("kafka", "source 2", {"t": {"0": 1}}, {"t": {"0": 2}}),
    )
