"""The compaction beside a stream where its Spark jobs fail: what was committed before is never touched."""

from types import SimpleNamespace

import pytest

from anabranch.engine import LocalEngine
from anabranch.maintenance import rewrites
from anabranch.spark.context.notices import Notice
from anabranch.spark.tasks import compactor
from anabranch.spark.tasks.task_engine import SparkJobError
from tests.support.tables import ids_of, make_table, rows


class FailsLater(LocalEngine):
    """Its first job goes well; the next one writes its files, and is cancelled before it hands out a result."""

    jobs = 0

    def __init__(self, *_):
        pass

    def map(self, work, items, *, name):
        type(self).jobs += 1
        results = [*super().map(work, items, name=name)]
        if self.jobs > 1:
            raise SparkJobError("the query ended")
        yield from results


def test_a_job_that_fails_takes_nothing_away_from_one_that_was_committed(monkeypatch):
    table = make_table(
        "memory://compactor",
        schema="id BIGINT NOT NULL, v STRING",
        options={"compaction.min.file-num": "2", "compaction.max.file-num": "2"},
    )
    for i in range(8):
        table.append(rows(i, 1))
    monkeypatch.setattr(rewrites, "_WAVE_TASKS", 2)
    monkeypatch.setattr(compactor, "SparkEngine", FailsLater)
    monkeypatch.setattr(compactor, "_DYING_SECONDS", 0.0)
    beside = compactor.Compactor(SimpleNamespace(), Notice("query", table.context, {}), "run")
    beside._slots = 1
    with pytest.raises(SparkJobError):
        beside._compact()
    assert [str(s.commit_kind) for s in table.snapshots()].count("COMPACT") == 1
    assert ids_of(table) == [*range(8)]
    live = {file.path for split in table.scan().plan().splits for file in split.files}
    stored = {info.path for info in table.context.storage.list("bucket-0")}
    assert len(live) == 2 + 4
    assert len(stored) == 8 + 2, "of the job that failed nothing is left"
    assert live <= stored
    monkeypatch.setattr(FailsLater, "jobs", -100)
    for _ in range(20):
        beside._compact()
    assert ids_of(table) == [*range(8)]
