"""Replacing main in several tables at once, taking that back, and what is seen of it from every side."""

import pickle
import re
from dataclasses import replace

import pytest

import anabranch
from anabranch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
)
from anabranch.format.records.main_pointer import (
    MAIN_PREFIX,
    BranchRef,
    GroupDecision,
    GroupIntent,
    GroupMember,
)
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.main_pointer import find_pointer, newest_pointer, numbers, replacements
from anabranch.table.grouping import replace_together
from tests.branches.grouping import NEW, OLD, again, all_ids, copy_of, lake_on, parted_lake, storage_of
from tests.branches.replacing import Time
from tests.support.faults import FaultyStorage, lose_answer, lose_request, run
from tests.support.tables import SCHEMA, ids_of, rows

BOTH = {"db.a": "fix", "db.b": "fix"}


class Killed(BaseException):
    pass


def kill(path):
    raise Killed


def undecided(lake=None, *, at="groups/*.decided", time=None):
    """A warehouse whose replacement of both mains died right before that file was put."""
    lake = lake or parted_lake()
    dying = lake_on(FaultyStorage(storage_of(lake), [run("before", "put_if_absent", kill, where=at)]), time)
    with pytest.raises(Killed):
        dying.replace_group(BOTH)
    return lake


def test_records_are_read_as_they_were_written():
    member = GroupMember("db.a", "u", BranchRef("fix", "v"), 3)
    for intent in (
        GroupIntent((member,), 5, 4, "me", "why", 2, "t"),
        GroupIntent((), 5, 4, None, None, None, "t"),
    ):
        assert GroupIntent.from_json(intent.to_json(), path="p") == intent
    for outcome in ("replaced", "stay"):
        decision = GroupDecision("t", outcome, 5, None, "u")
        assert GroupDecision.from_json(decision.to_json(), path="p") == decision


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"nothing", "no readable JSON"),
        (b'{"version": 0}', "out of range"),
        (b'{"version": 1, "group": "t", "outcome": "perhaps"}', "expected 'replaced' or 'stay'"),
    ],
)
def test_a_damaged_decision_is_an_error_and_no_other_main(data, message):
    lake = undecided()
    storage_of(lake).put("groups/GROUP-1.decided", data)
    for name in BOTH:
        for act in (ids_of, lambda table: table.append(rows(900, 1)), lambda table: table.maintain()):
            with pytest.raises(CorruptTableError, match=message):
                act(lake.table(name))
        (problem,) = lake.table(name).verify().problems
        assert (str(problem.kind), problem.repair) == ("pointer", None)
        assert re.search(message, problem.message)
        done = lake.table(name).repair()
        assert (done.steps, len(done.left)) == ((), 1)


def test_all_mains_are_replaced_and_taken_back_together():
    lake = parted_lake()
    held = lake.table("db.b")
    made = lake.replace_group(BOTH, by="me", reason="wrong unit")
    assert [name for name, _ in made.tables] == ["db.a", "db.b"]
    assert (made.number, made.repeated, made.tables[0][1].former) == (1, False, "main@1")
    assert all_ids(lake) == [NEW, NEW]
    assert ids_of(held) == NEW
    assert ids_of(held.branch("main@1")) == OLD
    assert lake.replace_group(BOTH).repeated
    assert lake.replace_group({"db.b": "fix"}).number == 1
    held.append(rows(500, 1))

    back = lake.undo_group()
    assert (back.number, back.undoes, back.repeated) == (2, 1, False)
    assert all_ids(lake) == [OLD, OLD]
    assert ids_of(held.branch("fix")) == [*NEW, 500]
    assert lake.undo_group(1).repeated
    assert lake.undo_group().repeated

    assert lake.replace_group(BOTH).number == 3
    assert all_ids(lake) == [NEW, sorted([*NEW, 500])]
    assert [(g.number, g.outcome, g.undoes, g.reason) for g in lake.groups()] == [
        (1, "replaced", None, "wrong unit"),
        (2, "replaced", 1, None),
        (3, "replaced", None, None),
    ]
    assert lake.groups()[0].tables == tuple(sorted(lake.groups()[0].tables, key=lambda t: _uuid(lake, t[0])))


def _uuid(lake, name):
    return lake.table(name).table_uuid


def test_the_log_of_branches_names_the_group():
    lake = parted_lake()
    lake.replace_group(BOTH)
    told = lake.table("db.a").system("branches_log").to_pylist()
    assert any('"group":1' in row["details"] for row in told)


