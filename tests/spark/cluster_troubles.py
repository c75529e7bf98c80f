"""Clusters that are set up wrongly, one after another in one JVM: `test_clusters` runs it, and reads what it prints.

python -m tests.spark.cluster_troubles FOLDER NAME...

Each line is a JSON object: the name, the seconds from the start of Spark until it was told, what was raised and its hint, and what was
logged.
"""

import json
import logging
import sys
import time
from pathlib import Path

import anabranch
from anabranch.errors import AnabranchError
from anabranch.jobs.job import job
from anabranch.jobs.local_spark import local_spark
from anabranch.jobs.prepare import Run
from anabranch.jobs.run import run_jobs
from anabranch.jobs.task import Policy
from anabranch.jobs.trigger import AVAILABLE_NOW, Schedule
from anabranch.spark.deploy.executors import ask_executors, check_executors
from tests.spark.conftest import CONF
from tests.support.interpreters import blind, elsewhere, with_another_anabranch, without_anabranch

MASTER = "local-cluster[1,1,1024]"


class Logged(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@job("firsts", sources={"events": "db.t"}, sink="db.firsts")
def firsts(events):
    return events.dropDuplicates(["k"])


def run_firsts(spark, warehouse, checkpoint):
    lake = anabranch.connect(warehouse, spark=spark)
    schedule = Schedule(AVAILABLE_NOW, Policy(most=0))
    (status,) = run_jobs([firsts], lake, Run(checkpoint=checkpoint), schedule)
    return status.message, status.hint


def settings(name, folder):
    """The interpreter of executors and other settings of Spark."""
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    match name:
        case "package":
            return {"spark.pyspark.python": elsewhere(folder / "lacking", without_anabranch(folder / "bare"))}
        case "version":
            other = with_another_anabranch(folder / "older", folder / "path", "0.0.9")
            return {"spark.pyspark.python": other}
        case "size":
            return {"spark.executor.cores": "2"}
        case "warehouse":
            return {"spark.pyspark.python": blind(folder / "blind-warehouse", folder / "lake")}
        case "state":
            return {"spark.pyspark.python": blind(folder / "blind-state", hidden)}


def told(name, folder, warehouse):
    logged = Logged()
    logging.getLogger("anabranch").addHandler(logged)
    conf = {**CONF, "spark.executor.cores": "1", "spark.executor.memory": "512m", **settings(name, folder)}
    message, hint = None, None
    with local_spark(warehouse, "troubles", master=MASTER, conf=conf, asks_executors=False) as spark:
        began = time.monotonic()
        try:
            if name == "size":
                ask_executors(spark)
            else:
                check_executors(spark, warehouse)
            if name == "state":
                message, hint = run_firsts(spark, warehouse, str(folder / "hidden" / "checkpoint"))
        except AnabranchError as error:
            message, hint = error.message, error.hint
        seconds = time.monotonic() - began
    logging.getLogger("anabranch").removeHandler(logged)
    return {"name": name, "seconds": seconds, "message": message, "hint": hint, "log": logged.lines}


def main(folder, names):
    warehouse = str(folder / "lake")
    lake = anabranch.connect(warehouse)
    lake.create_table("db.t", "k BIGINT").append([{"k": 1}])
    lake.create_table("db.firsts", "k BIGINT")
    for name in names:
        print(json.dumps(told(name, folder, warehouse)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
