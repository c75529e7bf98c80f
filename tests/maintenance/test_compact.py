"""Compaction as users and jobs call it: rows stay what they are, and nothing that was acknowledged is lost."""

import itertools
import json
import pickle
import random
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.engine import LocalEngine
from anabranch.errors import CommitOutcomeUnknownError, StorageError
from anabranch.kernel.commit.commit_message import Rewrite
from anabranch.kernel.compaction.coordinator import Coordinator
from anabranch.kernel.compaction.selection import live_files
from anabranch.maintenance import rewrites
from anabranch.maintenance.compact import CompactionResult
from anabranch.maintenance.rewrites import carry_out
from anabranch.runtime import Runtime, SystemClock
from tests.support.canonical import canonical_rows
from tests.support.compacting import compact_round
from tests.support.faults import Fault, FaultyStorage, kill, lose_answer, no_space
from tests.support.lengths import first_short
from tests.support.processes import forking
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
EAGER = {"compaction.min.file-num": "2", "compaction.max.file-num": "4"}
QUEUE = {**EAGER, "bucket": "1"}
FOREIGN = Path(__file__).parent.parent / "data" / "paimon"


def new_table(**how):
    return make_table(f"memory://compact{next(_names)}", **how)


def by_day(**how):
    return new_table(schema="id BIGINT, dt STRING", partition_by=["dt"], **how)


def day(dt, *ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * len(ids), pa.string())})


def appended(table, count, each=5):
    for i in range(count):
        table.append(rows(i * each, each))
    return table


def file_count(table):
    return live_files(table.context, table.snapshot).df.height


def stored_files(table):
    return sorted(i.path for i in table.context.storage.list("", recursive=True) if "/data-" in i.path)


def read(table):
    """Ids in the order they are read; sorted where there is none."""
    found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    return found if table.schema.bucket > 0 else sorted(found)


@pytest.fixture(params=[EAGER, QUEUE], ids=["scalable", "queue"])
def table(request):
    return new_table(options=request.param)


ONE_KIND = pytest.mark.parametrize(
    "table", first_short([QUEUE, EAGER]), ids=["queue", "scalable"], indirect=True
)

# What it does


def test_small_files_become_fewer_and_rows_stay(table):
    appended(table, 12)
    before = sum(i.size for i in table.context.storage.list("bucket-0"))
    done = table.compact()
    assert done.snapshot.stamp == table.snapshot.stamp
    assert (done.files_before, done.files_after, done.partitions, done.given_up) == (12, 3, 1, 0)
    assert file_count(table) == 3
    assert done.bytes_before == before > done.bytes_after > 0
    assert read(table) == list(range(60))
    assert table.snapshot.total_record_count == 60
    assert table.snapshot.delta_record_count == 0
    assert json.loads(table.snapshot.properties["anabranch.rewrite"]) == {"compaction": "minor"}


@pytest.mark.parametrize("full", [False, True])
def test_what_is_compact_is_left_alone(table, full):
    appended(table, 11)
    assert table.compact(full=full).tasks > 0
    head = table.snapshot
    assert table.compact(full=full) == CompactionResult()
    assert table.snapshot == head


def test_an_empty_table_has_nothing_to_compact(table):
    assert table.compact(full=True) == CompactionResult()
    assert table.snapshot is None


def test_old_snapshots_and_changes_read_as_before(table):
    appended(table, 6)
    table.compact(full=True)
    assert ids_of(table.at(3)) == list(range(15))
    assert table.plan_delta(table.snapshot).row_count == 30, "its own files, which streams pass over"
    assert table.snapshot.commit_kind == "COMPACT"


def test_large_files_are_made_of_many_small_ones(table):
    table = new_table(
        options={**table.schema.options, "target-file-size": "16 kb", "file.compression": "none"}
    )
    ids = list(range(20_000))
    for start in range(0, len(ids), 500):
        table.append(rows(start, 500))
    done = table.compact(full=True)
    assert read(table) == ids
    sizes = live_files(table.context, table.snapshot).df["file_size"].to_list()
    assert sum(size < 0.7 * (16 << 10) for size in sizes) <= 1
    assert done.files_after < done.files_before
    assert table.compact(full=True) == CompactionResult()