def test_nothing_is_done_on_a_dry_run():
    lake = parted_lake()
    planned = lake.replace_group(BOTH, dry_run=True)
    assert planned.dry_run
    assert planned.number is None
    assert "would replace main of db.a, db.b" in str(planned)
    assert all_ids(lake) == [OLD, OLD]
    assert not lake.groups()


def test_what_stands_in_the_way_of_one_stands_in_the_way_of_all_and_is_listed_together():
    lake = parted_lake()
    for name in BOTH:
        lake.table(name).create_tag("mine", 1)
        lake.table(name).branch("fix").create_tag("mine")
    for dry_run in (True, False):
        with pytest.raises(CommitConflictError) as error:
            lake.replace_group(BOTH, dry_run=dry_run)
        assert [c.kind for c in error.value.conflicts] == ["TAG_CLASH", "TAG_CLASH"]
        assert "db.a" in str(error.value)
        assert "db.b" in str(error.value)
    with pytest.raises(CommitConflictError, match=r"db\.b: .*passed no audit"):
        lake.replace_group(BOTH, require_audit=True, force=True)
    assert all_ids(lake) == [OLD, OLD]
    assert not lake.groups()
    assert not replacements(lake.table("db.a").context)


def test_main_of_one_table_is_not_where_it_was_expected():
    lake = parted_lake()
    with pytest.raises(CommitConflictError, match=r"db\.b: .*expected at snapshot 1"):
        lake.replace_group(BOTH, expect_main={"db.a": 2, "db.b": 1})

    def append(path):
        if not moved:
            moved.append(path)
            again(lake).table("db.b").append(rows(7, 1))

    moved = []
    racing = lake_on(
        FaultyStorage(
            storage_of(lake), [run("before", "put_if_absent", append, where="db.db/b/branch/SEAL-*")]
        )
    )
    with pytest.raises(CommitConflictError, match="MAIN_MOVED"):
        racing.replace_group(BOTH, expect_main={"db.a": 2, "db.b": 2})
    assert all_ids(lake) == [OLD, sorted([*OLD, 7])]
    assert [g.outcome for g in lake.groups()] == ["stay"]
    begun = Time()
    again(lake, begun).table("db.a").append(rows(8, 1))
    assert begun.millis < Time().millis + 1_000, "nobody waits for what was given up"


def test_what_cannot_be_a_group():
    lake, other = parted_lake(), parted_lake("db.c")
    with pytest.raises(InvalidInputError, match="no table is named"):
        lake.replace_group({})
    with pytest.raises(NotFoundError):
        lake.replace_group({"db.a": "fix", "db.b": "unknown"})
    with pytest.raises(InvalidInputError, match=r"db\.c"):
        lake.replace_group(BOTH, expect_main={"db.c": 1})
    with pytest.raises(InvalidInputError, match="is named twice"):
        lake.replace_group({"db.a": "fix", "db.a$branch_fix": "fix"})
    with pytest.raises(InvalidInputError, match="not all of one warehouse"):
        replace_together([(lake.table("db.a"), "fix"), (other.table("db.c"), "fix")])
    lake.table("db.a").replace_main_branch("fix")
    with pytest.raises(InvalidInputError, match="is the main branch of 'db.a' already"):
        lake.replace_group(BOTH)
    with pytest.raises(NotFoundError, match="ever replaced together"):
        lake.undo_group()
    with pytest.raises(NotFoundError, match="there is no group 7"):
        lake.undo_group(7)


def test_a_table_of_a_group_is_taken_back_alone_only_if_that_is_asked_for():
    lake = parted_lake()
    lake.replace_group(BOTH)
    table = lake.table("db.a")
    with pytest.raises(InvalidInputError, match=r"together with that of db\.b, as group 1") as error:
        table.undo_replace()
    assert "cascade --undo 1" in (error.value.hint or "")
    table.undo_replace(alone=True)
    assert all_ids(lake) == [OLD, NEW]
    with pytest.raises(InvalidInputError, match="does not count any more in db.a:") as error:
        lake.undo_group(1)
    assert error.value.hint == "take it back in db.b with `undo-replace --alone`."
    lake.table("db.b").undo_replace(alone=True)
    assert all_ids(lake) == [OLD, OLD]
    with pytest.raises(InvalidInputError, match="in db.a, db.b: it was taken back there alone") as error:
        lake.undo_group()
    assert error.value.hint == "nothing of it is left to take back."


