"""Many processes at one table: every acknowledged commit is there once, locally and on a real S3 server."""

import itertools

import pytest

import anabranch
from anabranch.format.records.snapshot_ref import SnapshotRef
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.identity import CommitIdentity
from tests.support.processes import forking
from tests.support.s3 import running_s3
from tests.support.tables import ids_of, rows, written

_TOGETHER = None
"""In a worker: where all workers of its pool wait for each other."""


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def lake(request, tmp_path):
    """Where a warehouse is, and the options to reach it."""
    if request.param == "local":
        return str(tmp_path), None
    server = request.getfixturevalue("s3_server")
    return server.new_url(), server.options


def _run(processes, work, jobs):
    """Do the jobs side by side, each in a process of its own."""
    server = forking(__name__)
    with server.Pool(processes, _meet_at, (server.Barrier(processes),)) as pool:
        return [job.get(1200) for job in [pool.apply_async(work, job) for job in jobs]]


def _meet_at(barrier):
    global _TOGETHER
    _TOGETHER = barrier


def _table(lake):
    url, options = lake
    return anabranch.connect(url, options=options).table("db.t")


def _create(lake):
    url, options = lake
    return anabranch.connect(url, options=options).create_table("db.t", "id BIGINT NOT NULL, v STRING")


def _append_many(lake, worker, times):
    table = _table(lake)
    return [table.append(rows((worker * times + i) * 10, 2)).id for i in range(times)]


def _check_appends(lake, processes, times):
    _create(lake)
    acknowledged = _run(processes, _append_many, [(lake, worker, times) for worker in range(processes)])
    table = _table(lake)
    numbers = sorted(itertools.chain(*acknowledged))
    assert numbers == list(range(1, processes * times + 1)), "every append has a snapshot of its own, no gap"
    assert [s.id for s in table.snapshots()] == numbers[::-1]
    assert ids_of(table) == sorted(n * 10 + i for n in range(processes * times) for i in (0, 1))
    assert table.snapshot.total_record_count == 2 * processes * times
    assert [s.total_record_count for s in table.snapshots()] == [2 * n for n in reversed(numbers)]


def test_processes_append_to_one_table(lake):
    _check_appends(lake, 4, 5)


@pytest.mark.long
def test_eight_processes_append_two_hundred_times_each(lake):
    _check_appends(lake, 8, 200)


def _commit_batches(lake, batches, floor):
    """A query that commits its batches, each at the same time as its double."""
    table = _table(lake)
    made = []
    for batch in batches:
        messages = written(table, batch * 10, 2)
        _TOGETHER.wait(60)
        committed = table.commit(Append(messages), identity=CommitIdentity("job", batch), floor=floor)
        made.append((committed.snapshot.id, committed.repeated))
    return made


@pytest.mark.parametrize("with_floor", [False, True], ids=["no floor", "floor"])
def test_a_batch_committed_by_two_at_once_is_committed_once(lake, with_floor):
    """As a query that is restarted while what is left of the old one still runs."""
    table = _create(lake)
    floor = SnapshotRef(table.branch_uuid, 0, "") if with_floor else None
    batches = range(10)
    mine, other = _run(2, _commit_batches, [(lake, batches, floor)] * 2)
    assert [(s.commit_identifier, s.id) for s in table.snapshots()] == [(b, b + 1) for b in reversed(batches)]
    assert ids_of(table) == sorted(batch * 10 + i for batch in batches for i in (0, 1))
    for batch, number, repeated in zip(batches, mine, other, strict=True):
        assert sorted([number, repeated], key=lambda made: made[1]) == [(batch + 1, False), (batch + 1, True)]
