"""Jobs are declared without Spark, and a wrong declaration says where and what."""

import subprocess
import sys

import pytest

import anabranch
from anabranch.errors import InvalidInputError, InvalidNameError, OptionError
from anabranch.jobs.trigger import Trigger


def declare(name="clean", *, function=lambda raw: raw, sources=None, sink="db.orders", **how):
    return anabranch.job(name, sources=sources or {"raw": "db.raw"}, sink=sink, **how)(function)


def refusal(error=InvalidInputError, **how):
    with pytest.raises(error) as caught:
        declare(**how)
    assert __file__ in str(caught.value)
    return str(caught.value)


def test_a_job_says_all_that_running_it_needs():
    @anabranch.job(
        "clean-orders",
        sources={
            "raw": "db.raw_orders",
            "planes": anabranch.static("db.planes", at="good"),
            "clicks": anabranch.topic("clicks", "localhost:9092", {"startingOffsets": "earliest"}),
            "late": anabranch.files("/landing", "csv", schema="id BIGINT", options={"header": True}),
            "ticks": lambda spark: spark.readStream.format("rate").load(),
        },
        sink="db.orders",
        trigger="5 seconds",
        options={"sink.on-replace": "follow", "compaction.min.file-num": 3},
    )
    def clean_orders(raw, planes, clicks, late, ticks):
        return raw

    job = clean_orders
    assert (job.name, job.sink, job.mode) == ("clean-orders", "db.orders", "append")
    assert job.trigger == Trigger("interval", 5_000)
    assert job.options == {"sink.on-replace": "follow", "compaction.min.file-num": "3"}
    assert job.tables == ("db.raw_orders", "db.planes")
    kinds = {name: (source.kind, source.is_stream) for name, source in job.sources.items()}
    assert kinds == {
        "raw": ("table", True),
        "planes": ("static", False),
        "clicks": ("kafka", True),
        "late": ("files", True),
        "ticks": ("function", None),
    }
    assert job.sources["planes"].options == {"scan.version": "good"}
    assert job.sources["clicks"].options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "clicks",
        "startingOffsets": "earliest",
    }
    assert job.sources["late"].options == {"header": "true"}
    assert job.place.file == __file__


def test_a_declared_job_is_still_the_function():
    job = declare(function=lambda raw: [row for row in raw if row > 0])
    assert job([-1, 0, 1]) == job(raw=[-1, 0, 1]) == [1]


def test_a_statement_is_a_job():
    job = anabranch.sql_job("clean", "SELECT * FROM raw", sources={"raw": "db.raw"}, sink="db.orders")
    assert (job.transform, job.trigger.kind) == ("SELECT * FROM raw", "continuous")
    with pytest.raises(InvalidInputError, match="statement in SQL"):
        job(None)


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"name": ""}, InvalidNameError, "no name for a job"),
        ({"name": "a@b"}, InvalidNameError, "no name for a job"),
        ({"name": "../x"}, InvalidNameError, "no name for a job"),
        ({"sources": ["db.raw"]}, InvalidInputError, "give them by name"),
        ({"sources": {"raw": 3}}, InvalidInputError, "source 'raw' is 3, which is no source"),
        ({"sources": {"raw": "raw"}}, InvalidNameError, "'raw' does not name a table"),
        ({"sources": {"raw": "db.raw$files"}}, InvalidInputError, "is a system table"),
        ({"sources": {"a b": "db.raw"}}, InvalidInputError, "a source is called 'a b'"),
        ({"sink": "orders"}, InvalidNameError, "'orders' does not name a table"),
        ({"sink": "db.orders$branch_fix"}, InvalidInputError, 'write sink="db.orders"'),
        ({"sink": ["db.a", "db.b"]}, InvalidInputError, "it has 2 sinks, and a job writes one table"),
        ({"trigger": "often"}, OptionError, "its trigger is 'often'"),
        ({"trigger": 5}, OptionError, "its trigger is 5"),
        ({"mode": "update"}, OptionError, "its mode is 'update'"),
        ({"function": lambda row: row}, InvalidInputError, "takes 'row', which is none of its sources (raw)"),
        ({"function": lambda: None}, InvalidInputError, "does not take the source 'raw' (raw)"),
        ({"function": lambda raw, /: raw}, InvalidInputError, "takes 'raw'"),
        ({"function": 3}, InvalidInputError, "decorate a function"),
    ],
)
def test_wrong_declarations_say_where_and_what(how, error, said):
    assert said in refusal(error, **how)


@pytest.mark.parametrize(
    "function",
    [lambda **sources: None, lambda raw, factor=2: None, lambda *, raw: None, lambda raw, **more: None],
)
def test_functions_may_take_more_than_the_sources(function):
    assert declare(function=function).name == "clean"


def test_a_statement_names_its_sources():
    with pytest.raises(InvalidInputError, match=r"does not name the source 'planes' \(raw, planes\)"):
        anabranch.sql_job(
            "c", "SELECT * FROM RAW", sources={"raw": "db.raw", "planes": "db.p"}, sink="db.orders"
        )


def test_a_topic_may_be_told_otherwise():
    source = anabranch.topic("all", "h:1", {"subscribePattern": "a.*"})
    assert "subscribe" not in source.options
    with pytest.raises(OptionError, match="not told what to read"):
        anabranch.topic(" ", "h:1")


def test_declaring_loads_no_spark():
    code = (
        "import sys, anabranch\n"
        "anabranch.job('a', sources={'raw': 'db.raw'}, sink='db.t')(lambda raw: raw)\n"
        "print(sorted({'pyspark', 'sqlglot', 'sqlalchemy', 'confluent_kafka'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