def test_a_group_that_was_taken_back_is_said_to_be():
    lake = parted_lake()
    lake.replace_group(BOTH)
    lake.undo_group(1)
    with pytest.raises(InvalidInputError, match="group 2 took back group 1 itself") as error:
        lake.undo_group(2)
    assert "put the same branches in place again" in (error.value.hint or "")
    lake.replace_group(BOTH)
    with pytest.raises(InvalidInputError, match="group 1 was taken back by group 2 already") as error:
        lake.undo_group(1)
    assert "cascade --groups" in (error.value.hint or "")
    assert all_ids(lake) == [NEW, NEW]


def test_the_tables_of_a_group_are_found_by_what_they_are_not_by_their_names():
    lake = parted_lake()
    lake.replace_group(BOTH)
    lake.rename_table("db.a", "db.renamed")
    lake.create_table("db.a", SCHEMA)
    assert lake.undo_group().undoes == 1
    assert all_ids(lake, "db.renamed", "db.b") == [OLD, OLD]


def test_a_group_of_which_a_table_was_dropped_is_taken_back_in_each_of_the_others():
    lake = parted_lake()
    lake.replace_group(BOTH)
    lake.drop_table("db.a")
    lake.create_table("db.a", SCHEMA)
    with pytest.raises(NotFoundError, match=r"in all of its tables: db\.a was dropped since") as error:
        lake.undo_group()
    assert "`undo-replace --alone`: db.b." in (error.value.hint or "")
    lake.table("db.b").undo_replace(alone=True)
    assert ids_of(lake.table("db.b")) == OLD
    lake.drop_table("db.b")
    with pytest.raises(NotFoundError, match=r"db\.a, db\.b were dropped since"):
        lake.undo_group(1)


def test_the_last_group_is_none_that_was_taken_back_but_by_the_last_call():
    """Groups 1 and 2 of other tables; who repeats a call that took back 2 does not mean 1."""
    lake = parted_lake("db.a", "db.b", "db.c", "db.d")
    others = {"db.c": "fix", "db.d": "fix"}
    lake.replace_group(BOTH)
    lake.replace_group(others)
    assert (lake.undo_group().undoes, lake.undo_group().repeated) == (2, True)
    assert all_ids(lake) == [NEW, NEW]
    lake.undo_group(1)
    assert (lake.undo_group().undoes, lake.undo_group().repeated) == (1, True)
    lake.replace_group(others)
    lake.undo_group()
    lake.table("db.c").replace_main_branch("fix")
    with pytest.raises(InvalidInputError, match="group 5 was taken back by group 6 already"):
        lake.undo_group()


def test_a_group_is_not_taken_back_below_a_later_replacement():
    lake = parted_lake()
    lake.replace_group(BOTH)
    table = lake.table("db.b")
    table.create_tag("later")
    table.create_branch("next", "later")
    table.replace_main_branch("next")
    with pytest.raises(InvalidInputError, match="not the last one that counts"):
        lake.undo_group(1)
    assert ids_of(lake.table("db.a")) == NEW


def test_nobody_sees_what_is_not_decided_and_after_the_deadline_all_mains_stay():
    lake = undecided()
    for name in BOTH:
        context = lake.table(name).context
        assert numbers(context, MAIN_PREFIX) == [1]
        assert newest_pointer(context) is None
        assert find_pointer(context, 1) is None
    assert all_ids(lake) == [OLD, OLD]
    assert [g.outcome for g in lake.groups()] == ["undecided"]

    time = Time()
    writer = again(lake, time).table("db.b")
    begun = time.millis
    writer.append(rows(500, 1))
    assert 29_000 < time.millis - begun < 32_000
    assert [g.outcome for g in lake.groups()] == ["stay"]
    # It was decided for the other table too: there nobody waits again.
    time = Time()
    other = again(lake, time).table("db.a")
    other.append(rows(501, 1))
    assert time.millis - begun < 1_000
    assert all_ids(lake) == [sorted([*OLD, 501]), sorted([*OLD, 500])]
    assert find_pointer(other.context, 1).replaced is None

    # The number is used up: a pointer that was proposed is none of the next group.
    made = lake.replace_group(BOTH)
    assert [result.number for _, result in made.tables] == [2, 2]
    assert all_ids(lake) == [NEW, NEW]