def test_the_newest_schema_is_written(table):
    appended(table, 3)
    table.alter().add_column("w", "INT").drop_column("v").apply()
    table.append(pa.table({"id": [100], "w": pa.array([7], pa.int32())}))
    table.compact(full=True)
    assert live_files(table.context, table.snapshot).df["schema_id"].to_list() == [1]
    assert table.scan("w = 7").to_arrow()["id"].to_pylist() == [100]
    assert table.scan("w IS NULL", columns=["id"]).to_arrow().num_rows == 15
    assert table.at(1).scan().to_arrow()["v"].to_pylist() == [f"v{i}" for i in range(5)]


# Where it works


@pytest.mark.parametrize(
    "partitions",
    ["dt = 'b'", anabranch.col("dt") == "b", {"dt": "b"}, [{"dt": "b"}, {"dt": "z"}]],
    ids=["text", "expression", "dict", "list"],
)
def test_only_the_partitions_that_were_named(partitions):
    table = by_day(options=EAGER)
    for i in range(4):
        for dt in ("a", "b", None):
            table.append(day(dt, i))
    done = table.compact(full=True, partitions=partitions)
    assert (done.files_before, done.partitions) == (4, 1)
    counts = Counter(live_files(table.context, table.snapshot).df["partition"].to_list())
    assert sorted(counts.values()) == [1, 4, 4]
    assert table.compact(full=True, partitions={"dt": None}).files_before == 4


def test_partitions_are_chosen_by_partition_columns():
    table = by_day()
    table.append(day("a", 1))
    with pytest.raises(anabranch.InvalidInputError, match=r"'id'.*no partition column[\s\S]*dt"):
        table.compact(partitions="dt = 'a' AND id = 1")
    with pytest.raises(anabranch.PredicateError, match="nope"):
        table.compact(partitions={"nope": 1})
    with pytest.raises(anabranch.InvalidInputError, match="names no partition"):
        table.compact(partitions=[{}])
    with pytest.raises(anabranch.InvalidInputError, match="none"):
        new_table().compact(partitions="id = 1")
    assert table.compact(partitions=[]) == CompactionResult()


class Clock(SystemClock):
    ahead = 0

    def now_millis(self):
        return super().now_millis() + self.ahead


def test_only_partitions_that_nobody_writes_to_any_more():
    table = by_day(options=EAGER)
    clock = Clock()
    context = replace(table.context, runtime=Runtime(clock=clock))
    table = anabranch.Table(context)
    for i in range(4):
        table.append(day("old", i))
    clock.ahead = 3_600_000
    for i in range(4):
        table.append(day("new", i))
    clock.ahead += 60_000
    assert table.compact(idle="30 min").partitions == 1
    assert table.compact(idle="30 min") == CompactionResult(), (
        "its new file is young, but it was compact already"
    )
    clock.ahead += 3_600_000
    assert table.compact(idle="30 min").files_before == 4
    with pytest.raises(anabranch.InvalidInputError, match="'soon' is no duration"):
        table.compact(idle="soon")


def test_the_past_is_not_compacted(table):
    appended(table, 4)
    with pytest.raises(anabranch.InvalidInputError, match="the past cannot be written"):
        table.at(2).compact()


def test_a_table_that_must_not_be_written_is_not_compacted(tmp_path):
    table = make_table(tmp_path)
    appended(table, 6)
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    path.write_text(path.read_text().replace('"options": {', '"options": {"row-tracking.enabled": "true", '))
    with pytest.raises(anabranch.UnsupportedFeatureError, match="row-tracking"):
        anabranch.connect(str(tmp_path)).table("db.t").compact(full=True)


# Tables of other engines


def _foreign():
    for path in sorted(FOREIGN.glob("*/*/expected/case.json")):
        writer, case = path.parts[-4:-2]
        # In the short form those where compaction has to do with more than types.
        marks = [] if case[0] in "bcf" or case in {"g_mixed_formats", "d_evolution"} else [pytest.mark.long]
        yield pytest.param(path.parent.parent, id=f"{writer}-{case}", marks=marks)


def _opened(folder, tmp_path):
    case = json.loads((folder / "expected" / "case.json").read_text())
    shutil.copytree(folder / "warehouse", tmp_path / "w")
    return anabranch.connect(str(tmp_path / "w")).table(case["table"])


