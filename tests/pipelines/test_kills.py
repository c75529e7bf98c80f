"""A correction killed at random points, and run again: the same as without kills, and readers see all of it or nothing."""

import shutil
import signal
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from anabranch.cascade import run_correction
from anabranch.storage.open import open_storage
from tests.pipelines.engines import Embedded
from tests.pipelines.life import Life
from tests.pipelines.oracle import Oracle, rows_of
from tests.pipelines.pipeline import pipeline
from tests.support.dying import Died, DyingStorage
from tests.support.faults import FaultyStorage

SEEDS = (2, 6, 16, 81)
"""With lookups, unions, batch jobs and jobs that are different each time."""


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("seed", "points"),
    [(16, 3), *(pytest.param(seed, 25, marks=pytest.mark.long) for seed in SEEDS)],
)
def test_killed_at_random_points_it_ends_in_the_same(seed, points):
    made = pipeline(seed, stateless=True)
    made.backfill = None
    life = Life(made, Embedded(made))
    before = counted(life.begin())
    whole = life.engine.copy()
    counting = FaultyStorage(whole.storage())
    corrected = correct(whole, whole.lake_on(counting))
    random, calls = Random(seed), len(counting.calls)
    tables = {table for table, _, _ in whole.lake().groups()[-1].tables}
    after = look(whole)
    check(life, after, tables)
    for at in sorted(random.sample(range(1, calls + 1), points)):
        left = life.engine.copy()
        with pytest.raises(Died):
            correct(left, left.lake_on(DyingStorage(left.storage(), at, after=random.random() < 0.5)))
        found = counted(look(left))
        is_new = [group for group in left.lake().groups() if group.outcome == "replaced"]
        assert bool(is_new) or found == before, at
        result = correct(left, left.lake())
        assert result.is_published, at
        assert (result.group is None) == bool(is_new), at
        assert len([group for group in left.lake().groups() if group.outcome == "replaced"]) == 1
        if is_new:
            assert found == counted(look(left)), at
        check(life, look(left), tables)
    assert corrected.group is not None


@pytest.mark.timeout(0)
@pytest.mark.parametrize("points", [1, pytest.param(20, marks=pytest.mark.long)])
def test_killed_by_the_system_it_ends_in_the_same(tmp_path, points):
    made = pipeline(16, stateless=True)
    random = Random(points)
    life = Life(made, Embedded(made, open_storage(tmp_path / "whole")))
    before = counted(life.begin())
    for number in range(points):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        call = str(random.randint(1, 700))
        command = [sys.executable, "-m", "tests.pipelines.correct_job", str(folder), "16", call]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-2_000:]
        left = Embedded(made, open_storage(folder))
        is_new = any(group.outcome == "replaced" for group in left.lake().groups())
        assert is_new or counted(look(left)) == before, call
        assert correct(left, left.lake()).is_published, call
        check(life, look(left), {table for table, _, _ in left.lake().groups()[-1].tables})


def correct(engine, lake):
    p = engine.pipeline
    return run_correction(lake, p.wrong.sink, "good", engine.jobs(), runner=engine.run_one)


def look(engine):
    """What readers see who pin all tables at one moment."""
    sinks = engine.pipeline.sinks
    pinned = dict(zip(sinks, engine.lake().together(*sinks), strict=True))
    return {step.sink: rows_of(pinned[step.sink], step) for step in engine.pipeline.steps}


def counted(found):
    return {table: Counter(rows) for table, rows in found.items()}


def check(life, found, tables):
    oracle = Oracle(life.pipeline, life.events, life.factors)
    assert oracle.check(found, at_end=False, but={*life.pipeline.sinks} - tables)
