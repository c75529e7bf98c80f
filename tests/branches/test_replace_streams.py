"""Streams of main when main is replaced: each policy, consumers, restarts, and mains one after the other."""

import json
from dataclasses import replace

import pytest

from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.consumers import find_consumer
from anabranch.lineage.coverage import coverage
from anabranch.lineage.model import LINEAGE_PROPERTY, Engine, LineageEntry, SourceInput
from anabranch.lineage.overlap import first_overlap
from anabranch.streaming.course import Course, Place
from anabranch.streaming.feed import Feed
from anabranch.streaming.offsets import Offset, Position
from tests.branches.replace_streams import caught_up, commit, origin
from tests.branches.replacing import BEFORE, BEGIN, again, parted
from tests.support.tables import ids_of, rows, written

CHANGES = {"scan.on-overwrite": "changes", "scan.on-replace": "changes"}


def view(table, policy):
    return again(table).with_options(CHANGES if policy == "changes" else {"scan.on-replace": policy})


def read(tail):
    """Ids, those taken away as negative numbers."""
    return [
        -row["id"] if row.get("_change") == "delete" else row["id"]
        for batch in tail
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    ("policy", "crossing"), [("continue", []), ("replay", [100]), ("changes", [-1000, 100])]
)
@pytest.mark.parametrize("consumer", [None, "c"])
def test_a_stream_drains_the_old_main_and_crosses(policy, crossing, consumer):
    table = parted()
    tail = view(table, policy).tail(consumer, idle=0)
    assert sorted(read(tail)) == [*BEFORE, 1000]
    table.append(rows(1001, 1))
    table.replace_main_branch("fix")
    if policy == "changes":
        crossing = [-1000, -1001, 100]
    table.append(rows(500, 1))
    # The difference is that to what the new main is when it is crossed to.
    assert read(tail) == [1001, *crossing, 500]
    assert read(tail) == []
    table.append(rows(501, 1))
    assert read(tail) == [501]


def test_fail_names_where_the_two_parted():
    table = parted()
    tail = again(table).tail(idle=0)
    table.append(rows(1001, 1))
    table.replace_main_branch("fix")
    found = []
    with pytest.raises(
        OptionError, match="has read the old main to its last snapshot, 4; up to snapshot 2"
    ) as stopped:
        found.extend(batch["id"].to_pylist() for batch in tail)
    assert sorted(i for ids in found for i in ids) == [*BEFORE, 1000, 1001]
    assert "its newest is 3" in stopped.value.message
    assert "diff('main@1', 'main')" in stopped.value.hint
    assert "`anabranch cascade db.t --plan`" in stopped.value.hint


def test_a_consumer_that_failed_goes_on_by_another_policy():
    table = parted()
    tail = again(table).tail("c", idle=0)
    read(tail)
    table.replace_main_branch("fix")
    for _ in range(2):
        with pytest.raises(OptionError):
            read(again(table).tail("c", idle=0))
    former = table.branch("main@1")
    assert find_consumer(former.context, "c").next_snapshot == 5
    assert read(view(table, "replay").tail("c", idle=0)) == [100]
    assert find_consumer(former.context, "c") is None
    assert find_consumer(again(table).branch("main").context, "c").next_snapshot == 4


def test_a_consumer_of_an_old_main_keeps_it_from_being_dropped():
    table = parted()
    tail = again(table).tail("c", idle=0)
    read(tail)
    table.replace_main_branch("fix")
    held = table.with_options({"branch.replaced-main.time-retained": "1 ms"})
    assert held.maintain().mains.kept == (("main@1", "consumer 'c'"),)
    read(view(table, "continue").tail("c", idle=0))
    assert held.maintain().mains.dropped == ("main@1",)


def test_an_undecided_replacement_is_no_end():
    table = parted()
    tail = view(table, "replay").tail(idle=0)
    read(tail)
    seal = table.context.snapshots.get(3)
    stayed = table.replace_main_branch  # a replacement that comes to nothing
    with pytest.raises(NotFoundError):
        stayed("fox")
    assert seal.id == 3
    table.append(rows(1001, 1))
    assert read(tail) == [1001]


