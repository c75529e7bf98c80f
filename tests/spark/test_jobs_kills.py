"""A job that reproduces main on a branch from a tag, killed at any moment: no row is lost and none is there twice."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import anabranch
from anabranch.errors import NotFoundError
from tests.spark.conftest import CONF
from tests.support.broker import kafka_broker

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(5400)]
ROOT = Path(__file__).parents[2]
KILLS = 20
HEAD = "import anabranch\n\n"
TABLE = """
@anabranch.job(
    "copy",
    sources={"raw": anabranch.stream("db.raw", {"read.stream.maxFilesPerTrigger": 1})},
    sink="db.orders",
)
def copy(raw):
    return raw.where("id % 7 <> 3")
"""
KAFKA = """
@anabranch.job(
    "copy",
    sources={"raw": anabranch.topic("TOPIC", "SERVERS", {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 40})},
    sink="db.orders",
)
def copy(raw):
    return raw.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id").where("id % 7 <> 3")
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


class Copy:
    """The job in processes of its own, over one source and one sink."""

    def __init__(self, folder, text, arrive):
        self.folder, self.arrive, self.sent = folder, arrive, 0
        self.file = folder / "copy_job.py"
        self.file.write_text(HEAD + text)
        self.lake = anabranch.connect(str(folder))
        self.orders = self.lake.create_table("db.orders", "id BIGINT", options={"write-only": "true"})
        self.runs = 0

    def send(self, count):
        self.arrive(range(self.sent, self.sent + count))
        self.sent += count

    def start(self, *words):
        self.runs += 1
        arguments = [
            "-w",
            str(self.folder),
            "run",
            str(self.file),
            "--available-now",
            "--master",
            "local[2]",
            *words,
        ]
        conf = {**CONF, "spark.sql.warehouse.dir": str(self.folder / "spark-warehouse")}
        arguments += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        with (self.folder / f"run-{self.runs}.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "anabranch", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def run(self, *words):
        process = self.start(*words)
        try:
            assert process.wait(timeout=600) == 0, (self.folder / f"run-{self.runs}.log").read_text()
        finally:
            self.end(process)

    def kill(self, chance, *words):
        """Kill everything it runs in: some time after its first sign of life, or once it has committed."""
        process = self.start(*words)
        checkpoint = self.folder / "_checkpoints" / "copy@fix"
        before, end = self.commits(), time.monotonic() + 600
        wanted = chance.choice(("soon", "log", "commit"))
        try:
            while process.poll() is None and time.monotonic() < end:
                if wanted == "commit" and self.commits() > before:
                    break
                if wanted == "log" and (checkpoint / "offsets").is_dir():
                    break
                if wanted == "soon" and (checkpoint / "anabranch").is_dir():
                    break
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 3))
        finally:
            self.end(process)

    def commits(self):
        try:
            head = self.orders.branch("fix").snapshot
        except NotFoundError:  # it is not there yet, or not whole
            return 0
        return 0 if head is None else head.id

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            process.wait()

    def check(self):
        wanted = [i for i in range(self.sent) if i % 7 != 3]
        for table in (self.orders, self.orders.branch("fix")):
            assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted


def reproduce(copy, kills):
    """Main by one run before the tag and one after it, the branch by one that is killed again and again."""
    chance = random.Random(20261121)
    copy.send(200)
    copy.run()
    copy.orders.create_tag("good")
    copy.send(300)
    copy.run()
    fix = ("--branch", "fix", "--from-tag", "good", "--create-branch")
    for number in range(kills):
        copy.kill(chance, *fix)
        if number % 5 == 4:
            copy.send(50)
    copy.run(*fix)
    copy.run()
    copy.check()


def test_from_a_table(tmp_path):
    raw = anabranch.connect(str(tmp_path)).create_table("db.raw", "id BIGINT")

    def arrive(ids):
        for at in range(0, len(ids), 10):
            raw.append([{"id": i} for i in ids[at : at + 10]])

    reproduce(Copy(tmp_path, TABLE, arrive), KILLS)


def test_from_topics(tmp_path, broker):
    topic = broker.new_topic(3)

    def arrive(ids):
        for partition in range(3):
            broker.produce(topic, [str(i) for i in ids if i % 3 == partition], partition=partition)

    text = KAFKA.replace("TOPIC", topic).replace("SERVERS", broker.bootstrap)
    reproduce(Copy(tmp_path, text, arrive), KILLS)
