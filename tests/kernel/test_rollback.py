"""Rolling back as a new commit: what is there afterwards, for every reader, and what may come in between."""

import itertools
import json
import random
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CommitConflictError, InvalidInputError, NotFoundError, OptionError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.entry_frame import IDENTITY
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.properties import ROLLBACK_PROPERTY
from anabranch.kernel.log.rollback_pins import brings_back, tend_pins
from anabranch.kernel.log.tag_log import find_tags
from anabranch.runtime import Runtime, SystemClock
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Position
from tests.support.clock import at_time
from tests.support.dying import deaths, through
from tests.support.faults import FaultyStorage, run
from tests.support.foreign_expiry import delete_tag_as_others, expire_as_others
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
PLAIN = {"write-only": "true"}
KINDS = ("append", "overwrite", "overwrite", "rollback", "rollback", "tag", "untag", "expire")


@pytest.fixture
def table():
    return _table()


def _table(schema="id BIGINT NOT NULL, v STRING", **how):
    options = {**PLAIN, **how.pop("options", {})}
    return make_table(f"memory://rollback{next(_names)}", schema=schema, options=options, **how)


def _tags(table):
    return [info.path.removeprefix("tag/tag-") for info in table.context.storage.list("tag")]


def _entries(table, snapshot=None):
    manifests = table.context.manifests
    return manifests.entries(manifests.of_snapshot(snapshot or table.snapshot)).df


def _files(table, version=None):
    view = table if version is None else table.at(version)
    return {f.path for split in view.scan().plan().splits for f in split.files}


def _check_for_every_reader(table):
    """However it resolves entries, a reader finds the same files; each was added once."""
    frame = _entries(table)
    adds = frame.filter(pl.col("kind") == int(FileKind.ADD))
    assert adds.select(IDENTITY).is_unique().all()
    deleted = frame.filter(pl.col("kind") == int(FileKind.DELETE)).select(IDENTITY)
    by_difference = adds.join(deleted, on=IDENTITY, how="anti")["file_name"]
    assert sorted(by_difference) == sorted(path.rpartition("/")[2] for path in _files(table))
    assert table.snapshot.total_record_count == len(ids_of(table))


def test_after_appends(table):
    table.append(rows(0, 3))
    for start in (10, 20):
        table.append(rows(start, 2))
    result = table.rollback(1)
    assert ids_of(table) == [0, 1, 2]
    assert (result.snapshot.id, result.snapshot.commit_kind) == (4, "OVERWRITE")
    assert (result.changed.files_removed, result.changed.rows_removed) == (2, 4)
    assert (result.changed.files_restored, result.changed.rows_restored) == (0, 0)
    assert (result.snapshot.delta_record_count, result.snapshot.total_record_count) == (-4, 3)
    assert ids_of(table.at(3)) == [0, 1, 2, 10, 11, 20, 21]
    assert _tags(table) == [], "nothing came back, so nothing need be held"
    table.append(rows(30, 1))
    assert ids_of(table) == [0, 1, 2, 30]
    _check_for_every_reader(table)


def test_what_was_overwritten_comes_back(table):
    table.append(rows(0, 3))
    before = _files(table)
    table.overwrite(rows(10, 2))
    result = table.rollback("snapshot.1")
    assert _files(table) == before
    assert (result.changed.files_restored, result.changed.rows_restored) == (1, 3)
    assert result.snapshot.delta_record_count == 1
    _check_for_every_reader(table)
    table.overwrite(rows(40, 1))
    table.append(rows(41, 1))
    assert ids_of(table) == [40, 41]
    table.rollback(3)
    assert _files(table) == before
    _check_for_every_reader(table)


def test_a_rollback_is_rolled_back(table):
    table.append(rows(0, 3))
    table.overwrite(rows(10, 2))
    table.rollback(1)
    table.rollback(2)
    assert ids_of(table) == [10, 11]
    table.rollback(3)
    assert ids_of(table) == [0, 1, 2]
    assert table.snapshot.id == 5
    _check_for_every_reader(table)


def test_to_a_tag_and_a_savepoint_whose_snapshots_have_expired(table):
    table.append(rows(0, 3))
    table.create_tag("good")
    table.overwrite(rows(10, 2))
    table.create_savepoint()
    for start in (20, 30):
        table.overwrite(rows(start, 1))
    table.expire_snapshots(retain_max=2)
    assert [s.id for s in table.snapshots()] == [4, 3]
    table.rollback("good")
    assert ids_of(table) == [0, 1, 2]
    table.rollback("savepoint.1")
    assert ids_of(table) == [10, 11]
    assert json.loads(table.snapshot.properties[ROLLBACK_PROPERTY])["asked"] == "savepoint.1"
    _check_for_every_reader(table)