def test_a_stream_goes_through_several_mains():
    table = parted()
    tail = view(table, "replay").tail("c", idle=0)
    read(tail)
    table.replace_main_branch("fix")
    table.create_tag("better")
    table.create_branch("next", "better")
    table.branch("next").append(rows(200, 1))
    table.append(rows(101, 1))
    table.replace_main_branch("next")
    table.append(rows(201, 1))
    assert read(tail) == [100, 200, 201]  # 101 was taken out before the stream came to it


def test_a_stream_that_lags_behind_a_correction_never_has_the_rows_that_it_took_out():
    table = parted(main=0)
    assert read(again(table).tail("c", idle=0)) == BEFORE  # scan.on-replace is fail
    table.append(rows(1000, 1))
    table.replace_main_branch("fix")
    table.append(rows(101, 1))
    assert read(again(table).tail("c", idle=0)) == [100, 101]


@pytest.mark.parametrize("policy", ["fail", "continue", "replay", "changes"])
def test_a_stream_that_has_read_what_two_mains_have_in_common_goes_on_with_the_new_one(policy):
    table = parted(main=0)
    tail = view(table, policy).tail("c", idle=0)
    assert read(tail) == BEFORE
    table.replace_main_branch("fix")
    table.append(rows(101, 1))
    assert read(tail) == [100, 101]


def test_what_is_taken_back_before_it_was_seen_is_as_if_it_had_not_been():
    table = parted()
    tail = again(table).tail("c", idle=0)  # scan.on-replace is fail
    read(tail)
    table.replace_main_branch("fix")
    table.undo_replace()
    table.append(rows(1001, 1))
    assert read(tail) == [1001]


@pytest.mark.parametrize(
    ("policy", "back"),
    [("continue", [1001]), ("replay", [1000, 1001]), ("changes", [-100, -101, 1000, 1001])],
)
def test_a_stream_goes_back_with_main(policy, back):
    table = parted()
    tail = view(table, policy).tail("c", idle=0)
    read(tail)
    table.replace_main_branch("fix")
    table.append(rows(101, 1))
    read(tail)
    table.undo_replace()
    table.append(rows(1001, 1))
    found = read(tail)
    assert sorted(found) == sorted(back)
    table.replace_main_branch("fix")
    table.append(rows(102, 1))
    assert 102 in read(tail)


def test_a_stream_of_a_branch_by_its_name_stays_there():
    table = parted()
    tail = table.branch("fix").tail(idle=0)
    assert sorted(read(tail)) == [*BEFORE, 100]
    table.replace_main_branch("fix")
    table.append(rows(101, 1))
    assert read(tail) == [101]
    table.undo_replace()
    table.append(rows(7, 1))
    assert read(tail) == []


def test_columns_of_the_new_main_are_read_by_their_ids():
    table = parted(fix=0)
    fix = table.branch("fix")
    fix.alter().rename_column("v", "w").add_column("x", "INT").apply()
    fix.append([{"id": 100, "w": "hundred", "x": 1}])
    table.alter().add_column("own", "STRING").apply()  # the same version number says something else on both
    table.append([{"id": 7, "v": "seven", "own": "o"}])
    tail = view(table, "replay").tail(idle=0)
    list(tail)
    table.replace_main_branch("fix")
    assert [row for batch in tail for row in batch.to_pylist()] == [{"id": 100, "v": "hundred", "own": None}]
    assert again(table).scan("id = 100").to_arrow().to_pylist() == [{"id": 100, "w": "hundred", "x": 1}]


def test_changes_need_the_column_for_them():
    with pytest.raises(OptionError, match=r"scan.on-replace is 'changes', but scan.on-overwrite is 'fail'"):
        view(parted(), "changes").with_options({"scan.on-overwrite": "fail"}).tail(idle=0)


def test_a_new_stream_begins_with_the_new_main():
    table = parted()
    table.replace_main_branch("fix")
    assert sorted(read(again(table).tail(idle=0))) == [*BEFORE, 100]
    assert sorted(read(again(table).tail(start=1, idle=0))) == [*BEFORE, 100]