def test_a_group_that_was_not_made_leaves_main_with_the_past_that_it_had():
    lake = parted_lake()
    for name in BOTH:
        table = lake.table(name)
        table.replace_main_branch("fix")
        table.append(rows(101, 1))
        table.create_tag("better")
        table.create_branch("next", "better")
        table.branch("next").append(rows(102, 1))
    nexts = dict.fromkeys(BOTH, "next")
    before = [[s.id for s in table.snapshots()] for table in lake.together(*BOTH)]
    dying = lake_on(
        FaultyStorage(storage_of(lake), [run("before", "put_if_absent", kill, where="groups/*.decided")])
    )
    with pytest.raises(Killed):
        dying.replace_group(nexts)
    for name in BOTH:
        again(lake, Time()).table(name).append(rows(500, 1))  # after the deadline
    lake = again(lake)
    assert [g.outcome for g in lake.groups()] == ["stay"]
    for table, numbered in zip(lake.together(*BOTH), before, strict=True):
        assert [s.id for s in table.snapshots()] == [numbered[0] + 2, numbered[0] + 1, *numbered]
        assert ids_of(table.at("main.snapshot.1")) == [0, 1, 2]

    lake.replace_group(nexts)
    for table in lake.together(*BOTH):
        assert ids_of(table) == [*NEW, 101, 102]
        assert [len(ids_of(table.at(f"main.snapshot.{number}"))) for number in (1, 2, 3, 4)] == [3, 4, 5, 6]
    lake.undo_group()
    assert all_ids(lake) == [sorted([*NEW, 101, 500])] * 2
    for table in lake.together(*BOTH):
        assert ids_of(table.at("main.snapshot.1")) == [0, 1, 2]


def test_a_process_that_was_paused_too_long_begins_anew():
    lake = parted_lake()

    def others_lose_patience(path):
        if not waited:
            waited.append(path)
            again(lake).table("db.a").append(rows(500, 1))

    waited = []
    hook = run("before", "put_if_absent", others_lose_patience, where="groups/*.decided")
    made = lake_on(FaultyStorage(storage_of(lake), [hook])).replace_group(BOTH)
    assert waited
    assert [g.outcome for g in lake.groups()] == ["stay", "replaced"]
    assert [result.number for _, result in made.tables] == [2, 2]
    assert all_ids(lake) == [NEW, NEW]
    assert ids_of(lake.table("db.a").branch("main@2")) == sorted([*OLD, 500])


@pytest.mark.parametrize("fault", [lose_answer, lose_request], ids=["done", "not done"])
@pytest.mark.parametrize("times", [1, 50])
def test_a_decision_that_the_store_does_not_acknowledge(fault, times):
    lake = parted_lake()
    faulty = lake_on(
        FaultyStorage(storage_of(lake), [fault("put_if_absent", where="groups/*.decided", times=times)])
    )
    if times == 1:
        faulty.replace_group(BOTH)
    else:
        with pytest.raises(CommitOutcomeUnknownError, match="group 1"):
            faulty.replace_group(BOTH)
        again(lake).replace_group(BOTH)
    assert all_ids(lake) == [NEW, NEW]


def test_at_every_call_all_is_old_or_all_is_new():
    lake = parted_lake("db.a", "db.b", "db.c")
    held = [lake.table(name) for name in ("db.a", "db.b", "db.c")]
    seen = []

    def look(path):
        found = [ids_of(table) for table in held]
        assert found in ([OLD] * 3, [NEW] * 3), (path, found)
        seen.append(found[0])

    hooks = [
        run(when, call, look, times=10**9)
        for when in ("before", "after")
        for call in ("put_if_absent", "put")
    ]
    lake_on(FaultyStorage(storage_of(lake), hooks)).replace_group(
        dict.fromkeys(("db.a", "db.b", "db.c"), "fix")
    )
    assert seen[0] == OLD
    assert seen[-1] == NEW
    assert seen == sorted(seen, key=[OLD, NEW].index), "and there is one moment in between"


def test_tables_opened_together_are_of_one_moment():
    """Opened one after the other they need not be: the replacement comes after the first."""

    def flip(path):
        if not flipped:
            flipped.append(path)
            again(lake).replace_group(BOTH)

    for call, nth in (("get", 1), ("get", 2), ("get", 4)):
        lake, flipped = parted_lake(), []
        faulty = lake_on(
            FaultyStorage(storage_of(lake), [run("before", call, flip, nth=nth, where="db.db/b/*", times=99)])
        )
        assert all_ids(faulty) in ([OLD, OLD], [NEW, NEW])
        assert flipped
    pinned = lake.together("db.a", "db.b")
    lake.undo_group()
    assert [ids_of(table) for table in pinned] == [NEW, NEW]
    lake.create_table("db.empty", SCHEMA)
    with pytest.raises(NotFoundError, match="nothing was ever written"):
        lake.together("db.a", "db.empty")