def test_on_a_branch(table):
    table.append(rows(0, 3))
    table.append(rows(3, 1))
    storage = table.context.storage
    for name in ("schema/schema-0", "snapshot/snapshot-1"):
        storage.put(f"branch/branch-fix/{name}", storage.get(name))
    fix = table.branch("fix")
    fix.overwrite(rows(10, 1))
    fix.rollback(1)
    assert (ids_of(fix), fix.snapshot.id) == ([0, 1, 2], 3)
    assert len(list(storage.list("branch/branch-fix/tag"))) == 2
    fix.rollback(1, destructive=True)
    assert (ids_of(fix), fix.snapshot.id, list(storage.list("branch/branch-fix/tag"))) == ([0, 1, 2], 1, [])
    assert ids_of(table) == [0, 1, 2, 3]


def test_nothing_to_do(table):
    table.append(rows(0, 3))
    assert table.rollback(1).snapshot == table.snapshot
    table.append(rows(3, 1))
    table.rollback(1)
    assert table.rollback(1).snapshot.id == 3


def test_a_dry_run_changes_nothing(table):
    table.append(rows(0, 3))
    table.overwrite(rows(10, 2))
    calls = FaultyStorage(table.context.storage)
    result = through(table, calls).rollback(1, dry_run=True)
    assert result.snapshot is None
    assert (result.changed.files_removed, result.changed.files_restored) == (1, 1)
    assert not {"put", "put_if_absent", "put_many", "delete"} & set(calls.counts())


def test_unknown_moments(table):
    table.append(rows(0, 1))
    with pytest.raises(NotFoundError, match="tag 'god' does not exist"):
        table.rollback("god")
    with pytest.raises(NotFoundError, match="the earliest is 1, the latest is 1"):
        table.rollback(7)
    with pytest.raises(InvalidInputError, match="the past cannot be written"):
        table.at(1).rollback(1)
    with pytest.raises(NotFoundError):
        _table().rollback(1)


def test_rows_are_read_under_the_newest_schema(table):
    table.append(rows(0, 2))
    table.overwrite(rows(5, 1))
    table.alter().add_column("n", "INT").drop_column("v").apply()
    table.append(pa.table({"id": [6], "n": pa.array([1], pa.int32())}))
    table.rollback(1)
    assert table.scan().to_arrow().to_pylist() == [{"id": 0, "n": None}, {"id": 1, "n": None}]
    assert table.snapshot.schema_id == 1


def test_the_watermark_is_that_of_the_moment(table):
    from anabranch.kernel.actions.append import Append
    from tests.support.tables import written

    for start, watermark in ((0, 100), (1, 200)):
        table.commit(Append(written(table, start, 1)), watermark=watermark)
    table.rollback(1)
    assert table.snapshot.watermark == 100
    assert table.commit(Append(written(table, 2, 1)), watermark=150).snapshot.watermark == 150


def test_queues_go_on_above_all_numbers_used():
    queue = _table(options={"bucket": "1"})
    queue.append(rows(0, 3))
    queue.append(rows(3, 2))
    queue.overwrite(rows(10, 4))
    queue.rollback(2)
    queue.append(rows(20, 2))
    frame = _entries(queue)
    ends = frame.filter(pl.col("kind") == int(FileKind.ADD)).sort("min_sequence_number")
    assert ends["max_sequence_number"].to_list() == [2, 4, 8, 10]
    assert queue.scan().to_arrow()["id"].to_pylist() == [0, 1, 2, 3, 4, 20, 21]
    cold = anabranch.Table(replace(queue.context, cache=MetadataCache()))
    cold.append(rows(30, 1))
    assert cold.scan().to_arrow()["id"].to_pylist()[-3:] == [20, 21, 30]


def _landing(table, commit_meanwhile):
    """A view of the table in whose first commit `commit_meanwhile` comes in between."""
    done = []

    def once(path):
        if not done:
            done.append(path)
            commit_meanwhile()

    fault = run("before", "put_if_absent", once, times=10**9, where="snapshot/*")
    return through(table, FaultyStorage(table.context.storage, [fault]))


