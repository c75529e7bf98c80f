"""What merges leave of all those before them: the same merges, however many there were."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.text.packed import pack, unpack
from anabranch.kernel.log import merge_log as merges
from anabranch.kernel.log.merge_log import MergeLog, merge_log, points
from anabranch.kernel.log.merge_record import Choice, MergeEnd, MergeRecord, MergeRequest
from anabranch.kernel.log.merge_summary import find_summary, put_summary
from anabranch.kernel.log.properties import MERGE_PROPERTY, is_marker
from anabranch.kernel.provenance import notes
from tests.branches.histories import World
from tests.branches.merging import contents, parted, rows
from tests.branches.test_merge_killed import killed_merge
from tests.format.test_snapshot import FIRST, SNAPSHOTS, TEXT
from tests.kernel.expiring import through
from tests.support.lengths import first_short

FOLDER = "branch/branch-fix"


@pytest.fixture
def eager(monkeypatch):
    """Every merge leaves a summary of those before it."""
    monkeypatch.setattr(merges, "WORTH", 1)


def merged(count):
    """A branch that was merged so often."""
    table, branch = parted()
    for number in range(count):
        branch.append(rows([10 + number], "a"))
        table.merge_branch("fix")
    return table, branch


def names(table, prefix):
    found = (info.path.rpartition("/")[2] for info in table.context.storage.list(FOLDER))
    return sorted(name for name in found if name.startswith(prefix))


def log_of(table, **how) -> MergeLog:
    """The merges, as another process reads them."""
    return merge_log(through(table).branch("fix").context, **how)


def one_by_one(table) -> MergeLog:
    return log_of(table, unread=lambda what, error: pytest.fail(f"{what}: {error}"))


def same(left: MergeLog, right: MergeLog):
    return (left.records, [*left.records], left.ends) == (right.records, [*right.records], right.ends)


def requests_of(table, act):
    watched = through(table)
    act(watched)
    return watched.context.storage.counts().total()


def test_the_summary_says_what_the_records_do(eager):
    table, _ = merged(5)
    assert names(table, "MERGES-") == ["MERGES-4"], (
        "the one before is gone, and the newest merge is in none yet"
    )
    assert log_of(table).summarized == 4
    assert same(log_of(table), one_by_one(table))
    assert [point.stamp for point in points(through(table).branch("fix").context)] == [
        point.stamp for point in points(table.branch("fix").context)
    ]


def test_a_few_merges_leave_none():
    table, _ = merged(3)
    assert names(table, "MERGES-") == []
    assert log_of(table).summarized == 0


def test_many_merges_take_no_more_requests_than_a_few(monkeypatch):
    monkeypatch.setattr(merges, "WORTH", 4)
    monkeypatch.setattr(notes, "WORTH", 4)

    def dry(watched):
        watched.merge_branch("fix", dry_run=True)

    def reading(watched):
        merge_log(watched.branch("fix").context)

    def most(table, branch, first):
        """The most of some merges in a row, as they differ in what is in notes and summaries already."""
        found = []
        for number in range(first, first + 6):
            branch.append(rows([number], "a"))
            found.append((requests_of(table, dry), requests_of(table, reading)))
            table.merge_branch("fix")
        return [max(column) for column in zip(*found, strict=True)]

    table, branch = merged(8)
    few = most(table, branch, 100)
    for number in range(200, 220):
        branch.append(rows([number], "a"))
        table.merge_branch("fix")
    many = most(table, branch, 300)
    assert all(later <= earlier for earlier, later in zip(few, many, strict=True)), (few, many)


@pytest.mark.parametrize("part", first_short(range(3)))
def test_random_histories_merge_as_the_oracle_says(eager, part):
    for seed in range(900 + 3 * part, 903 + 3 * part):
        World(seed).run(14)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-5],
        lambda data: data[::-1],
        lambda data: changed(data, lambda said: said.update(version=2)),
        lambda data: changed(data, lambda said: said.update(branch="of another")),
        lambda data: changed(data, lambda said: said["schemas"].pop()),
        lambda data: changed(data, lambda said: said["schemas"].append(0)),
        lambda data: changed(data, lambda said: said.update(schemas=["0"] * 2)),
        lambda data: changed(data, lambda said: said.update(created=[None] * 2)),
        lambda data: changed(data, lambda said: said["mains"][0].__setitem__(0, None)),
        lambda data: changed(data, lambda said: said["mains"][1].__setitem__(0, "1")),
        lambda data: changed(data, lambda said: said["results"][2].__setitem__(0, 5)),
        lambda data: changed(data, lambda said: said["replaced"].__setitem__(0, ["xy"])),
        lambda data: changed(data, lambda said: said["theirs"].__setitem__(0, 5)),
        lambda data: changed(data, lambda said: said["wishes"].__setitem__(0, [])),
        lambda data: changed(data, lambda said: said["heads"]["ids"].pop()),
        lambda data: changed(data, lambda said: said.pop("results")),
        lambda data: pack("[]"),
        lambda data: pack("{"),
        lambda data: pack("[" * 100_000),
    ],
)
def test_a_summary_that_is_damaged_is_not_used_and_is_made_again(eager, damage):
    table, branch = merged(3)
    storage, path = table.context.storage, f"{FOLDER}/MERGES-2"
    storage.put(path, damage(storage.get(path)))
    assert log_of(table).summarized == 0
    assert same(log_of(table), one_by_one(table))
    branch.append(rows([50], "a"))
    through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 50]
    assert log_of(table).summarized == 3


def changed(data, change):
    said = json.loads(unpack(data, path="MERGES-2"))
    change(said)
    return pack(json.dumps(said))


def test_merges_go_on_where_a_summarized_record_is_damaged_and_verify_tells(eager):
    table, branch = merged(3)
    storage = table.context.storage
    storage.put(f"{FOLDER}/MERGE-1", b"{")
    storage.put(f"{FOLDER}/MERGE-2.done", b"")
    assert sorted({problem.path for problem in through(table).verify().problems}) == [
        f"{FOLDER}/MERGE-1",
        f"{FOLDER}/MERGE-2.done",
    ]
    branch.append(rows([50], "a"))
    through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 50]
    told = []
    log = log_of(table, unread=lambda what, error: told.append(what))
    assert (sorted(log.records), sorted(log.ends), len(told)) == ([2, 3, 4], [1, 3, 4], 2)
    storage.put(f"{FOLDER}/MERGES-3", b"")
    with pytest.raises(CorruptTableError, match="MERGE-1"):
        log_of(table)


@pytest.mark.parametrize("name", first_short(["MERGE-2", "MERGE-3.done", "MERGE-2.done", "MERGE-3"], 2))
@pytest.mark.parametrize("expired", [False, True])
def test_merges_go_on_without_a_record_that_is_in_the_summary_and_repair_makes_it_again(eager, name, expired):
    table, branch = merged(4)
    storage, path = table.context.storage, f"{FOLDER}/{name}"
    before = storage.get(path)
    if expired:
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1, older_than=0)
    storage.delete(path)
    assert log_of(table).summarized == 3
    assert path in [problem.path for problem in through(table).verify().problems]
    branch.append(rows([50], "a"))
    through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 13, 50]
    assert [step.path for step in through(table).repair().steps] == [path]
    assert json.loads(storage.get(path)) == json.loads(before)
    assert through(table).verify().problems == ()
    assert same(log_of(table), one_by_one(table))


@pytest.mark.parametrize(
    "names",
    first_short([["MERGE-2"], ["MERGE-4", "MERGE-4.done"], ["MERGE-2", "MERGE-2.done"], ["MERGE-4"]], 2),
)
@pytest.mark.parametrize("expired", [False, True])
def test_a_merge_without_a_record_of_an_earlier_one_says_which_is_gone(names, expired):
    table, branch = merged(4)
    storage = table.context.storage
    if expired:
        table.expire_snapshots(retain_max=1, retain_min=1, older_than=0)
    storage.delete_many([f"{FOLDER}/{name}" for name in names])
    branch.append(rows([50], "a"))
    before = contents(table)
    with pytest.raises(CorruptTableError, match=f"{names[0]}: is gone"):
        through(table).merge_branch("fix")
    assert contents(table) == before
    told = [problem.path for problem in through(table).verify().problems]
    if names != ["MERGE-4", "MERGE-4.done"]:  # nothing in the folder tells of the newest one
        assert told == [f"{FOLDER}/{name}" for name in names]
    if names in (["MERGE-2"], ["MERGE-4"]):
        through(table).repair()
        through(table).merge_branch("fix")
        assert contents(table) == [1, 2, 3, 10, 11, 12, 13, 50]


@pytest.mark.parametrize("number", first_short([3, 2, 4]))
@pytest.mark.parametrize("expired", [False, True])
def test_an_end_that_was_lost_stops_no_merge_and_nothing_is_merged_twice(number, expired):
    table, branch = merged(4)
    if expired:
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1, older_than=0)
    table.context.storage.delete(f"{FOLDER}/MERGE-{number}.done")
    for row in (50, 51):
        branch.append(rows([row], "a"))
        through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 13, 50, 51]


def test_a_file_that_claims_to_be_of_a_merge_of_any_number_takes_no_time():
    table, branch = merged(2)
    table.context.storage.put(f"{FOLDER}/MERGE-{10**18 - 1}.done", b"{}")
    table.context.storage.put(f"{FOLDER}/MERGES-{10**18 - 1}", b"{}")
    branch.append(rows([50], "a"))
    with pytest.raises(CorruptTableError, match="MERGE-"):
        through(table).merge_branch("fix")
    assert len(through(table).verify().problems) > 1


@pytest.mark.parametrize("name", ["MERGE-2", "MERGE-2.done"])
def test_the_record_of_another_merge_is_none_of_this_one(name):
    table, _ = merged(3)
    storage = table.context.storage
    storage.put(f"{FOLDER}/{name}", storage.get(f"{FOLDER}/{name.replace('2', '1')}"))
    with pytest.raises(CorruptTableError, match=f"{name}: is the record of merge 1"):
        log_of(table)
    assert [problem.path for problem in through(table).verify().problems] == [f"{FOLDER}/{name}"]


def test_a_summary_of_a_branch_that_had_the_name_before_is_not_used(eager):
    table, _ = merged(3)
    old = table.context.storage.get(f"{FOLDER}/MERGES-2")
    table.delete_branch("fix")
    table.create_tag("again")
    table.create_branch("fix", tag="again")
    branch = table.branch("fix")
    for number in range(60, 63):
        branch.append(rows([number], "a"))
        table.merge_branch("fix")
    table.context.storage.put(f"{FOLDER}/MERGES-2", old)
    assert log_of(table).summarized == 0
    assert same(log_of(table), one_by_one(table))
    branch.append(rows([70], "a"))
    through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 60, 61, 62, 70]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_merge_that_was_killed_is_in_no_summary_until_it_has_ended(eager, when):
    def prepare(table):
        for number in (20, 21, 22):
            table.branch("fix").append(rows([number], "a"))
            table.merge_branch("fix")

    table, branch = killed_merge(when, prepare)
    assert log_of(table).summarized == 2
    branch.append(rows([30], "a"))
    through(table).merge_branch("fix")
    branch.append(rows([31], "a"))
    through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 20, 21, 22, 30, 31]
    log = log_of(table)
    assert log.summarized >= 4
    assert not log.under_way
    assert same(log, one_by_one(table))


def test_a_merge_that_was_rolled_back_is_merged_again_by_the_summary(eager):
    table, branch = merged(4)
    table.rollback(table.snapshot.id - 2, force=True)
    assert contents(table) == [1, 2, 3, 10, 11]
    branch.append(rows([50], "a"))
    through(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 13, 50]


@pytest.mark.parametrize(
    "said", ["", "{}", '{"version":1}', '{"version":1,"ended":0}', "[" * 100_000, "[]", "null"]
)
def test_a_merge_that_does_not_say_whether_it_was_made_is_damaged(said):
    with pytest.raises(CorruptTableError):
        is_marker(replace(FIRST, properties={MERGE_PROPERTY: said}))


def test_what_is_missing_says_what_it_stops():
    table, _ = merged(3)
    table.context.storage.delete_many([f"{FOLDER}/MERGE-1", f"{FOLDER}/MERGE-2.done"])
    found = {problem.path.rpartition("/")[2]: problem for problem in through(table).verify().problems}
    assert {name: problem.severity for name, problem in found.items()} == {
        "MERGE-1": "error",
        "MERGE-2.done": "warning",
    }
    assert "stop at it" in found["MERGE-1"].message
    assert "stop at it" not in found["MERGE-2.done"].message


NUMBERS = st.integers(0, 2**63 - 1)
REFS = st.builds(SnapshotRef, TEXT, NUMBERS, TEXT)
ROWS = st.frozensets(st.binary(max_size=4), max_size=3)
WISHES = st.builds(
    MergeRequest,
    st.none() | st.sampled_from(Choice),
    st.dictionaries(TEXT, st.sampled_from(Choice), max_size=2),
    st.booleans(),
)
MERGES = st.lists(
    st.tuples(
        st.builds(
            MergeRecord, st.just(0), SNAPSHOTS, NUMBERS, REFS, WISHES | st.just(MergeRequest()), NUMBERS
        ),
        st.builds(MergeEnd, st.just(0), st.none() | REFS, ROWS, ROWS),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def table():
    return parted()[0]


@settings(max_examples=40)
@given(MERGES)
def test_whatever_merges_recorded_comes_back(table, made):
    records = [replace(record, number=number) for number, (record, _) in enumerate(made, 1)]
    ends = [replace(end, number=number) for number, (_, end) in enumerate(made, 1)]
    put_summary(table.branch("fix").context, records, ends)
    found = find_summary(through(table).branch("fix").context, len(made))
    assert found == ({r.number: r for r in records}, {e.number: e for e in ends})
