"""Many processes at one table: every acknowledged commit is there once, locally and on a real S3 server."""

import itertools
import random
from collections import Counter

import pytest

import anabranch
from anabranch.errors import AnabranchError, CommitOutcomeUnknownError
from anabranch.format.records.snapshot import CommitIdentity, SnapshotRef
from anabranch.kernel.actions.append import Append
from tests.support.lengths import first_short
from tests.support.processes import forking
from tests.support.s3 import running_s3
from tests.support.s3_proxy import Misdeed, proxy_before
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


@pytest.mark.parametrize("with_floor", first_short([False, True]), ids=["no floor", "floor"])
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


def _append_whatever_happens(lake, worker, times):
    """The outcome of each append, by its first row."""
    table, found = _table(lake), {}
    for i in range(times):
        start = (worker * times + i) * 10
        try:
            table.append(rows(start, 2))
            found[start] = "made"
        except CommitOutcomeUnknownError:
            found[start] = "unknown"
        except AnabranchError as error:
            found[start] = f"refused: {error}"
    return found


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.parametrize(("writers", "times"), [(6, 2), pytest.param(60, 4, marks=pytest.mark.long)])
def test_nothing_is_lost_on_a_store_that_fails_now_and_then(s3_server, writers, times):
    """One request in ten is answered with 503; of one in thirty the answer is lost, and one in thirty never arrives."""
    url, chance = s3_server.new_url(), random.Random(60)
    _create((url, s3_server.options))
    with proxy_before(s3_server.endpoint) as proxy:
        for share, what in (
            (0.1, {"answer": 503}),
            (0.03, {"lose_answer": True}),
            (0.03, {"lose_request": True}),
        ):
            proxy.misdeeds.append(
                Misdeed(lambda *_, share=share: chance.random() < share, times=10**9, **what)
            )
        lake = url, s3_server.options_through(proxy.endpoint)
        jobs = [(lake, worker, times) for worker in range(writers)]
        outcomes = dict(
            itertools.chain(*(found.items() for found in _run(writers, _append_whatever_happens, jobs)))
        )
        requests = len(proxy.requests)
    told = Counter(outcome.partition(":")[0] for outcome in outcomes.values())
    print(f"{writers} writers, {requests:,} requests, {dict(told)}")
    assert told["made"] >= 0.9 * writers * times, outcomes
    table = _table((url, s3_server.options))
    there = Counter(ids_of(table))
    assert set(there.values()) == {1}, "a row is there twice"
    for start, outcome in outcomes.items():
        both = {start in there, start + 1 in there}
        assert len(both) == 1, "half a commit"
        if outcome != "unknown":
            assert both == {outcome == "made"}, (start, outcome)
    history = [snapshot.id for snapshot in table.snapshots()]
    assert history == [*range(len(history), 0, -1)]
    assert 2 * len(history) == len(there) == table.snapshot.total_record_count