# Restarts: an offset says all


def course_of(table, policy):
    seen = view(table, policy)
    feed = Feed.of(seen.context, seen.schema, seen.options)
    return Course(feed, seen.options), feed


@pytest.mark.parametrize("policy", ["continue", "replay", "changes"])
def test_steps_between_mains_are_the_same_when_they_are_asked_for_again(policy):
    table = parted()
    course, feed = course_of(table, policy)
    end = Place(feed, feed.advance(Position(0, None)))
    table.replace_main_branch("fix")
    table.append(rows(500, 1))
    sealed = Place(feed, feed.advance(end.position))
    there = course.next(sealed)
    assert there.feed.context.branch == "fix"
    planned = course.splits(sealed, there)
    stored = [
        json.dumps(Offset(table.table_uuid, p.feed.context.branch_uuid, "db.t", p.position).to_dict())
        for p in (sealed, there)
    ]
    table.append(rows(501, 1))
    later, _ = course_of(table, policy)
    offsets = [Offset.from_dict(json.loads(text)) for text in stored]
    places = [Place(later.feed_of(offset.branch_uuid), offset.position) for offset in offsets]
    assert later.splits(*places) == planned
    assert bool(planned) == (policy == "changes")
    assert later.next(places[1]) is None


def test_offsets_of_other_branches_are_not_taken_for_those_of_main():
    table = parted()
    table.create_branch("other", "good")
    table.replace_main_branch("fix")
    course, _ = course_of(table, "replay")
    assert course.feed_of(table.branch("main@1").branch_uuid).context.branch is None
    assert course.feed_of(table.branch("other").branch_uuid) is None
    by_name = table.branch("fix")
    alone = Course(Feed.of(by_name.context, by_name.schema, {}), {})
    assert alone.feed_of(table.branch("main@1").branch_uuid) is None


def test_a_difference_that_is_not_known_any_more_is_an_error():
    table = parted()
    course, feed = course_of(table, "changes")
    table.replace_main_branch("fix")
    sealed = Place(feed, feed.advance(Position(0, None)))
    there = course.next(sealed)
    lost = Place(there.feed, replace(there.position, stamp="0" * 32))
    with pytest.raises(InvalidInputError, match="not known any more"):
        course.splits(sealed, lost)


# By the positions of sources


def test_continue_goes_on_beyond_the_positions_of_the_old_main():
    table = caught_up([25, 35, 40, 45, 60])
    tail = view(table, "continue").tail("c", idle=0)
    read(tail)
    table.replace_main_branch("fix")
    assert read(tail) == [2045, 2060]


def test_a_commit_across_the_end_of_the_old_main_is_not_left_out():
    table = caught_up([25, 45])
    tail = view(table, "continue").tail("c", idle=0)
    read(tail)
    table.replace_main_branch("fix")
    assert read(tail) == [2045]


@pytest.mark.parametrize(("ends", "behind"), [([], 2), ([25], 2), ([30], 1), ([35], 1), ([40], 0), ([60], 0)])
def test_how_far_a_branch_is(ends, behind):
    table = caught_up(ends)
    fix = table.branch("fix")

    def since(view):
        return [s for s in reversed(list(view.snapshots())) if s.id > 2]

    assert coverage(since(table), since(fix), None).behind == behind


@pytest.mark.parametrize("first", [[25], []], ids=["begun", "its job has yet to make a commit"])
def test_wait_until_the_branch_has_caught_up(first):
    table = caught_up(first)
    fix, slept = table.branch("fix"), []
    ends = iter([25, 30, 35, 40][len(first) :])

    class Job:
        """The job of the branch goes on while the replacement waits."""

        def __init__(self, time):
            self.time = time

        def sleep(self, seconds):
            self.time.sleep(seconds)
            slept.append(seconds)
            end = next(ends, None)
            if end is not None:
                commit(fix, 2000 + end, 1, end - 5, end)

    runtime = replace(table.context.runtime, sleeper=Job(table.context.runtime.clock))
    waiting = type(table)(replace(table.context, runtime=runtime))
    waiting.replace_main_branch("fix", wait=True)
    # It waited until the branch had all, and sealed main then.
    assert ids_of(table) == [*BEFORE, 2025, 2030, 2035, 2040]
    assert len(slept) == 4 - len(first)


