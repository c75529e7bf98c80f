"""Processes append to one table on a real S3 server."""

import multiprocessing

import pytest

import anabranch
from tests.support.s3 import running_s3
from tests.support.tables import SCHEMA, ids_of, rows

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


def _append_many(url, options, worker, times):
    table = anabranch.connect(url, options=options).table("db.t")
    return [table.append(rows((worker * times + i) * 10, 2)).id for i in range(times)]


def _race(server, processes, times):
    url = server.new_url()
    anabranch.connect(url, options=server.options).create_table("db.t", SCHEMA)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        jobs = [
            pool.apply_async(_append_many, (url, server.options, worker, times))
            for worker in range(processes)
        ]
        acknowledged = [number for job in jobs for number in job.get(3000)]
    total = processes * times
    table = anabranch.connect(url, options=server.options).table("db.t")
    assert sorted(acknowledged) == list(range(1, total + 1))
    assert [s.id for s in table.snapshots()] == list(range(total, 0, -1))
    assert ids_of(table) == sorted(n * 10 + i for n in range(total) for i in (0, 1))


def test_processes_append_to_one_table(server):
    _race(server, 4, 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_eight_processes_append_two_hundred_times_each(server):
    _race(server, 8, 200)
