"""What a merge leaves for the next one: the same merges, with fewer calls."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from anabranch.format.text.packed import pack, unpack
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.provenance import notes
from anabranch.kernel.provenance.notes import find_notes
from tests.branches.histories import World
from tests.branches.merging import conflicts_of, contents, parted, rows
from tests.kernel.expiring import fill, new_table, through
from tests.support.clock import Clock
from tests.support.foreign_expiry import expire_as_others
from tests.support.lengths import first_short

NOTES = "branch/branch-fix"


@pytest.fixture
def eager(monkeypatch):
    """Every merge leaves notes, however little there is to note."""
    monkeypatch.setattr(notes, "WORTH", 1)


@pytest.fixture
def used(monkeypatch):
    """How many snapshots of the branch each merge knew by notes."""
    counts, count_in = [], notes.Notes.count_in

    def counted(self, past):
        counts.append(count_in(self, past))
        return counts[-1]

    monkeypatch.setattr(notes.Notes, "count_in", counted)
    return counts


def merged(main_commits, branch_commits):
    """A branch that was merged once, after so many commits of both sides, and has one more."""
    table = new_table(Clock())
    fill(table, 1)
    table.create_tag("base")
    table.create_branch("fix", tag="base")
    fill(table, main_commits)
    fill(table.branch("fix"), branch_commits)
    table.merge_branch("fix")
    fill(table.branch("fix"), 1)
    return table


def cost(table):
    watched = through(table)
    watched.merge_branch("fix")
    return watched.context.storage.counts().total()


def noted(table):
    names = (info.path.rpartition("/")[2] for info in table.context.storage.list(NOTES))
    return sorted(name for name in names if name.startswith("NOTES-"))


def uncached(table):
    """The table as another process opens it."""
    return through(table)


@pytest.mark.long
def test_one_more_commit_is_merged_at_the_same_cost_however_long_ago_the_branch_began():
    assert cost(merged(150, 150)) <= cost(merged(20, 20)) * 1.05
    assert cost(merged(20, 150)) <= cost(merged(20, 20)) * 1.05


@pytest.mark.long
@pytest.mark.parametrize("part", first_short(range(2)))
def test_random_histories_merge_as_the_oracle_says(eager, used, part):
    for seed in range(40 + 6 * part, 46 + 6 * part):
        World(seed).run(12)
    assert sum(count > 0 for count in used) > 4


def test_another_engine_expires_without_a_word(eager, used):
    for seed in range(5020, 5026):
        World(seed, foreign=0.7).run(12)
    assert any(used)


def test_old_notes_go_and_a_short_branch_has_none():
    table, branch = parted()
    branch.append(rows([10], "a"))
    table.merge_branch("fix")
    assert noted(table) == []
    fill_more(branch, range(100, 140))
    table.merge_branch("fix")
    assert noted(table) == ["NOTES-2"]
    fill_more(branch, range(200, 240))
    table.merge_branch("fix")
    assert noted(table) == ["NOTES-3"]
    branch.append(rows([300], "a"))
    table.merge_branch("fix")
    assert noted(table) == ["NOTES-3"]
    assert contents(table) == sorted([1, 2, 3, 10, *range(100, 140), *range(200, 240), 300])


def fill_more(table, ids):
    for number in ids:
        table.append(rows([number], "a"))


def with_notes():
    table, branch = parted()
    table.append(rows([50], "b"))
    branch.append(rows([10], "a"))
    table.merge_branch("fix")
    assert noted(table) == ["NOTES-1"]
    branch.append(rows([11], "a"))
    return table, branch


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-5],
        lambda data: b"x" + data,
        lambda data: data[::-1],
        lambda data: pack("[]"),
        lambda data: pack("[" * 100_000),
    ],
)
def test_damaged_notes_are_not_used(eager, damage):
    table, _ = with_notes()
    storage, path = table.context.storage, f"{NOTES}/NOTES-1"
    storage.put(path, damage(storage.get(path)))
    uncached(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 50]


def other_facts(change):
    """Whole notes whose snapshots say something else."""
    return other_content(lambda content: change(content["own"]))


def other_content(change):
    """Whole notes that say something else."""

    def damaged(data):
        content = json.loads(unpack(data, path="notes"))
        change(content)
        return pack(json.dumps(content))

    return damaged


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own.pop("ids"),
        lambda own: own["fields"].pop("commit_user"),
        lambda own: own["fields"].pop("commit_kind"),
        lambda own: own.update(ids=5),
        lambda own: own.update(ids=["1"]),
        lambda own: own.update(ids=[*own["ids"], 9]),
        lambda own: own["fields"].update(base_manifest_list=[["../../other/manifest-list"]]),
        lambda own: own["fields"].update(base_manifest_list="manifest-list/manifest-list"),
        lambda own: own["fields"].update(commit_kind=[["REPLACE"]]),
        lambda own: own["fields"].update(commit_kind=[[]]),
        lambda own: own["fields"].update(commit_user=5),
        lambda own: own["fields"].update(unknown=[[1]]),
        lambda own: own["fields"].update(time_millis=[[True]]),
        lambda own: own["fields"].update(watermark=[["late"]]),
        lambda own: own["fields"].update(index_manifest=[["../x"]]),
        lambda own: own["fields"].update(log_offsets=[{"a": "b"}]),
        lambda own: own["properties"].update({"anabranch.parent": [[1]]}),
        lambda own: own.update(properties=[]),
        lambda own: own.update(properties=[1]),
    ],
)
def test_notes_that_are_no_snapshots_are_not_used(eager, used, change):
    table, _ = with_notes()
    storage, path = table.context.storage, f"{NOTES}/NOTES-1"
    storage.put(path, other_facts(change)(storage.get(path)))
    used.clear()
    uncached(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 50]
    assert not any(used)


@pytest.mark.parametrize("version", [1, 2, 4])
def test_notes_of_another_release_are_not_used(eager, used, version):
    table, _ = with_notes()
    storage, path = table.context.storage, f"{NOTES}/NOTES-1"
    storage.put(path, other_content(lambda content: content.update(version=version))(storage.get(path)))
    used.clear()
    uncached(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 50]
    assert not any(used)


def test_notes_of_another_engines_snapshots_are_used(eager, used):
    """With all that a snapshot can say."""
    table, branch = with_notes()
    odd = {
        "log_offsets": {3: 4},
        "watermark": 5,
        "statistics": "stat-1",
        "next_row_id": 6,
        "operation": "x",
        "writer_version": "y",
        "extra": {"of another": [1, {"engine": None}]},
    }
    head = branch.snapshot
    changed = replace(head, **odd)
    branch.context.storage.put(branch.context.layout.snapshot_path(head.id), changed.to_json())
    uncached(table).merge_branch("fix")
    assert noted(table) == ["NOTES-2"]
    known = find_notes(table.branch("fix").context, [2])
    assert changed in known.own
    used.clear()
    branch.append(rows([12], "a"))
    uncached(table).merge_branch("fix")
    assert any(used)
    assert contents(table) == [1, 2, 3, 10, 11, 12, 50]


def test_notes_of_a_branch_that_had_the_name_before_are_not_used(eager):
    table, _ = with_notes()
    old = table.context.storage.get(f"{NOTES}/NOTES-1")
    table.delete_branch("fix")
    table.create_tag("again")
    table.create_branch("fix", tag="again")
    table.branch("fix").append(rows([20], "a"))
    table.merge_branch("fix")
    table.context.storage.put(f"{NOTES}/NOTES-1", old)
    table.branch("fix").append(rows([21], "a"))
    uncached(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 20, 21, 50]


def test_a_merge_that_was_rolled_back_can_be_merged_again(eager):
    table, _ = with_notes()
    before = table.snapshot.id - 1
    table.rollback(before)
    assert contents(table) == [1, 2, 3, 50]
    uncached(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 50]


@pytest.mark.parametrize("destructive", [True, False])
@pytest.mark.parametrize("expired_first", [True, False])
def test_a_merge_that_was_rolled_back_is_merged_again_after_the_branch_has_expired(
    eager, destructive, expired_first
):
    """What the branch did since an earlier merge is told by the records of its expiry: the notes have no changes of it."""
    table, branch = parted()
    branch.append(rows([10], "a"))
    table.merge_branch("fix")
    for number in (11, 12, 13):
        branch.append(rows([number], "a"))
    table.append(rows([50], "b"))
    before = table.snapshot.id
    table.merge_branch("fix")
    branch.append(rows([14], "a"))
    for step in (True, False):
        if step is expired_first:
            branch.expire_snapshots(retain_max=3, retain_min=1, older_than=0)  # the newest noted one stays
        else:
            table.rollback(before, force=True, destructive=destructive)
    assert contents(table) == [1, 2, 3, 10, 50]
    uncached(table).merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 12, 13, 14, 50]


@pytest.mark.parametrize("destructive", [True, False])
def test_main_is_rolled_back_to_before_what_was_noted(eager, destructive):
    table, branch = with_notes()
    table.rollback(2, force=True, destructive=destructive)
    table.overwrite(rows([60], "b"), {"dt": "b"})
    branch.overwrite(rows([70], "b"), {"dt": "b"})
    assert conflicts_of(uncached(table)) == [("OVERWRITE_VS_CHANGE", "dt=b")]


def test_rows_that_main_got_before_the_notes_are_known_once_they_expired(eager):
    """Another engine expires them and leaves no record: what the notes say of them is all there is."""
    table, branch = with_notes()
    for number in range(51, 60):
        table.append(rows([number], "c"))
    table.merge_branch("fix")
    branch.append(rows([12], "a"))
    expire_as_others(table, 4)
    again = uncached(table)
    again.merge_branch("fix")
    assert 12 in contents(table)
    branch.overwrite(rows([80], "b"), {"dt": "b"})
    assert conflicts_of(uncached(table)) == [("OVERWRITE_VS_CHANGE", "dt=b")]


def test_a_merge_without_a_cache_makes_the_same_notes(eager, monkeypatch):
    table, _ = with_notes()
    nothing = through(table)
    nothing.context.cache.limit_to(0)
    assert isinstance(nothing.context.cache, MetadataCache)
    nothing.merge_branch("fix")
    assert contents(table) == [1, 2, 3, 10, 11, 50]
    assert noted(table) == ["NOTES-2"]
    assert pa.table({"id": contents(table)}).num_rows == 6
