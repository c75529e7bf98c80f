"""From where a job is to begin, to follow on what a snapshot of its sink holds."""

import json
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.jobs.positions import KnownPositions, indexed_positions, recorded_positions
from anabranch.jobs.source import FILES_READ
from anabranch.jobs.starts import reads_files_on, starts_at
from anabranch.kernel.log.main_branch import main_of
from anabranch.lineage.model import SourceInput
from tests.jobs.world import World, kafka, offset
from tests.support.lengths import first_short
from tests.support.tables import make_table


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.arrive(9)
    return world


def recorded(world, at, job="clean"):
    main = main_of(world.orders.context)
    return recorded_positions(main, main.snapshots.get(at), job).positions


def declared(sources):
    return anabranch.job("clean", sources=sources, sink="db.orders")(lambda **frames: None).sources


def matched(world, found, tables=None, *, is_complete=True, **sources):
    made = declared(sources)
    known = {name: world.raw.table_uuid for name, source in made.items() if source.kind == "table"}
    return starts_at(KnownPositions(tuple(found), is_complete), made, {**known, **(tables or {})})


def test_the_end_of_the_newest_batch_is_where_it_goes_on(world):
    world.commit(world.read(0, 3))
    world.commit(world.read(3, 5))
    world.commit(world.read(5, 9))
    (position,) = recorded(world, 2)
    assert (position.kind, position.name, offset(position)) == ("table", "db.raw", 5)
    begun = matched(world, [position], raw="db.raw")
    option = json.loads(begun.options["raw"]["scan.start-offset"])
    assert (option["table"], option["snapshot"], option["files"]) == (world.raw.table_uuid, 5, None)
    assert option["stamp"] == {s.id: s.stamp for s in world.raw.snapshots()}[5]


def test_a_source_that_a_batch_did_not_touch_stands_where_an_earlier_one_left_it(world):
    world.commit(world.read(0, 3), kafka(None, [10, 20]))
    world.commit(kafka([10, 20], [15, 20]))
    world.commit(world.read(3, 4))
    world.commit(kafka([15, 20], [99, 99]))
    found = {one.kind: one for one in recorded(world, 3)}
    assert offset(found["table"]) == 4
    assert json.loads(found["kafka"].position) == {"clicks": {"0": 15, "1": 20}}


def test_commits_of_others_and_compactions_do_not_matter(world):
    world.commit(world.read(0, 3))
    world.commit(kafka(None, [7]), job="other")
    world.orders.append([{"id": 5, "v": "by hand"}])
    world.orders.compact(full=True)
    head = world.orders.snapshot
    assert head.commit_kind == "COMPACT"
    (position,) = recorded(world, head.id)
    assert offset(position) == 3


def test_a_source_that_was_read_later_begins_where_its_first_batch_did(world):
    world.commit(world.read(0, 3))
    world.commit(world.read(3, 4))
    more = make_table(world.folder, "db.more")
    more.append([{"id": 1, "v": "x"}])
    world.commit(world.read(0, 1, more), kafka(None, [5]))
    found = {one.name: json.loads(one.position) for one in recorded(world, 1)}
    assert (found["db.raw"]["snapshot"], found["db.more"]["snapshot"]) == (3, 0)
    assert found["clicks"] == {"clicks": {"0": 5}}


def test_what_a_rollback_took_away_does_not_count(world):
    world.commit(world.read(0, 3))
    world.commit(world.read(3, 5))
    world.orders.rollback(1)
    (position,) = recorded(world, 3)
    assert offset(position) == 3


def test_a_query_that_began_anew_has_positions_of_its_own(world):
    world.commit(world.read(0, 3), kafka(None, [10]))
    world.commit(world.read(0, 2), query="q2")
    (position,) = recorded(world, 2)
    assert (position.kind, offset(position)) == ("table", 2)


def test_lookups_have_no_position(world):
    world.commit(world.read(0, 3), world.looked_up(world.raw, 2))
    (position,) = recorded(world, 1)
    assert offset(position) == 3


def test_without_a_commit_of_the_job_there_are_none(world):
    world.commit(world.read(0, 3), job="other")
    with pytest.raises(
        NotFoundError, match=r"holds no commit of job 'clean'.*\n.*there are commits of: other"
    ):
        recorded(world, 1)


def test_a_commit_that_does_not_know_them_is_an_error(world):
    world.commit(problems=("offsets of batch 0: gone",))
    with pytest.raises(
        CorruptTableError, match="does not say how far job 'clean' had read: offsets of batch 0"
    ):
        recorded(world, 1)


def test_topics_are_told_apart_by_their_names(world):
    world.commit(kafka(None, [1, 2], topic="a"), kafka(None, [3], topic="b", source="source 1"))
    found = recorded(world, 1)
    begun = matched(
        world,
        found,
        one=anabranch.topic("b", "h:1"),
        other=anabranch.topic("x", "h:1", {"subscribePattern": "a+"}),
    )
    assert begun.options == {
        "one": {"startingOffsets": '{"b":{"0":3}}'},
        "other": {"startingOffsets": '{"a":{"0":1,"1":2}}'},
    }
    (assigned,) = matched(
        world, found[:1], one=anabranch.topic("a", "h:1", {"assign": '{"a": [0, 1]}'})
    ).options
    assert assigned == "one"


