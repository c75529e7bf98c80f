"""What readers saw at a time, across replacements of main, rollbacks of both kinds, expiry and what was dropped."""

import itertools
import random
from collections import Counter

import pytest

import anabranch
from tests.branches.grouping import parted_lake
from tests.branches.replacing import again, parted, timed
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()


def _now(table):
    return int(table.context.runtime.clock.millis)


def _published(table, millis):
    return ids_of(again(table).at(timestamp=millis, published=True))


def test_readers_saw_the_wrong_rows_until_main_was_replaced():
    table = parted()
    before = _now(table)
    table.replace_main_branch("fix", reason="prices in cents")
    after = _now(table)
    assert _published(table, before) == [0, 1, 2, 3, 4, 5, 1000]
    assert _published(table, after) == [0, 1, 2, 3, 4, 5, 100]
    assert ids_of(table.at(timestamp=before)) == [0, 1, 2, 3, 4, 5, 100], "as it is corrected"
    seen = table.at(timestamp=before, published=True)
    assert seen.name == "db.t$branch_main@1"
    assert seen.moment.is_published
    assert seen.moment.is_exact


def test_the_corrected_view_names_the_replacement_that_changed_the_past():
    table = parted()
    shared, before = next(s.time_millis for s in table.snapshots() if s.id == 2), _now(table)
    assert table.at(timestamp=before).moment.is_exact
    table.replace_main_branch("fix")
    moment = table.at(timestamp=before).moment
    assert not moment.is_exact
    assert "replacement 1 of main" in moment.changed_by
    assert "'fix'" in str(moment)
    assert table.at(timestamp=shared).moment.is_exact, "both have what is before the two parted"
    assert table.at(timestamp=shared, exact=True).snapshot.id == 2
    with pytest.raises(anabranch.NotFoundError, match="replacement 1") as error:
        table.at(timestamp=before, exact=True)
    assert "published" in error.value.hint


def test_a_replacement_that_was_taken_back_was_seen_for_a_while():
    table = parted()
    first = _now(table)
    table.replace_main_branch("fix")
    second = _now(table)
    table.undo_replace()
    third = _now(table)
    assert _published(table, first) == _published(table, third) == [0, 1, 2, 3, 4, 5, 1000]
    assert _published(table, second) == [0, 1, 2, 3, 4, 5, 100]
    assert table.at(timestamp=first).moment.is_exact, "main is what it was then"
    assert "took back replacement 1" in table.at(timestamp=second).moment.changed_by


def test_what_was_dropped_is_named_with_the_snapshot_that_readers_saw():
    table = parted(options={"branch.replaced-main.time-retained": "0 ms"})
    shared, before = [s.time_millis for s in table.snapshots()][1], _now(table)
    table.replace_main_branch("fix")
    table.maintain()
    with pytest.raises(anabranch.NotFoundError, match=r"was snapshot 3 of main@1.*dropped"):
        again(table).at(timestamp=before, published=True)
    assert _published(table, shared) == [0, 1, 2, 3, 4, 5]
    assert not table.at(timestamp=before).moment.is_exact, "the record outlives the data"


def test_a_branch_that_was_main_for_a_while_and_was_deleted():
    table = parted()
    table.replace_main_branch("fix")
    second = _now(table)
    table.undo_replace()
    table.delete_branch("fix")
    with pytest.raises(anabranch.NotFoundError, match=r"was snapshot 3 of main@2.*dropped"):
        again(table).at(timestamp=second, published=True)


def test_what_a_rollback_for_good_removed_was_seen_and_is_gone():
    table = timed(make_table(f"memory://published{next(_names)}"))
    moments = []
    for i in range(4):
        table.append(rows(i, 1))
        moments.append(_now(table))
    table.rollback(2, destructive=True)
    table.append(rows(10, 1))
    assert _published(table, moments[1]) == [0, 1]
    assert _published(table, _now(table)) == [0, 1, 10]
    for removed, millis in ((3, moments[2]), (4, moments[3])):
        with pytest.raises(
            anabranch.NotFoundError, match=f"was snapshot {removed}, .*rollback to snapshot 2"
        ):
            again(table).at(timestamp=millis, published=True)
        moment = again(table).at(timestamp=millis).moment
        assert (moment.snapshot.id, moment.is_exact) == (2, False)
        assert f"snapshot {removed} was removed by a rollback to snapshot 2" in moment.changed_by


def test_an_expired_snapshot_is_read_from_the_savepoint_that_holds_it_or_named():
    table = timed(make_table(f"memory://published{next(_names)}"))
    moments = []
    for i in range(6):
        table.append(rows(i, 1))
        moments.append(_now(table))
        if i == 1:
            table.create_savepoint()
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=_now(table))
    seen = table.at(timestamp=moments[1], published=True)
    assert (ids_of(seen), seen.moment.found_by) == ([0, 1], "savepoint")
    with pytest.raises(anabranch.NotFoundError, match=r"was snapshot 3, .*expired"):
        table.at(timestamp=moments[2], published=True)
    assert table.at(timestamp=moments[2]).snapshot.id == 2, "the newest of the time before that is left"


