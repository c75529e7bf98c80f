"""The numbers that say whether a write has enough tasks, and what is told of them."""

import logging

import pyarrow as pa
import pytest

from anabranch.errors import OptionError
from anabranch.kernel.commit.commit_message import CommitMessage, WriteLoad, load_limit, load_warning
from anabranch.options import check_options
from tests.support.tables import make_table


def messages(*places):
    return [CommitMessage(bytes([partition]), bucket, -1, ()) for partition, bucket in places]


@pytest.mark.parametrize(
    ("load", "options", "warns"),
    [
        (WriteLoad(99, 1, 1), {}, False),
        (WriteLoad(100, 1, 1), {}, True),
        (WriteLoad(25, 4, 1), {}, True),
        (WriteLoad(400, 1, 4), {}, True),
        (WriteLoad(399, 1, 4), {}, False),
        (WriteLoad(50, 1, 1), {"write-only": "true"}, True),
        (WriteLoad(49, 1, 1), {"write-only": "true"}, False),
        (WriteLoad(50, 1, 1), {"write-only": "true", "sink.writers-per-task.warn": "60"}, False),
        (WriteLoad(10, 1, 1), {"sink.writers-per-task.warn": "10"}, True),
        (WriteLoad(10**6, 1, 1), {"sink.writers-per-task.warn": "0"}, False),
        (WriteLoad(400, 1, 8, found=120.0), {}, True),
        (WriteLoad(400, 1, 8, found=80.5), {}, False),
    ],
)
def test_when_it_warns(load, options, warns):
    assert (load_warning(load, "db.t", options) is not None) == warns


def test_the_warning_has_the_numbers_and_the_remedy():
    text = load_warning(WriteLoad(2_000, 4, 8), "db.t", {})
    assert "'db.t': 2,000 partitions x 4 buckets / 8 tasks = 1,000 buckets" in text
    assert "100" in text
    assert "'sink.writers-per-task.warn'" in text
    assert "at least 81 tasks" in text
    assert "cluster" not in text
    assert WriteLoad(2_000, 4, 81).per_task < 100
    assert WriteLoad(2_000, 4, 80).per_task >= 100


def test_rows_that_were_not_clustered_are_told_of():
    text = load_warning(WriteLoad(300, 1, 6, found=299.5), "db.t", {})
    assert "= 50 buckets" in text
    assert "in fact each wrote 300 (" not in text
    assert "anabranch.spark.cluster" in text
    assert "at least" not in text


def test_the_numbers_of_a_write_come_from_its_messages():
    clustered = [messages((1, 0), (1, 1)), messages((2, 0), (2, 1), (3, 0), (3, 1)), []]
    load = WriteLoad.of_messages(clustered)
    assert (load.partitions, load.buckets, load.tasks, load.per_task, load.found) == (3, 2, 3, 2, 3)
    spread = [messages((1, 0), (2, 0)), messages((1, 0), (2, 0)), messages((2, 0), (1, 0))]
    load = WriteLoad.of_messages(spread)
    assert (load.partitions, load.buckets, load.tasks, load.found) == (2, 1, 3, 2)
    assert WriteLoad.of_messages([]).per_task == 0
    assert load_warning(WriteLoad.of_messages([[], []]), "db.t", {}) is None


def test_the_limit_must_be_a_number():
    assert load_limit({}) == 100
    with pytest.raises(OptionError):
        check_options({"sink.writers-per-task.warn": "many"})
    with pytest.raises(OptionError):
        check_options({"sink.writers-per-task.warn": "-1"})


def test_the_python_engine_gives_the_same_advice(caplog):
    table = make_table(
        "memory://load",
        schema="id BIGINT, p INT",
        partition_by=["p"],
        options={"sink.writers-per-task.warn": "5"},
    )
    with caplog.at_level(logging.WARNING):
        table.append(pa.table({"id": range(4), "p": pa.array(range(4), pa.int32())}))
        assert "buckets to write" not in caplog.text
        table.append(pa.table({"id": range(5), "p": pa.array(range(5), pa.int32())}))
    assert "'db.t': 5 partitions x 1 bucket / 1 task = 5 buckets to write for each task" in caplog.text
