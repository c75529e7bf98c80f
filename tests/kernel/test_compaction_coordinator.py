"""The coordinator over rounds: what it gives out, what it remembers, and how it finds its way again."""

import itertools
import json
import random
from dataclasses import replace

import pytest

from anabranch.errors import NotFoundError, UnsupportedFeatureError
from anabranch.format.records.data_file import EMPTY_STATS, DataFileMeta
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.compact import Compact
from anabranch.kernel.actions.overwrite import Overwrite
from anabranch.kernel.commit.commit_message import Rewrite
from anabranch.kernel.compaction.coordinator import Coordinator, TaskEnd
from anabranch.kernel.compaction.selection import live_files
from tests.streaming.history import ROW_BYTES, History
from tests.support.lengths import first_short

_names = itertools.count()
OPTIONS = {"target-file-size": "1000 b", "compaction.min.file-num": 3, "compaction.max.file-num": 6}


class Job:
    """A table, its coordinator, and workers that make files of the target size."""

    def __init__(self, bucket=-1, **options):
        key = {"bucket-key": "id"} if bucket > 1 else {}
        self.history = History.new(f"memory://coordinator{next(_names)}", bucket=bucket, **key, **OPTIONS)
        self.context = self.history.context
        self.options = options
        self.restart()

    def restart(self):
        self.coordinator = Coordinator(self.context, self.options)

    def append(self, *sizes, partition="a", bucket=0):
        """One commit of files of so many bytes."""
        return self.history.commit(Append([self._message(sizes, partition, bucket)]))

    def overwrite(self, *sizes, partition="a"):
        return self.history.commit(Overwrite([self._message(sizes, partition, 0)], dynamic=True))

    def _message(self, sizes, partition, bucket):
        message = self.history.message(partition=partition, bucket=bucket)
        return replace(message, new_files=tuple(_file(size) for size in sizes))

    def round(self, limit=None):
        self.coordinator.observe()
        return self.coordinator.tasks(limit)

    def work(self, tasks, end=TaskEnd.COMMITTED):
        for task in tasks:
            if end is TaskEnd.COMMITTED:
                self.commit(task)
            self.coordinator.done(task, end)

    def commit(self, task):
        return self.history.commit(Compact([_rewritten(task)]))

    @property
    def live(self):
        return live_files(self.context, self.context.snapshots.head()).df


