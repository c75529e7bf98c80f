"""The tutorial from Kafka to a dashboard, followed with a broker."""

import json
import os
import subprocess
import sys

import pytest

import anabranch
from tests.project.pages import DOCS, ROOT, blocks

PAGE = DOCS / "tutorials" / "kafka-dashboard.md"


def order(number, minute):
    at = f"2026-01-01 09:{minute:02}:00"
    return json.dumps({"id": number, "item": "tea", "euros": 2.5, "at": at})


@pytest.mark.long
@pytest.mark.spark
def test_the_page(broker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables, jobs, *reading = [block.code for block in blocks(PAGE) if block.kind == "python"]
    names = {}
    exec(tables, names)
    topic = broker.new_topic(2)
    (tmp_path / "jobs.py").write_text(
        jobs.replace("broker:9092", broker.bootstrap).replace('topic("orders"', f'topic("{topic}"')
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}

    def run():
        words = ["run", "jobs.py", "--available-now", "--conf", "spark.sql.shuffle.partitions=2"]
        done = subprocess.run(
            [sys.executable, "-m", "anabranch", *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    for partition in (0, 1):
        broker.produce(
            topic,
            [order(10 * partition + i, minute) for i, minute in enumerate((1, 5, 12))],
            partition=partition,
        )
    run()
    for partition in (0, 1):
        broker.produce(topic, [order(100 + partition, 40)], partition=partition)
    run()
    shop = anabranch.connect("warehouse")
    assert shop.table("shop.orders").scan().count() == 8
    revenue = shop.table("shop.revenue").scan().to_arrow().to_pylist()
    assert sorted((row["from_time"].minute, row["orders"], row["euros"]) for row in revenue) == [
        (0, 4, 10.0),
        (10, 2, 5.0),
    ]
    for code in reading[:2]:
        exec(code, names)