@pytest.mark.parametrize("folder", first_short(_foreign(), 4))
def test_tables_that_others_wrote_keep_their_rows(folder, tmp_path):
    table = _opened(folder, tmp_path)
    before, files = _in_read_order(table), file_count(table)
    done = table.compact(full=True)
    assert _in_read_order(table) == before
    assert file_count(table) == files - done.files_before + done.files_after
    assert table.compact(full=True) == CompactionResult()


@pytest.mark.parametrize("writer", ["java-0.9", "python-2.1"])
def test_a_branch_is_compacted_and_main_stays(writer, tmp_path):
    main = _opened(FOREIGN / writer / "e_tags_branches", tmp_path)
    head, before = main.snapshot, _in_read_order(main)
    done = 0
    for name in main.branches():
        branch = main.branch(name)
        rows_of_it = _in_read_order(branch)
        done += branch.compact(full=True).tasks
        assert _in_read_order(branch) == rows_of_it
    assert done > 0
    assert main.snapshot == head
    assert _in_read_order(main) == before


def _in_read_order(table):
    """Rows by bucket: in queues in their order."""
    scan, found = table.scan(), {}
    for split in scan.plan().splits:
        part = scan.reader.read_table([split])
        found.setdefault((split.partition, split.bucket), []).append(part)
    fields = table.schema.fields
    if table.schema.bucket > 0:
        return {key: repr(pa.concat_tables(parts).to_pylist()) for key, parts in found.items()}
    whole = [part for parts in found.values() for part in parts]
    return canonical_rows(pa.concat_tables(whole), fields) if whole else []


# Engines


class Elsewhere:
    """Sends work, items and results through pickle, and gives results back in another order."""

    def __init__(self):
        self.names = []

    def map(self, work, items, *, name):
        self.names.append(name)
        results = [
            pickle.dumps(pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(i)))) for i in items
        ]
        return (pickle.loads(result) for result in reversed(results))


def test_work_travels_to_where_the_engine_does_it(tmp_path):
    engine = Elsewhere()
    found = make_table(tmp_path, schema="id BIGINT, dt STRING", partition_by=["dt"], options=QUEUE)
    table = anabranch.Table(found.context, engine=engine)
    for i in range(8):
        table.append(day("ab"[i % 2], i))
    done = table.compact()
    assert (done.tasks, done.files_before, done.files_after) == (2, 8, 2)
    assert engine.names == ["compact db.t: 8 files"]
    assert [i for i in read(table) if i % 2] == [1, 3, 5, 7]
    assert [i for i in read(table) if not i % 2] == [0, 2, 4, 6]
    for view in (table.at(8), table.branch("main"), table.with_options({"scan.snapshot-id": "8"})):
        assert view._engine is engine


class Breaking:
    """Breaks after some results."""

    def __init__(self, good):
        self.good = good

    def map(self, work, items, *, name):
        yield from map(work, items[: self.good])
        raise StorageError("the machine is gone")


def test_what_was_finished_before_an_error_is_committed():
    table = by_day(options=EAGER)
    for i in range(4):
        for dt in "abc":
            table.append(day(dt, i))
    broken = anabranch.Table(table.context, engine=Breaking(2))
    with pytest.raises(StorageError, match="the machine is gone"):
        broken.compact()
    assert file_count(table) == 2 + 4
    assert len(stored_files(table)) == 12 + 2
    assert table.compact().files_before == 4
    assert read(table) == sorted([0, 1, 2, 3] * 3)


def test_work_that_takes_long_is_published_bit_by_bit():
    table = by_day(options=EAGER)
    for i in range(4):
        for dt in "abc":
            table.append(day(dt, i))

    class Slow(SystemClock):
        passed = 0.0

        def monotonic(self):
            self.passed += 70.0
            return self.passed

    anabranch.Table(replace(table.context, runtime=Runtime(clock=Slow()))).compact()
    assert [str(s.commit_kind) for s in table.snapshots()].count("COMPACT") == 2


def test_much_that_is_finished_soon_is_published_bit_by_bit(monkeypatch):
    monkeypatch.setattr(rewrites, "_PUBLISH_FILES", 6)
    table = by_day(options=EAGER)
    for i in range(4):
        for dt in "abc":
            table.append(day(dt, i))
    table.compact()
    commits = [s for s in table.snapshots() if s.commit_kind == "COMPACT"]
    assert len(commits) == 2, "8 files, then 4: a commit of too many would always come too late"
    assert read(table) == sorted([0, 1, 2, 3] * 3)