def _file(size):
    rows = max(size // ROW_BYTES, 1)
    return DataFileMeta(f"data-{next(_names)}.parquet", size, rows, EMPTY_STATS, 0, rows - 1, 0)


def _rewritten(task):
    files, rows = [], task.row_count
    for first in range(0, rows, 100):
        count = min(100, rows - first)
        size = min(task.size, count * ROW_BYTES)
        start = first if task.total_buckets > 0 else 0
        name = f"data-{next(_names)}.parquet"
        files.append(DataFileMeta(name, size, count, EMPTY_STATS, start, start + count - 1, 0))
    return Rewrite(task, tuple(files))


@pytest.fixture(params=[-1, 1], ids=["scalable", "queue"])
def job(request):
    return Job(bucket=request.param)


ONE_KIND = pytest.mark.parametrize("job", first_short([1, -1]), ids=["queue", "scalable"], indirect=True)


def test_it_starts_with_all_small_files_there_are(job):
    job.append(10, 900, 10)
    job.append(10, 10, 10, 10, 10, partition="b")
    tasks = job.round()
    assert tasks == []
    job.append(10, partition="b")
    [task] = job.round()
    assert len(task.files) == 6


def test_it_learns_of_new_files_without_reading_old_ones_again(job):
    job.append(10)
    assert job.round() == []
    for _ in range(5):
        job.append(10)
    [task] = job.round()
    assert len(task.files) == 6
    assert job.coordinator.in_flight == (task,)


def test_files_of_a_task_are_in_no_other_until_it_is_done(job):
    job.append(*[10] * 6)
    [first] = job.round()
    job.append(*[10] * 6)
    [second] = job.round()
    assert not {f.file_name for f in first.files} & {f.file_name for f in second.files}
    assert job.round() == []


def test_what_was_committed_is_not_planned_again(job):
    job.append(*[10] * 6)
    job.work(job.round())
    assert job.coordinator.tasks() == [], "also before the snapshot is observed"
    for _ in range(4):
        job.append(10)
        assert job.round() == []
    job.append(10)
    [task] = job.round()
    assert task.row_count == 6 + 5, "with the file it made before"


@pytest.mark.parametrize("end", [TaskEnd.GIVEN_UP, TaskEnd.FAILED])
def test_files_of_a_task_that_came_to_nothing_return(job, end):
    job.append(*[10] * 6)
    [task] = job.round()
    job.work([task], end)
    again = [found for _ in range(4) for found in job.round()]
    assert [len(found.files) for found in again] == [6]


@ONE_KIND
def test_a_task_that_fails_again_and_again_is_tried_less_and_less(job):
    job.append(*[10] * 6)
    tried = []
    for number in range(200):
        tasks = job.round()
        tried += [number] * len(tasks)
        job.work(tasks, TaskEnd.FAILED)
    gaps = [b - a for a, b in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert 5 < len(tried) < 10
    job.append(*[10] * 6, partition="b")
    assert len(job.round()) == 1, "other partitions do not wait"


def test_overwritten_files_are_forgotten(job):
    job.append(*[10] * 5)
    job.round()
    job.overwrite(10)
    assert job.round() == []
    assert job.coordinator.files == 1


def test_a_partition_that_grows_quiet_is_compacted_with_what_it_has(job):
    job.append(10, 10)
    found = [job.round() for _ in range(7)]
    assert [len(tasks) for tasks in found] == [0, 0, 0, 0, 0, 1, 0]
    job.work(found[5])
    assert job.live.height == 1


def test_new_files_keep_a_partition_young(job):
    job.append(10)
    for number in range(4):
        assert [job.round() for _ in range(5)] == [[]] * 5
        if number < 3:
            job.append(10)
    assert len(job.round()) == 1


def test_a_lone_small_file_is_forgotten_and_found_again_after_a_restart(job):
    job.append(10)
    for _ in range(10):
        job.round()
    assert job.coordinator.files == 1
    job.round()
    assert job.coordinator.files == 0
    for _ in range(5):
        job.append(10)
    assert job.round() == [], "five are known of six"
    job.restart()
    assert [len(task.files) for task in job.round()] == [6]


@ONE_KIND
def test_memory_is_bounded_by_what_is_written_to(job):
    for number in range(60):
        job.append(10, partition=f"p{number}")
        job.append(*[950] * 3, partition="big")
        job.round()
        assert job.coordinator.files <= 12
    assert len(job.coordinator._ages) <= 12


def test_limited_rounds_give_out_the_rest_later_and_the_longest_first(job):
    for partition, count in (("a", 6), ("b", 6), ("c", 6)):
        job.append(*[10] * count, partition=partition)
    job.append(*[10] * 2 + [900], partition="d")
    first, second, third = job.round(1), job.round(1), job.round(1)
    assert [len(tasks) for tasks in (first, second, third)] == [1, 1, 1]
    assert len({task.partition for tasks in (first, second, third) for task in tasks}) == 3
    assert job.round(1) == []


def test_full_rounds_come_after_so_many_commits():
    for bucket, key in (
        (-1, "full-compaction.delta-commits"),
        (1, "full-compaction.delta-commits"),
        (-1, "anabranch.full-compaction.delta-commits"),
    ):
        job = Job(bucket=bucket, **{key: "3"})
        job.append(10)
        assert job.round() == []
        for _ in range(2):
            job.append(10)
            assert job.round() == []
        job.append(10)
        [task] = job.round()
        assert len(task.files) == 4
        job.work([task])
        assert job.round() == [], "its own commit does not count"


def test_it_starts_over_when_history_was_rewritten(job):
    kept = job.append(10)
    job.append(*[10] * 4)
    job.round()
    storage, layout = job.context.storage, job.context.layout
    storage.delete(layout.snapshot_path(kept.id + 1))
    storage.put(layout.latest_hint_path, b"1")
    assert job.round() == []
    assert job.coordinator.files == 1
    for _ in range(5):
        job.append(10)
    [task] = job.round()
    assert len(task.files) == 6


def test_it_starts_over_when_what_it_knew_has_expired(job):
    job.append(10)
    job.round()
    for _ in range(5):
        job.append(10)
    job.history.remove(1, 2, 3)
    [task] = job.round()
    assert len(task.files) == 6


def test_it_goes_on_from_a_snapshot_that_has_expired_itself(job):
    job.append(10)
    for _ in range(11):
        job.round()
    assert job.coordinator.files == 0
    for _ in range(6):
        job.append(10)
    job.history.remove(1)
    [task] = job.round()
    assert len(task.files) == 6, "and does not find the one that was forgotten"


def test_it_refuses_what_must_not_be_written():
    job = Job()
    job.append(10)
    path = job.context.layout.schema_path(0)
    schema = json.loads(job.context.storage.get(path))
    schema["options"]["row-tracking.enabled"] = "true"
    job.context.storage.put(path, json.dumps(schema).encode())
    fresh = Coordinator(replace(job.context), {})
    with pytest.raises(UnsupportedFeatureError, match="row-tracking"):
        fresh.observe()
    assert fresh.tasks() == []


def test_it_says_that_the_table_is_gone():
    job = Job()
    job.context.storage.delete_folder("schema")
    with pytest.raises(NotFoundError):
        Coordinator(replace(job.context), {}).observe()


@pytest.mark.parametrize("seed", first_short(range(60)))
def test_random_jobs_leave_a_compact_table(seed):
    """Several commits a round, overwrites, failing and slow workers, restarts; in queues every task is contiguous."""
    rng = random.Random(seed)
    bucket = rng.choice([-1, 1, 2])
    job = Job(bucket=bucket)
    waiting = []
    for _ in range(50):
        for _ in range(rng.randint(0, 3)):
            sizes = [rng.choice([10, 10, 50, 300, 720, 1500]) for _ in range(rng.randint(1, 3))]
            place = {"partition": rng.choice("ab")}
            if rng.random() < 0.05:
                job.overwrite(*sizes, **place)
            else:
                job.append(*sizes, **place, bucket=rng.randrange(max(bucket, 1)))
        waiting += job.round(rng.choice([None, 1]))
        rng.shuffle(waiting)
        while waiting and rng.random() < 0.7:
            task = waiting.pop()
            end = rng.choices([TaskEnd.COMMITTED, TaskEnd.FAILED, TaskEnd.GIVEN_UP], [8, 1, 1])[0]
            if end is TaskEnd.COMMITTED and not _is_live(job, task):
                end = TaskEnd.GIVEN_UP
            job.work([task], end)  # a queue's task out of order would be refused
        if rng.random() < 0.03:
            job.restart()
            waiting.clear()
    for task in waiting:
        job.coordinator.done(task, TaskEnd.GIVEN_UP)
    for _ in range(60):
        job.work(job.round())
    assert job.coordinator.in_flight == ()
    assert job.coordinator.files <= 4 * max(bucket, 1)
    if bucket < 0:
        small = job.live.filter(job.live["file_size"] < 700)
        assert small.height <= 2 * 3


def _is_live(job, task):
    return {f.file_name for f in task.files} <= set(job.live["file_name"].to_list())