def test_an_append_that_lands_before_is_rolled_away(table):
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    _landing(table, lambda: table.append(rows(10, 1))).rollback(1)
    assert ids_of(table) == [0, 1]
    assert table.snapshot.id == 4
    table.append(rows(20, 1))
    assert ids_of(table) == [0, 1, 20]


def test_an_append_that_lands_after_stays(table):
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    _landing(table, lambda: table.rollback(1)).append(rows(10, 1))
    assert ids_of(table) == [0, 1, 10]


def test_an_overwrite_meanwhile_makes_files_come_back(table):
    table.append(rows(0, 2))
    table.append(rows(2, 2))
    _landing(table, lambda: table.overwrite(rows(10, 1))).rollback(1)
    assert ids_of(table) == [0, 1]
    assert len(_tags(table)) == 2, "both lives of the files are held"
    _check_for_every_reader(table)


def test_files_that_are_not_there_any_more(table):
    table.append(rows(0, 2))
    lost = _files(table)
    table.overwrite(rows(10, 1))
    table.context.storage.delete_many(lost)
    with pytest.raises(CommitConflictError, match=r"FILE_GONE.*needs the data file bucket-0/data-") as caught:
        table.rollback(1)
    assert "roll back to another moment" in caught.value.hint
    assert table.snapshot.id == 2
    assert _tags(table) == []


@pytest.mark.parametrize("gone", ["list", "manifest"])
def test_a_moment_that_only_the_cache_still_knows(table, gone):
    """Another engine's expiry removed manifests of it and died before it removed the snapshot."""
    table.append(rows(0, 2))
    table.overwrite(rows(10, 1))
    target, layout = table.context.snapshots.find(1), table.context.layout
    (manifest,) = table.context.manifests.of_snapshot(target)
    path = layout.manifest_path(target.delta_manifest_list if gone == "list" else manifest.file_name)
    table.context.storage.delete(path)
    with pytest.raises(CommitConflictError, match="TARGET_NOT_WHOLE.*1 of") as caught:
        table.rollback(1)
    assert path in caught.value.message
    assert table.snapshot.id == 2
    assert _tags(table) == []
    table.append(rows(20, 1))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert ids_of(table) == [10, 20], "no pin that cannot be read stops the expiry"


def test_a_moment_that_is_removed_meanwhile(table):
    table.append(rows(0, 2))
    table.create_tag("good")
    table.overwrite(rows(10, 1))
    remove = run("after", "put_if_absent", lambda path: table.delete_tag("good"), where="tag/*")
    with pytest.raises(NotFoundError, match="was removed while"):
        through(table, FaultyStorage(table.context.storage, [remove])).rollback("good")
    assert table.snapshot.id == 2
    assert _tags(table) == []


def test_partitions_and_what_a_stream_sees():
    table = _table("id BIGINT, dt STRING", partition_by=["dt"])
    table.append(pa.table({"id": [1, 2], "dt": ["a", "b"]}))
    table.overwrite(pa.table({"id": [3], "dt": ["a"]}))
    start = Position(2, table.snapshot.stamp)
    table.rollback(1)
    assert ids_of(table) == [1, 2]
    with pytest.raises(OptionError, match="takes away rows"):
        Feed(table.context, table.schema).advance(start)
    skipping = Feed(table.context, table.schema, "skip")
    assert skipping.rows_between(start, skipping.advance(start)) == 0
    adding = Feed(table.context, table.schema, "added")
    splits = adding.splits(start, adding.advance(start))
    assert [f.path.startswith("dt=a/") for found in splits for f in found.split.files] == [True]


def test_a_streaming_writer_goes_on(table):
    from anabranch.kernel.actions.append import Append
    from tests.support.tables import written

    for batch in range(3):
        table.commit(Append(written(table, batch, 1)), identity=CommitIdentity("job", batch))
    table.rollback(1)
    assert table.commit(Append(written(table, 2, 1)), identity=CommitIdentity("job", 2)).repeated
    assert not table.commit(Append(written(table, 3, 1)), identity=CommitIdentity("job", 3)).repeated
    assert ids_of(table) == [0, 3]