def test_a_live_file_that_is_missing_is_an_error_and_the_rest_is_compacted():
    table = by_day(options=EAGER)
    for i in range(4):
        for dt in "ab":
            table.append(day(dt, i))
    lost = next(path for path in stored_files(table) if path.startswith("dt=a/"))
    table.context.storage.delete(lost)
    with pytest.raises(anabranch.NotFoundError, match=lost):
        table.compact()
    assert file_count(table) == 4 + 1


def test_a_file_that_was_compacted_and_expired_meanwhile_is_no_error():
    table = appended(new_table(options=EAGER), 4)

    class Late(LocalEngine):
        def map(self, work, items, *, name):
            old = stored_files(table)
            table.compact()
            table.context.storage.delete_many(old)
            return super().map(work, items, name=name)

    done = anabranch.Table(table.context, engine=Late()).compact()
    assert (done.tasks, done.given_up) == (0, 1)
    assert ids_of(table) == list(range(20))


def test_a_task_may_be_carried_out_in_another_way():
    """As sorting does, which uses the same commit."""
    table = appended(new_table(options=EAGER), 4)
    [task] = _tasks(table)

    def refuse(task):
        return Rewrite(task, ())

    with pytest.raises(anabranch.CorruptTableError, match="a rewrite made 0 rows of 20"):
        carry_out(table.context, {}, [task], engine=LocalEngine(), work=refuse)
    assert ids_of(table) == list(range(20))


def _tasks(table):
    coordinator = Coordinator(table.context, {})
    coordinator.observe()
    return coordinator.tasks()


# Failures


def test_nothing_is_removed_while_it_is_not_known_whether_it_was_committed(table):
    appended(table, 4)
    faults = [lose_answer("put_if_absent", where="snapshot/*")]
    doubtful = anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, faults)))
    with pytest.raises(CommitOutcomeUnknownError):
        doubtful.compact()
    assert len(stored_files(table)) == 5
    assert file_count(table) == 1
    assert read(table) == list(range(20))
    assert table.compact() == CompactionResult()


def test_a_full_disk_leaves_no_files(table):
    appended(table, 4)
    before = stored_files(table)
    full = FaultyStorage(table.context.storage, [no_space("write", where="*/data-*", times=100)])
    with pytest.raises(StorageError):
        anabranch.Table(replace(table.context, storage=full)).compact()
    assert stored_files(table) == before
    assert table.compact().files_before == 4


def _calls_of_a_compaction(table):
    """(name, nth of that name) of every storage call that one compaction makes."""
    storage = FaultyStorage(table.context.storage, [Fault("before", "put_object", _nothing, nth=10**9)])
    anabranch.Table(replace(table.context, storage=storage)).compact()
    seen = Counter()
    for call in storage.calls:
        seen[call.name] += 1
        yield call.name, seen[call.name]


def _compact(pickled):
    context, storage = pickle.loads(pickled)
    anabranch.Table(replace(context, storage=storage)).compact()


def _nothing(path):
    return None


READS = {"list", "get", "get_range", "exists"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "when", "every"),
    [
        pytest.param(QUEUE, "before", 8, id="queue-before-some"),
        pytest.param(QUEUE, "before", 1, id="queue-before", marks=pytest.mark.long),
        pytest.param(QUEUE, "after", 1, id="queue-after", marks=pytest.mark.long),
        pytest.param(EAGER, "before", 1, id="scalable-before", marks=pytest.mark.long),
        pytest.param(EAGER, "after", 1, id="scalable-after", marks=pytest.mark.long),
    ],
)
def test_killed_at_every_storage_call(tmp_path, options, when, every):
    """No row is lost or doubled, and the next run finishes the work. Of the reads, some stand for all in a row."""
    probe = appended(make_table(tmp_path / "probe", options=options), 4, each=3)
    calls = [*_calls_of_a_compaction(probe)]
    calls = [call for i, call in enumerate(calls) if call[0] not in READS or i % every == 0]
    assert {"put_object", "put_if_absent", "write"} <= {name for name, _ in calls}
    server = forking(__name__)
    table = make_table(tmp_path / "lake", options=options)
    expected, killed = [], 0
    for number, (name, nth) in enumerate(calls):
        for i in range(4):
            table.append(rows(1000 * number + 3 * i, 3))
        expected += range(1000 * number, 1000 * number + 12)
        faults = [kill(when, name, nth=nth), Fault("before", "put_object", _nothing, nth=10**9)]
        storage = FaultyStorage(table.context.storage, faults)
        process = server.Process(target=_compact, args=(pickle.dumps((table.context, storage)),))
        process.start()
        process.join(60)
        killed += process.exitcode == -signal.SIGKILL
        assert read(table) == expected
        table.compact(full=True)
        assert file_count(table) == 1
        assert read(table) == expected
        assert table.snapshot.total_record_count == len(expected)
    assert killed > len(calls) / 2


