"""Processes that expire, tag and write at once: whoever holds a ref that is there reads what it names."""

import pickle
import random
import signal
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import AnabranchError, CommitConflictError, NotFoundError
from tests.support.faults import Fault, FaultyStorage, parse
from tests.support.processes import forking
from tests.support.reached import reached_paths, stored_paths
from tests.support.s3 import running_s3

_TOGETHER = None
"""In a worker: where all workers wait for each other."""


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["local", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.long])])
def lake(request, tmp_path):
    """Where a warehouse is, and the options to reach it."""
    if request.param == "local":
        return str(tmp_path), None
    server = request.getfixturevalue("s3_server")
    return server.new_url(), server.options


def _open(lake):
    url, options = lake
    return anabranch.connect(url, options=options).table("db.t")


def _ids(table):
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def _write(lake, worker, rounds):
    """Snapshots that each hold the number of one write at least, most of them in place of what was there."""
    table, rng = _open(lake), random.Random(worker)
    written = []
    for number in range(worker * rounds, (worker + 1) * rounds):
        data = pa.table({"id": [number], "p": [rng.choice("ab")]})
        made = table.append(data) if rng.random() < 0.5 else table.overwrite(data)
        written.append((made.id, number))
        if rng.random() < 0.1:
            table.compact(full=True)
    return written


def _expire(lake, worker, rounds):
    table, rng = _open(lake), random.Random(worker)
    gone = []
    for _ in range(rounds):
        try:
            gone += table.expire_snapshots(retain_max=rng.randint(2, 5)).snapshots
        except CommitConflictError as error:
            raise AssertionError("nobody rolls back") from error
    return gone


def _tag(lake, worker, rounds):
    """Tag what there is, read it now and later: the rows of a tag never change, and they are always there."""
    table, rng = _open(lake), random.Random(worker)
    seen = {}
    for number in range(rounds):
        ids = table.context.snapshots.ids()
        if not ids:
            continue
        name = f"t{number}"
        try:
            table.create_tag(name, rng.choice(ids[:3]))
        except NotFoundError:
            assert name not in table.tags()
        else:
            seen[name] = _ids(table.at(name))
        for known in rng.sample(sorted(seen), min(2, len(seen))):
            assert _ids(table.at(known)) == seen[known]
        if len(seen) > 6:
            gone = rng.choice(sorted(seen))
            table.delete_tag(gone)
            del seen[gone]
    return seen


def _work(job, lake, worker, rounds):
    _TOGETHER.wait(120)
    try:
        return {"write": _write, "expire": _expire, "tag": _tag}[job](lake, worker, rounds)
    except AnabranchError as error:  # with its hint, and picklable
        raise AssertionError(f"{job} {worker}: {type(error).__name__}: {error}") from None


def _meet_at(barrier):
    global _TOGETHER
    _TOGETHER = barrier


def _check(lake, rounds):
    url, options = lake
    table = anabranch.connect(url, options=options).create_table(
        "db.t", "id BIGINT, p STRING", partition_by=["p"], options={"manifest.merge-min-count": "4"}
    )
    table.append(pa.table({"id": [-1], "p": ["a"]}))
    jobs = [("write", 1), ("write", 2), ("expire", 3), ("expire", 4), ("tag", 5)]
    server = forking(__name__)
    with server.Pool(len(jobs), _meet_at, (server.Barrier(len(jobs)),)) as pool:
        running = [pool.apply_async(_work, (job, lake, worker, rounds)) for job, worker in jobs]
        first, second, gone, gone_too, tagged = (job.get(1200) for job in running)
    table = _open(lake)
    written = dict([*first, *second])
    assert len(written) == 2 * rounds, "every write has a snapshot of its own"
    left = sorted(table.context.snapshots.ids())
    assert left == [*range(left[0], left[-1] + 1)], "history has no gap"
    assert left[-1] >= max(written)
    assert {*gone, *gone_too} == {*range(1, left[0])}
    for number in left:
        assert written.get(number, -1) in {*_ids(table.at(number)), -1}
    for name, rows in tagged.items():
        assert _ids(table.at(name)) == rows
    table.expire_snapshots(retain_max=2)
    table.remove_orphan_files("0 s")
    assert stored_paths(table) == reached_paths(table)
    for name, rows in tagged.items():
        assert _ids(table.at(name)) == rows


def test_some_rounds(lake):
    _check(lake, 20 if lake[1] is None else 8)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_thousand_rounds(lake):
    _check(lake, 1000)


DEATHS = [
    ("append", "before write 2"),
    ("append", "before put_object 3"),
    ("append", "before put_if_absent 1"),
    ("expire_snapshots", "after delete 1"),
    ("expire_snapshots", "before delete_many 1"),
    ("remove_orphan_files", "after move_many 1"),
]


def _die_at(pickled, work, given):
    context, storage = pickle.loads(pickled)
    getattr(anabranch.Table(replace(context, storage=storage)), work)(*given)


def test_processes_that_are_killed_by_the_system_leave_what_cleaning_finds(tmp_path):
    """Unlike an exception, that leaves unfinished files as well."""
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, p STRING", partition_by=["p"])
    server = forking(__name__)
    given = {"append": pa.table({"id": [9], "p": ["b"]}), "expire_snapshots": 2, "remove_orphan_files": "0 s"}
    for work, death in DEATHS:
        for number in range(4):
            table.overwrite(pa.table({"id": [number], "p": ["a"]}))
        table.context.storage.put("manifest/manifest-orphan", b"1")
        # A fault at put_object makes put_many store its files one by one, so that each can be the last.
        faults = [*parse(f"kill {death}"), Fault("before", "put_object", _nothing, nth=10**9)]
        mortal = (table.context, FaultyStorage(table.context.storage, faults))
        process = server.Process(target=_die_at, args=(pickle.dumps(mortal), work, [given[work]]))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, death
        unfinished = [path for path in stored_paths(table) if path.endswith(".tmp")]
        assert unfinished or not death.startswith("before write")
        table.remove_orphan_files("0 s")
        assert stored_paths(table) == reached_paths(table)
        assert _ids(table) == [3]


def _nothing(path):
    return None