def test_killed_at_every_storage_call(table):
    table.append(rows(0, 3))
    table.create_tag("good")
    table.overwrite(rows(10, 2))
    found = []
    for left in deaths(table, lambda t: t.rollback("good")):
        found.append(ids_of(left))
        left.rollback("good")
        assert ids_of(left) == [0, 1, 2]
        assert left.snapshot.id == 3, "one commit, however often it was tried"
        _check_pinned(left)
        _check_for_every_reader(left)
        assert ids_of(left.at(2)) == [10, 11]
    assert found[0] == [10, 11]
    assert found[-1] == [0, 1, 2]
    assert all(state in ([10, 11], [0, 1, 2]) for state in found)


def _check_pinned(table):
    """Of every rollback that brought files back, what it went to and what it made are held."""
    held = {tag.snapshot.stamp for tag in find_tags(table.context, _tags(table))}
    for snapshot in table.snapshots():
        if ROLLBACK_PROPERTY in snapshot.properties and brings_back(table.context, snapshot):
            target = json.loads(snapshot.properties[ROLLBACK_PROPERTY])["to"]
            assert {snapshot.stamp, target["stamp"]} <= held


class _Tomorrow(SystemClock):
    days = 0

    def now_millis(self):
        return super().now_millis() + self.days * 86_400_000


def test_pins_are_put_again_and_let_go_of(table):
    table.append(rows(0, 2))
    table.overwrite(rows(10, 1))
    table.rollback(1)
    target, result = sorted(_tags(table), reverse=True)
    assert target.endswith("-target")
    assert result.endswith("-result")
    table.context.storage.delete(f"tag/tag-{result}")
    assert tend_pins(table.context).restored == (result,)
    assert tend_pins(table.context) == tend_pins(_table().context), "nothing is left to do"
    table.create_tag("old", snapshot=2)
    table.append(rows(20, 1))
    table.append(rows(30, 1))
    table.expire_snapshots(retain_max=2)
    assert tend_pins(table.context).released == (), "a tag is older than the rollback"
    table.delete_tag("old")
    assert tend_pins(table.context).released == (result, target)
    assert _tags(table) == []


def test_the_pin_of_a_rollback_that_never_was_goes_after_a_day(table):
    table.append(rows(0, 2))
    table.overwrite(rows(10, 1))
    left = next(
        left for left in deaths(table, lambda t: t.rollback(1)) if _tags(left) and left.snapshot.id == 2
    )
    assert tend_pins(left.context).released == ()
    clock = _Tomorrow()
    clock.days = 2
    ahead = replace(left.context, runtime=Runtime(clock=clock))
    assert tend_pins(ahead).released == (), "the store's clock counts"
    assert len(tend_pins(at_time(left, clock).context).released) == 1
    assert _tags(left) == []


@pytest.mark.parametrize("seed", first_short(range(4)))
def test_other_engines_expiry_takes_nothing_that_is_needed(seed):
    _random_history(random.Random(seed), steps=40)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 112))
def test_other_engines_expiry_takes_nothing_that_is_needed_for_long(seed):
    _random_history(random.Random(seed), steps=200)


def _random_history(rng, steps):
    """Appends, overwrites, rollbacks, tags and expiries as others do them; all that is referred to stays readable."""
    table = _table()
    starts = itertools.count(0, 10)
    expected = {}

    def remember(snapshot):
        expected[snapshot.id] = ids_of(table)

    remember(table.append(rows(next(starts), 2)))
    for step in range(steps):
        retained = [s.id for s in table.snapshots()]
        named = table.tags()
        kind = rng.choice(KINDS)
        match kind:
            case "append":
                remember(table.append(rows(next(starts), 2)))
            case "overwrite":
                remember(table.overwrite(rows(next(starts), 1)))
            case "rollback":
                version = rng.choice([*retained, *named])
                wanted = expected[table.at(version).snapshot.id]
                remember(table.rollback(version).snapshot)
                assert ids_of(table) == wanted
                _check_for_every_reader(table)
            case "tag":
                table.create_tag(f"t{step}", snapshot=rng.choice(retained))
            case "untag" if named:
                rng.choice([anabranch.Table.delete_tag, delete_tag_as_others])(table, rng.choice(named))
            case "expire":
                expire_as_others(table, keep=rng.randint(1, 4))
                tend_pins(table.context)
        if kind not in ("untag", "expire"):
            continue  # only these delete files
        seen = through(table, table.context.storage)
        assert ids_of(seen) == expected[seen.snapshot.id]
        for version in [*(s.id for s in seen.snapshots()), *table.tags()]:
            view = seen.at(version)
            assert ids_of(view) == expected[view.snapshot.id]