# Going on for ever


@ONE_KIND
def test_a_job_keeps_a_table_compact_while_it_is_written(table):
    coordinator = Coordinator(table.context, {})
    written, most = 0, 0
    for i in range(60):
        for _ in range(1 + i % 3):
            table.append(rows(written, 2))
            written += 2
        compact_round(table.context, coordinator, LocalEngine())
        most = max(most, file_count(table))
    assert read(table) == list(range(written))
    assert most < 12
    assert coordinator.files < 12


@ONE_KIND
def test_a_job_goes_on_after_failures(table):
    coordinator = Coordinator(table.context, {})
    rng = random.Random(1)
    written, failures = 0, 0
    for _ in range(40):
        table.append(rows(written, 2))
        written += 2
        try:
            engine = Breaking(0) if rng.random() < 0.3 else LocalEngine()
            compact_round(table.context, coordinator, engine)
        except StorageError:
            failures += 1
    assert failures > 2
    assert coordinator.in_flight == ()
    for _ in range(300):
        compact_round(table.context, coordinator, LocalEngine())
    assert file_count(table) < 5
    assert read(table) == list(range(written))


@pytest.mark.parametrize("options", [{}, {"bucket": "1"}, {"bucket": "2", "bucket-key": "id"}], ids=str)
def test_full_compaction_brings_every_file_to_todays_names_and_types(options):
    """Also those that are alone in their partition, and those that are large enough."""
    table = new_table(
        schema="id INT NOT NULL, v STRING, n INT, st ROW<x INT>, dt STRING",
        partition_by=["dt"],
        options={**options, "write-only": "true", "target-file-size": "16 kb"},
    )
    names = [f"{number * 7919 % 104729:x}" for number in range(6_000)]
    for day, count in (("a", 1), ("b", 6_000), ("c", 2)):
        for part in range(2 if day == "b" else 1):
            made = [
                {"id": part * count + i, "v": names[i], "n": i, "st": {"x": i}, "dt": day}
                for i in range(count)
            ]
            table.append(made)
    table.alter().rename_column("v", "name").widen_column("n", "BIGINT").add_column("st.y", "INT").apply()
    table.append([{"id": 50_000, "name": "new", "n": 7, "st": {"x": 1, "y": 2}, "dt": "d"}])
    before = table.scan().to_arrow()
    done = table.compact(full=True)
    assert done.rows >= 12_003
    assert set(table.system("files")["schema_id"].to_pylist()) == {1}
    after = table.scan().to_arrow()
    if options:  # a queue keeps its order
        columns = ["dt", "_bucket", "id"]
        then = table.at(5).scan(columns=columns).to_pandas()
        now = table.scan(columns=columns).to_pandas()
        for (_, old), (_, new) in zip(then.groupby(columns[:2]), now.groupby(columns[:2]), strict=True):
            assert old["id"].tolist() == new["id"].tolist()
    order = [("id", "ascending"), ("dt", "ascending"), ("name", "ascending")]
    assert after.sort_by(order).equals(before.sort_by(order))
    assert table.compact(full=True).snapshot is None
    assert table.verify(deep=True).ok


def test_full_compaction_leaves_alone_what_only_lacks_a_column():
    table = new_table(schema="id INT, v STRING")
    table.append([{"id": 1, "v": "a"}])
    table.alter().add_column("w", "INT").drop_column("v").apply()
    assert table.compact(full=True).snapshot is None