def test_wait_gives_up_in_time():
    table = caught_up([25])
    with pytest.raises(Exception, match="is 2 commits behind main and did not catch up in time") as refused:
        table.replace_main_branch("fix", wait="10 s")
    assert refused.value.conflicts[0].kind == "TOO_FAR_BEHIND"
    assert table.snapshot.id == 4


@pytest.mark.long
def test_a_branch_that_stops_one_commit_behind_is_not_put_in_place():
    table = caught_up([30])
    before = table.snapshot
    for wait in ("2 min", True):
        with pytest.raises(Exception, match="did not catch up in time"):
            table.replace_main_branch("fix", wait=wait)
    assert table.snapshot == before, "main was never sealed in vain"
    assert table.context.runtime.clock.millis - BEGIN < 2 * 3_600_000, (
        "it waits an hour unless it is told otherwise"
    )
    table.append(rows(7, 1))
    assert 7 in ids_of(again(table))


def test_what_the_branch_will_never_have_is_named_job_by_job_at_once():
    table = caught_up([25])
    fix = table.branch("fix")
    for number, (job, place) in enumerate([("nightly", "2024"), ("nightly", "2025"), ("repair", "x")]):
        entry = LineageEntry(
            job, None, None, Engine("python"), (SourceInput("files", "s", None, {"logOffset": 3}, place),)
        )
        table.commit(
            Append(written(table, 5000 + number, 1)),
            identity=CommitIdentity(f"{job}{number}@x", 1),
            properties={LINEAGE_PROPERTY: entry.to_json()},
        )
    looked = table.replace_main_branch("fix", dry_run=True)
    assert [(c.snapshot, c.job) for c in looked.only_on_main] == [
        (5, "nightly"),
        (6, "nightly"),
        (7, "repair"),
    ]
    before = table.context.runtime.clock.millis
    with pytest.raises(Exception, match=r"snapshots 5, 6 of main of 'db.t' by job 'nightly'") as refused:
        table.replace_main_branch("fix", wait=True)
    assert [c.kind for c in refused.value.conflicts] == ["ONLY_ON_MAIN", "ONLY_ON_MAIN"]
    assert "`anabranch run FILE --branch fix`" in refused.value.hint
    assert table.context.runtime.clock.millis - before < 1000, "it did not wait for what cannot come"
    assert table.snapshot.id == 7, "nor was main sealed"
    assert ids_of(fix) == [*BEFORE, 2025]


def test_waiting_for_what_is_not_known_needs_a_person():
    table = parted()
    with pytest.raises(Exception, match="not known how far .* snapshot 3 of main") as refused:
        table.replace_main_branch("fix", wait=True)
    assert refused.value.conflicts[0].kind == "POSITIONS_UNKNOWN"
    table.replace_main_branch("fix", wait=True, force=True)
    assert ids_of(table) == [*BEFORE, 100]


def test_sources_that_cannot_be_compared_are_not_known():
    table = parted(fix=0, main=0)
    commit(table, 1000, 1, 1, 2, kind="unknown")
    commit(table.branch("fix"), 2000, 1, 1, 2, kind="unknown")
    main, fix = ([s for s in t.snapshots() if s.id > 2] for t in (table, table.branch("fix")))
    assert coverage(main, fix, None) is None


@pytest.mark.parametrize(
    ("start", "end", "common"),
    [(20, 25, True), (0, 20, False), (45, 60, False), (39, 41, True), (None, 21, True), (25, 25, False)],
)
def test_ranges_that_have_something_in_common(start, end, common):
    table = caught_up([], main_ends=(30, 45))
    entry = LineageEntry.from_json(origin("j", start, end)[LINEAGE_PROPERTY], where="test")
    found = first_overlap(entry, [*table.snapshots()][1::-1], after=2, besides="nobody")
    assert (found is not None) == common