def test_tables_opened_together_know_their_lake():
    lake = parted_lake()
    lake.table("db.a").append(rows(500, 1))
    copied = lake.create_table("db.copy", SCHEMA)
    with lake.job("copy"):
        copied.append(lake.table("db.a").scan().to_arrow())
    one, _ = lake.together("db.a", "db.copy")
    downstream = {dataset.name for dataset in one.lineage.downstream().datasets}
    assert "db.copy" in downstream


def test_a_table_knows_its_main_without_its_warehouse():
    lake = parted_lake()
    lake.replace_group(BOTH)
    assert ids_of(_alone(lake, "db.a")) == NEW
    storage_of(lake).delete("db.db/a/branch/GROUP-1")
    storage_of(lake).delete("db.db/b/branch/GROUP-1")
    assert all_ids(copy_of(lake)) == [NEW, NEW]
    with pytest.raises(CorruptTableError, match="as group 1 of the warehouse"):
        ids_of(_alone(lake, "db.a"))
    for name in BOTH:
        lake.table(name).maintain()
        assert ids_of(_alone(lake, name)) == NEW


def _alone(lake, name):
    """The table as somebody opens it who does not know in which warehouse it lies."""
    context = copy_of(lake).table(name).context
    return anabranch.Table(
        replace(context, groups=None, branch=None, main_generation=0, cache=MetadataCache())
    )


def test_a_table_that_was_moved_is_not_decided_by_another_group_of_that_number():
    lake, other = undecided(), undecided(parted_lake("db.c", "db.a", "db.b"))
    other.table("db.c").append(rows(1, 1))
    here, there = storage_of(lake), storage_of(other)
    for info in [*here.list("db.db/a", recursive=True)]:
        there.put(info.path.replace("db.db/a", "db.db/moved"), here.get(info.path))
    for act in (ids_of, lambda table: table.append(rows(900, 1))):
        with pytest.raises(CorruptTableError, match="was decided for several tables at once"):
            act(other.table("db.moved"))
    (problem,) = other.table("db.moved").verify().problems
    assert "in that warehouse" in problem.hint


def test_a_context_takes_its_warehouse_along(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.a", SCHEMA)
    context = pickle.loads(pickle.dumps(table.context))
    assert context.groups is not None
    assert context.groups.url.endswith("groups")


def test_a_replaced_main_of_a_group_is_dropped_and_then_the_group_cannot_be_taken_back():
    lake = parted_lake(options={"branch.replaced-main.time-retained": "0 s"})
    lake.replace_group(BOTH)
    with pytest.raises(NotFoundError, match="was dropped"):
        lake.undo_group()
    assert all_ids(lake) == [NEW, NEW]
    assert [g.outcome for g in lake.groups()] == ["replaced"]


@pytest.mark.parametrize(
    ("policy", "crossing"), [("continue", []), ("replay", [100]), ("changes", [-1000, 100])]
)
def test_streams_of_each_table_cross_as_they_are_told(policy, crossing):
    lake = parted_lake()
    options = {"scan.on-replace": policy}
    if policy == "changes":
        options["scan.on-overwrite"] = "changes"
    tails = [lake.table(name).with_options(options).tail(idle=0) for name in BOTH]
    assert [sorted(_read(tail)) for tail in tails] == [OLD, OLD]
    undecided(lake)
    assert [_read(tail) for tail in tails] == [[], []], "they wait at a seal that is not decided"
    lake.replace_group(BOTH)
    assert [_read(tail) for tail in tails] == [crossing, crossing]
    for name in BOTH:
        lake.table(name).append(rows(500, 1))
    assert [_read(tail) for tail in tails] == [[500], [500]]


def _read(tail):
    return [
        -row["id"] if row.get("_change") == "delete" else row["id"]
        for batch in tail
        for row in batch.to_pylist()
    ]


def test_a_group_is_not_taken_back_for_ever_where_somebody_removed_a_main():
    lake = parted_lake()
    lake.replace_group({"db.a": "fix", "db.b": "fix"})
    for table in lake.together("db.a", "db.b"):
        table.create_tag("better")
        table.create_branch("next", "better")
    lake.replace_group({"db.a": "next", "db.b": "next"})
    storage = lake.table("db.b").context.storage
    for info in [*storage.list("branch/branch-fix", recursive=True)]:
        storage.delete(info.path)
    with pytest.raises(NotFoundError, match="'main@2' of 'db.b' was deleted"):
        lake.undo_group(2)
    assert all_ids(again(lake)) == [NEW, NEW]