def test_a_group_of_mains_was_published_when_it_was_decided():
    lake = parted_lake()
    tables = {name: lake.table(name) for name in ("db.a", "db.b")}
    before = {name: (_now(t), ids_of(t)) for name, t in tables.items()}
    lake.replace_group(dict.fromkeys(tables, "fix"))
    for name, table in tables.items():
        millis, seen = before[name]
        assert _published(table, millis) == seen
        assert _published(table, _now(table)) == ids_of(again(table)) != seen


def test_published_needs_a_time():
    table = parted()
    for asked in (lambda: table.at("good", published=True), lambda: table.at(2, published=True)):
        with pytest.raises(anabranch.InvalidInputError, match="no time was given"):
            asked()
    with pytest.raises(anabranch.OptionError, match=r"names scan\.tag-name"):
        table.with_options({"scan.tag-name": "good", "scan.published": "true"})
    with pytest.raises(anabranch.NotFoundError, match="no snapshot is so old"):
        table.at(timestamp=1, published=True)
    with pytest.raises(anabranch.NotFoundError, match="still to come"):
        table.at(timestamp=2**45, published=True, exact=True)
    assert not table.at(timestamp=2**45, published=True).moment.is_exact


def test_the_option_reads_what_was_published():
    table = parted()
    before = _now(table)
    table.replace_main_branch("fix")
    view = table.with_options({"scan.timestamp-millis": str(before), "scan.published": "true"})
    assert ids_of(view) == [0, 1, 2, 3, 4, 5, 1000]


_REFUSED = (
    *(anabranch.NotFoundError, anabranch.InvalidInputError, anabranch.CommitConflictError),
    anabranch.SealedBranchError,
)
"""What a change may be answered with that cannot be made just then."""


class _History:
    """A table that many change in turn, and what a reader saw after each change."""

    def __init__(self, seed, *, removing):
        self.random = random.Random(seed)
        self.table = timed(make_table(f"memory://published{next(_names)}"))
        self.removing = removing
        self.next_id = itertools.count()
        self.branches = itertools.count()
        self.seen = []
        self.done = Counter()
        self.table.append(self._rows())
        self.table.create_tag("first")
        self.note()

    def _rows(self):
        return rows(next(self.next_id), 1)

    def note(self):
        self.seen.append((_now(self.table), ids_of(again(self.table))))

    def _branch(self):
        """One that begins at a tag of main's past, with some commits of its own."""
        name = f"b{next(self.branches)}"
        self.table.create_branch(name, self.random.choice(sorted(self.table.tags())))
        for _ in range(self.random.randrange(3)):
            self.table.branch(name).append(self._rows())
        return name

    def step(self):
        table, choice = self.table, self.random.choice
        kinds = ["append"] * 5 + ["overwrite", "tag", "rollback", "replace", "replace", "undo", "main"]
        kind = choice(kinds + (["rewind", "expire", "drop"] if self.removing else []))
        try:
            match kind:
                case "append":
                    table.append(self._rows())
                case "overwrite":
                    table.overwrite(self._rows())
                case "tag":
                    table.create_tag(f"t{next(self.branches)}")
                case "rollback":
                    table.rollback(choice([s.id for s in table.context.snapshots.backwards(table.snapshot)]))
                case "replace":
                    table.replace_main_branch(self._branch(), force=True)
                case "main":  # what was main goes on as a branch
                    for name in table.branches()[:1]:
                        table.branch(name).append(self._rows())
                case "undo":
                    table.undo_replace()
                case "rewind":
                    asked = [*table.tags(), *(s.id for s in table.snapshots())]
                    table.rollback(choice(asked), destructive=True, force=True)
                case "expire":
                    table.expire_snapshots(retain_max=3, retain_min=1, older_than=_now(table))
                case "drop":
                    for name in table.branches()[:1]:
                        table.delete_branch(name)
        except _REFUSED:
            return
        self.done[kind] += 1
        self.note()


def _check(history):
    answers = 0
    for millis, seen in history.seen:
        corrected = None
        try:
            corrected = again(history.table).at(timestamp=millis)
        except anabranch.NotFoundError:
            assert history.removing
        if corrected is not None and corrected.moment.is_exact:
            assert ids_of(corrected) == seen, millis
        try:
            found = _published(history.table, millis)
        except anabranch.NotFoundError as error:
            assert history.removing, error
            assert "gone" in error.message or "not known" in error.message, error
            continue
        assert found == seen, millis
        answers += 1
    return answers


@pytest.mark.parametrize("seed", first_short(range(3)))
def test_random_histories_are_found_as_a_reader_saw_them(seed):
    history = _History(seed, removing=False)
    for _ in range(24):
        history.step()
    assert _check(history) == len(history.seen)


@pytest.mark.parametrize("seed", first_short([105, 167, 181, 129]))
def test_random_histories_with_removals_are_found_or_refused(seed):
    history = _History(seed, removing=True)
    for _ in range(24):
        history.step()
    assert _check(history) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_histories(seed):
    history = _History(seed, removing=bool(seed % 2))
    for _ in range(40):
        history.step()
    assert _check(history) > 0
