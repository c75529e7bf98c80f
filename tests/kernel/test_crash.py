"""An append that dies, loses answers or finds the disk full at any storage call leaves a whole table."""

import pickle
import signal
from collections import Counter
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import AnabranchError, CommitOutcomeUnknownError
from tests.support.faults import Fault, FaultyStorage, kill, lose_answer, lose_request, no_space
from tests.support.lengths import first_short
from tests.support.processes import forking
from tests.support.tables import ids_of, make_table, rows

BATCH = 5


def _through(table, storage):
    return anabranch.Table(replace(table.context, storage=storage))


def _calls_of_an_append(tmp_path):
    """(name, nth of that name) of every storage call that one append makes."""
    table = make_table(tmp_path / "probe")
    _begun(table)
    storage = FaultyStorage(table.context.storage, [Fault("before", "put_object", _nothing, nth=10**9)])
    _through(table, storage).append(rows(BATCH, BATCH))
    seen = Counter()
    for call in storage.calls:
        seen[call.name] += 1
        yield call.name, seen[call.name]


def _begun(table):
    """Two appends, after which every further one makes the same calls; where their rows start."""
    starts = [-2 * BATCH, -BATCH]
    for start in starts:
        table.append(rows(start, BATCH))
    return starts


def _append_and_acknowledge(pickled, start, pipe):
    context, storage = pickle.loads(pickled)
    anabranch.Table(replace(context, storage=storage)).append(rows(start, BATCH))
    pipe.send("acknowledged")


def _check_whole(url, acknowledged, in_doubt):
    """Every acknowledged row once; the row group in doubt once or not at all; no gap; writable."""
    table = anabranch.connect(str(url)).table("db.t")
    found = ids_of(table)
    certain = sorted(i for start in acknowledged for i in range(start, start + BATCH))
    doubtful = [] if in_doubt is None else list(range(in_doubt, in_doubt + BATCH))
    assert found in (certain, sorted(certain + doubtful))
    numbers = [s.id for s in table.snapshots()]
    assert numbers == list(range(len(numbers), 0, -1))
    assert table.snapshot.total_record_count == len(found)
    return found != certain


@pytest.mark.parametrize(
    ("when", "step"),
    first_short([("after", 3), ("after", 1), ("before", 1)]),
    ids=["some", "after", "before"],
)
def test_killed_at_every_storage_call(tmp_path, when, step):
    calls = [*_calls_of_an_append(tmp_path)]
    assert {"put_object", "put_if_absent", "write"} <= {name for name, _ in calls}
    calls = calls[::-step]  # the last of them publish
    url = tmp_path / "lake"
    table = make_table(url)
    acknowledged = _begun(table)
    server = forking(__name__)
    killed = 0
    for number, (name, nth) in enumerate(calls):
        start = number * 100
        # A fault at put_object makes put_many store its files one by one, so that each can be the last.
        faults = [kill(when, name, nth=nth), Fault("before", "put_object", _nothing, nth=10**9)]
        mine, theirs = server.Pipe()
        process = server.Process(
            target=_append_and_acknowledge,
            args=(pickle.dumps((table.context, FaultyStorage(table.context.storage, faults))), start, theirs),
        )
        process.start()
        theirs.close()
        process.join(60)
        killed += process.exitcode == -signal.SIGKILL
        acknowledged += [start] if _was_acknowledged(mine) else []
        if _check_whole(url, acknowledged, start):
            acknowledged.append(start)
        table.append(rows(start + 50, BATCH))
        acknowledged.append(start + 50)
        _check_whole(url, acknowledged, None)
    # There is no moment after a read that finds nothing.
    assert killed == len(calls) if when == "before" else killed >= len(calls) - 4


def _was_acknowledged(pipe):
    try:
        return pipe.recv() == "acknowledged"
    except EOFError:
        return False


def _nothing(path):
    return None


@pytest.mark.parametrize(
    "fault", first_short([lose_answer, lose_request, no_space]), ids=lambda f: f.__name__
)
def test_an_error_at_every_storage_call(tmp_path, fault):
    calls = [*_calls_of_an_append(tmp_path)]
    url = tmp_path / "lake"
    table = make_table(url)
    acknowledged = _begun(table)
    for number, (name, nth) in enumerate(calls):
        start = number * 100
        each = Fault("before", "put_object", _nothing, nth=10**9)
        storage = FaultyStorage(table.context.storage, [fault(name, nth=nth), each])
        try:
            _through(table, storage).append(rows(start, BATCH))
        except CommitOutcomeUnknownError:
            if _check_whole(url, acknowledged, start):
                acknowledged.append(start)
        except AnabranchError:
            _check_whole(url, acknowledged, None)
        else:
            acknowledged.append(start)
        _check_whole(url, acknowledged, None)
        table.append(rows(start + 50, BATCH))
        acknowledged.append(start + 50)
    assert len(acknowledged) > len(calls), "some faults are survived or certainly not committed"


def test_a_failed_append_leaves_no_files(tmp_path):
    table = make_table(tmp_path)
    table.append(rows(0, BATCH))
    before = sorted(tmp_path.rglob("*"))
    storage = FaultyStorage(table.context.storage, [no_space("put_if_absent")])
    with pytest.raises(AnabranchError):
        _through(table, storage).append(rows(10, BATCH))
    left = [p for p in sorted(tmp_path.rglob("*")) if p not in before]
    assert [p for p in left if "manifest" in p.name] == []


def test_files_stay_when_the_outcome_is_unknown(tmp_path):
    table = make_table(tmp_path)
    storage = FaultyStorage(table.context.storage, [lose_answer("put_if_absent")])
    with pytest.raises(CommitOutcomeUnknownError, match="commit user"):
        _through(table, storage).append(rows(0, BATCH))
    assert ids_of(table) == list(range(BATCH))
