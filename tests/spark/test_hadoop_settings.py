"""Checkpoints in an object store go through Hadoop, which is told our settings; its connector is no part of PySpark.

Where the connector would be loaded, a class of Hadoop that PySpark has takes its name: what it is told is looked at in
Hadoop's own configuration.
"""

import pytest

import anabranch
from anabranch import UnsupportedFeatureError
from anabranch.jobs.job import job
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.spark.deploy.hadoop import let_reach

OPTIONS = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key": "name", "s3.secret-key": "key"}
IMPLEMENTATION = "fs.s3a.impl"


@job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events


@pytest.fixture
def conf(spark):
    """Hadoop's configuration, as it was before once the test has ended."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    before = conf.get(IMPLEMENTATION)
    conf.set(IMPLEMENTATION, "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    yield conf
    entries, keys = conf.iterator(), [IMPLEMENTATION]
    while entries.hasNext():
        key = entries.next().getKey()
        keys += [key] if ".bucket." in key else []
    for key in keys:
        conf.unset(key)
    if before is not None:
        conf.set(IMPLEMENTATION, before, "core-default.xml")


def test_hadoop_is_told_what_the_store_is_reached_by(spark, conf):
    let_reach(spark, "s3a://told/checkpoints/a", OPTIONS)
    said = {key: conf.get(f"fs.s3a.bucket.told.{key}") for key in ("endpoint", "access.key", "secret.key")}
    assert said == {"endpoint": "http://127.0.0.1:1", "access.key": "name", "secret.key": "key"}
    assert conf.get("fs.s3a.bucket.told.connection.ssl.enabled") == "false"
    assert conf.get("fs.s3a.bucket.told.aws.credentials.provider").endswith(".SimpleAWSCredentialsProvider")
    of_tasks = spark._jsparkSession.sessionState().newHadoopConf()  # what queries send along
    assert of_tasks.get("fs.s3a.bucket.told.secret.key") == "key"
    assert conf.get("fs.s3a.bucket.other.endpoint") is None
    assert not any("secret.key" in key for key, _ in spark.sparkContext.getConf().getAll())


@pytest.mark.long
def test_what_the_user_has_told_hadoop_stays(spark, conf):
    conf.set("fs.s3a.bucket.own.endpoint", "http://own:1")
    conf.set("fs.s3a.bucket.own.aws.credentials.provider", "com.example.Own")
    let_reach(spark, "s3a://own/checkpoints/a", OPTIONS)
    assert conf.get("fs.s3a.bucket.own.endpoint") == "http://own:1"
    assert conf.get("fs.s3a.bucket.own.aws.credentials.provider") == "com.example.Own"
    assert conf.get("fs.s3a.bucket.own.secret.key") is None, "whoever says who is asking says all of it"
    assert conf.get("fs.s3a.bucket.own.path.style.access") == "true"


@pytest.mark.parametrize("own", ["fs.gs.auth.access.token.provider", "google.cloud.auth.type"])
def test_whoever_has_told_hadoop_who_asks_google_needs_no_credentials_of_ours(spark, own):
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    options = {"gs.bearer-token": "t", "gs.endpoint": "http://here:1"}
    before = {key: conf.get(key) for key in ("fs.gs.impl", "fs.gs.storage.root.url", "fs.gs.auth.type", own)}
    conf.set("fs.gs.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    try:
        with pytest.raises(UnsupportedFeatureError, match=r"takes no gs\.bearer-token"):
            let_reach(spark, "gs://own/checkpoints/a", options)
        conf.set(own, "com.example.Own")
        let_reach(spark, "gs://own/checkpoints/a", options)
        assert conf.get("fs.gs.storage.root.url") == "http://here:1"
        let_reach(spark, "gs://own/checkpoints/a", {"gs.anonymous": "true"})
        assert conf.get("fs.gs.auth.type") == before["fs.gs.auth.type"], (
            "whoever says who asks says all of it"
        )
    finally:
        for key, value in before.items():
            conf.unset(key)
            if value is not None:
                conf.set(key, value, "core-default.xml")


def test_a_job_whose_checkpoint_needs_a_connector_is_refused_before_it_begins(spark, warehouse):
    lake = anabranch.connect(warehouse, spark=spark, options=OPTIONS)
    for name in ("events", "copies"):
        lake.create_table(f"db.{name}", "k BIGINT")
    lake.table("db.events").append([{"k": 1}])
    for how in ({"checkpoint": "s3://lake/one"}, {"checkpoints": "s3a://lake/all"}):
        (status,) = run_jobs([copies], lake, Run(**how), Schedule(AVAILABLE_NOW, Policy(most=3)))
        assert (status.state.value, status.restarts) == ("failed", 0), status
        assert "checkpoints in s3a:// through hadoop-aws, which is not installed" in status.message
        assert "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3." in status.hint
    assert lake.table("db.copies").snapshot is None
    run_jobs([copies], lake, Run(), Schedule(AVAILABLE_NOW))
    assert lake.table("db.copies").scan().to_arrow().num_rows == 1


def test_a_folder_needs_nothing(spark, tmp_path):
    let_reach(spark, str(tmp_path), {})
    with pytest.raises(UnsupportedFeatureError, match="gcs-connector, which is not installed"):
        let_reach(spark, "gs://lake/a", {})