def test_what_is_not_certain_is_an_error_that_lists_what_was_found(world):
    world.commit(kafka(None, [1], topic="a"), kafka(None, [3], topic="a", source="source 1"))
    with pytest.raises(InvalidInputError, match=r'read twice.*kafka a at \{"a":\{"0":1\}\}; kafka a at'):
        matched(world, recorded(world, 1), one=anabranch.topic("a", "h:1"))
    with pytest.raises(InvalidInputError, match=r"no recorded position is certain .* 'one'.*kafka a at"):
        matched(world, recorded(world, 1)[:1], one=anabranch.topic("b", "h:1"))


def test_a_table_that_was_created_anew_is_another_one(world):
    world.commit(world.read(0, 3))
    with pytest.raises(
        InvalidInputError, match=r"no recorded position is certain to be that of source 'raw'"
    ):
        matched(world, recorded(world, 1), {"raw": "other"}, raw="db.raw")


def test_two_streams_of_one_table_begin_together(world):
    world.commit(world.read(0, 3))
    begun = matched(world, recorded(world, 1), one="db.raw", other=anabranch.stream("db.raw"))
    assert begun.options["one"] == begun.options["other"]


def test_new_and_dropped_sources_are_told_of(world):
    world.commit(world.read(0, 3))
    begun = matched(world, recorded(world, 1), raw="db.raw", clicks=anabranch.topic("b", "h:1"))
    assert list(begun.options) == ["raw"]
    assert begun.notices == ("source 'clicks' was not read by then: it begins as it is declared",)
    begun = matched(
        world, recorded(world, 1), clicks=anabranch.topic("b", "h:1"), planes=anabranch.static("db.raw")
    )
    assert begun.notices[1:] == ("what was read of table db.raw is not a source of the job any more",)


def files_read(world, name):
    world.commit(SourceInput("files", "source 0", None, {"logOffset": 3}, name))
    return recorded(world, 1)


@pytest.mark.parametrize(
    "folder",
    first_short(
        ["/landing", "/landing/*/*.csv", "/landing/", "file:///landing", "/landing/of {a,b}/x.csv", "/"], 2
    ),
)
@pytest.mark.parametrize("name", ["file:/landing", "file:/landing/of %20 a?b#c", None])
def test_files_go_on_after_those_of_a_former_checkpoint(world, folder, name):
    found = files_read(world, name)
    begun = matched(world, found, late=anabranch.files(folder))
    assert begun.options == {"late": {FILES_READ: '{"logOffset":3}'}}
    assert reads_files_on(begun.options)


def test_files_of_another_folder_may_be_the_same_files(world):
    found = files_read(world, "s3a://bucket/landing/a")
    assert matched(world, found, late=anabranch.files("s3a://bucket/landing/*")).options
    with pytest.raises(InvalidInputError, match="no recorded position is certain"):
        matched(world, found, late=anabranch.files("s3a://other/landing/*"))
    with pytest.raises(
        InvalidInputError, match=r"no recorded position is certain .* 'late' .* s3a://bucket/landing/a at"
    ):
        matched(world, found, late=anabranch.files("s3a://bucket/landing/ab"))


def test_what_cannot_begin_in_the_middle_is_refused(world):
    found = files_read(world, "file:/landing")
    with pytest.raises(InvalidInputError, match=r"source 'late' .* cannot begin at a recorded position"):
        matched(world, found, late=lambda spark: spark)
    with pytest.raises(InvalidInputError, match="which of the sources a, b had read which files"):
        matched(world, found, a=anabranch.files("/landing"), b=anabranch.files("/other"))


def test_what_has_expired_is_not_taken_for_new(world):
    more = make_table(world.folder, "db.more")
    more.append([{"id": 1, "v": "x"}])
    world.commit(world.read(0, 1, more), world.read(0, 1))
    for start in range(1, 5):
        world.commit(world.read(start, start + 1))
    main = main_of(world.orders.context)
    moment = main.snapshots.get(4)
    assert recorded_positions(main, moment, "clean").is_complete
    world.orders.create_tag("good", 4)
    world.orders.expire_snapshots(retain_max=2, retain_min=1, older_than="0 ms")
    known = recorded_positions(main, moment, "clean")
    assert ([one.name for one in known.positions], known.is_complete) == (["db.raw"], False)
    sources = {"raw": "db.raw", "more": "db.more"}
    tables = {"raw": world.raw.table_uuid, "more": more.table_uuid}
    with pytest.raises(InvalidInputError, match=r"not known how far source 'more' .* have expired"):
        starts_at(known, declared(sources), tables)
    told = indexed_positions(world.orders.lineage.positions("good"), "clean")
    begun = starts_at(known.with_more(told), declared(sources), tables)
    assert [json.loads(o["scan.start-offset"])["snapshot"] for o in begun.options.values()] == [4, 1]
    old = [
        replace(one, unread=("db.orders: cannot be read",)) for one in world.orders.lineage.positions("good")
    ]
    with pytest.raises(
        CorruptTableError, match=r"not certain how far job 'clean' had read: .* db.orders: cannot be read"
    ):
        indexed_positions(old, "clean")


def test_partitions_that_a_topic_got_since_begin_where_the_query_entered_them(world):
    world.commit(kafka(None, [5, 6]))
    world.commit(kafka([5, 6], [9, 9]))
    world.commit(kafka([9, 9], [9, 9, 30]))
    world.commit(kafka([9, 9, 30], [12, 9, 40, 2]))
    (position,) = recorded(world, 2)
    assert json.loads(position.position) == {"clicks": {"0": 9, "1": 9, "2": 30, "3": 2}}
    more = kafka(None, [1], topic="more", source="source 1")
    world.commit(more, kafka([12, 9, 40, 2], [13, 9, 40, 2]))
    assert json.loads(recorded(world, 2)[1].position) == {"more": {"0": 1}}
