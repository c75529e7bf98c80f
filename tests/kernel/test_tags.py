"""Tags: made, changed, removed and expired; by several at once, dying at any call."""

import itertools
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

import anabranch
from anabranch.kernel.refs.tags import expire_tags
from anabranch.runtime import Runtime, SystemClock
from tests.support.clock import at_time
from tests.support.deaths import Died, calls_of, die, each_death, through
from tests.support.faults import no_space, run
from tests.support.moments import copied_history, foreign_tag, forget
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
DAY = 86_400_000
NOON = 1_780_000_000_000


@pytest.fixture
def table():
    return copied_history()


class _Clock(SystemClock):
    """A machine in a zone two hours ahead of UTC."""

    def __init__(self, millis=NOON):
        self.millis = millis

    def now_millis(self):
        return self.millis

    def local_offset_millis(self, at_millis):
        return 7_200_000


def _at(table, millis):
    """At that time, by the machine's clock and by the store's."""
    return at_time(table, _Clock(millis))


def _by_a_clock_of(table, millis):
    return anabranch.Table(replace(table.context, runtime=Runtime(clock=_Clock(millis))))


def _internal(table):
    return [name for name in table.tags(include_internal=True) if name.startswith("anabranch-")]


# Making


def test_a_tag_names_a_moment(table):
    table.create_savepoint(2)
    for name, how in {
        "latest": {}, "by-id": {"snapshot": 3}, "by-version": {"snapshot": "snapshot.3"},
        "by-tag": {"snapshot": "by-id"}, "by-savepoint": {"snapshot": "savepoint.1"},
        "by-time": {"timestamp": "1970-01-01 00:00:04.500"}, "by-millis": {"timestamp": 4500},
    }.items():  # fmt: skip
        tag = table.create_tag(name, **how)
        assert tag.snapshot == table.tag(name).snapshot
        assert (tag.create_time, tag.time_retained) == (None, None)
    assert {name: table.at(name).snapshot.id for name in table.tags()} == {
        "latest": 6, "by-id": 3, "by-version": 3, "by-tag": 3, "by-savepoint": 2, "by-time": 4, "by-millis": 4
    }  # fmt: skip
    assert table.at("snapshot.2").create_tag("of the view").snapshot.id == 2
    assert table.at("by-time").moment.found_by == "tag"


def test_it_is_read_after_its_snapshot_has_expired(table):
    table.create_tag("good", 2)
    content = json.loads(table.context.storage.get("tag/tag-good"))
    assert content.pop("anabranch.mark")
    assert content == json.loads(table.context.storage.get("snapshot/snapshot-2"))
    forget(table, 1, 2, 3)
    assert ids_of(table.at("good")) == ids_of(table.with_options({"scan.tag-name": "good"})) == [0, 1]
    assert table.create_tag("again", "good").snapshot.id == 2
    with pytest.raises(anabranch.NotFoundError, match="tag 'bad' does not exist") as caught:
        table.at("bad")
    assert caught.value.hint == "tags there are: again, good."


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "5",
        "snapshot.5",
        "savepoint.2",
        "watermark-9",
        "anabranch-x",
        "a/b",
        ".a",
        "a..b",
        " a",
        "x" * 200,
    ],
)
def test_names_that_a_new_tag_must_not_have(table, name):
    table.create_tag("good")
    for work in (table.create_tag, lambda new: table.rename_tag("good", new)):
        with pytest.raises(anabranch.InvalidNameError):
            work(name)
    assert table.tags(include_internal=True) == ["good"]


@pytest.mark.parametrize("gone", ["base list", "delta list", "manifest"])
@pytest.mark.parametrize("make", ["tag", "savepoint", "branch", "replaced tag"])
def test_what_another_engines_expiry_left_in_part_is_not_referred_to(table, make, gone):
    """It died after manifests of a snapshot and before the snapshot; this process still has them in its cache."""
    table.append(rows(0, 1))
    table.overwrite(rows(10, 1))
    table.create_tag("newest")
    old, layout = table.context.snapshots.find(1), table.context.layout
    (manifest,) = table.context.manifests.of_snapshot(old)
    name = {
        "base list": old.base_manifest_list,
        "delta list": old.delta_manifest_list,
        "manifest": manifest.file_name,
    }[gone]
    table.context.storage.delete(layout.manifest_path(name))
    before = {*_internal(table)}
    with pytest.raises(anabranch.NotFoundError, match="snapshot 1 of .* cannot be referred to") as caught:
        {
            "tag": lambda: table.create_tag("old", snapshot=1),
            "savepoint": lambda: table.create_savepoint(snapshot=1),
            "branch": lambda: table.create_branch("old", snapshot=1),
            "replaced tag": lambda: table.replace_tag("newest", snapshot=1),
        }[make]()
    assert name in caught.value.message
    assert {*_internal(table)} == before
    assert [*table.tags()] == ["newest"]
    assert ids_of(table.at("newest")) == [10]
    table.append(rows(20, 1))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert ids_of(table) == [10, 20], "no reference that cannot be read stops the expiry"


def test_a_name_is_given_once(table):
    table.create_tag("good", 2)
    for snapshot in (2, 3):
        with pytest.raises(
            anabranch.AlreadyExistsError, match="'good' exists already.*names snapshot 2"
        ) as caught:
            table.create_tag("good", snapshot)
        assert "replace_tag" in caught.value.hint


def test_of_two_who_give_a_name_at_once_one_does(table):
    def compete(path):
        table.create_tag("good", 2)

    slow = through(table, run("before", "put_if_absent", compete))
    with pytest.raises(anabranch.AlreadyExistsError):
        slow.create_tag("good", 3)
    assert table.at("good").snapshot.id == 2
    together = threading.Barrier(5)

    def work(snapshot):
        mine = anabranch.Table(replace(table.context))
        together.wait(30)
        try:
            return mine.create_tag("raced", snapshot).snapshot.id
        except anabranch.AlreadyExistsError:
            return None

    for snapshots in (range(1, 6), [3] * 5):
        with ThreadPoolExecutor(5) as pool:
            made = [found for found in pool.map(work, snapshots) if found]
        assert made == [table.delete_tag("raced").snapshot.id]


# Removing and renaming


def test_removing(table):
    table.create_tag("good")
    foreign_tag(table, "7", 2)
    assert table.delete_tag("good").snapshot.id == 6
    assert table.delete_tag("7").snapshot.id == 2, "whatever others called it"
    assert table.tags() == []
    with pytest.raises(anabranch.NotFoundError, match="tag 'good' does not exist") as caught:
        table.delete_tag("good")
    assert caught.value.hint == "the table has no tags."


def test_the_tables_own_tags_are_left_alone(table):
    table.create_savepoint()
    foreign_tag(table, "anabranch-other", 1)
    assert table.tags() == []
    assert table.tags(include_internal=True) == ["anabranch-other", "anabranch-savepoint-1"]
    for work in (table.delete_tag, table.replace_tag, lambda name: table.rename_tag(name, "mine")):
        with pytest.raises(anabranch.InvalidNameError) as caught:
            work("anabranch-savepoint-1")
        assert caught.value.hint == "let go of savepoint 1 instead, with `delete_savepoint`."
        with pytest.raises(anabranch.InvalidNameError, match="belongs to the table itself"):
            work("anabranch-other")


@pytest.mark.parametrize(
    "use",
    [
        lambda table: table.tag(3),
        lambda table: table.delete_tag(3),
        lambda table: table.replace_tag(3, 1),
        lambda table: table.rename_tag(3, "new"),
        lambda table: table.create_branch("fix", 3),
        lambda table: table.branch(3),
        lambda table: table.delete_branch(3),
        lambda table: table.replace_main_branch(3),
    ],
)
def test_names_that_are_no_text(table, use):
    with pytest.raises(anabranch.InvalidNameError, match="the name of a (tag|branch) is text, found int"):
        use(table)


def test_renaming(table):
    made = _at(table, NOON).create_tag("old", 2, retained="7 d")
    assert table.rename_tag("old", "new") == replace(made, name="new")
    assert table.tags() == ["new"]
    foreign_tag(table, "12", 3)
    table.rename_tag("12", "twelve")
    assert table.at("twelve").snapshot.id == 3
    with pytest.raises(anabranch.AlreadyExistsError):
        table.rename_tag("new", "twelve")
    with pytest.raises(anabranch.NotFoundError):
        table.rename_tag("old", "other")
    with pytest.raises(anabranch.AlreadyExistsError):
        table.rename_tag("new", "new")
    assert table.tags() == ["new", "twelve"]


def test_a_tag_that_is_removed_while_it_is_renamed(table):
    table.create_tag("old", 2)
    slow = through(table, run("after", "put_if_absent", lambda _: table.delete_tag("old")))
    with pytest.raises(anabranch.NotFoundError, match="'old' of 'db.t' was removed while"):
        slow.rename_tag("old", "new")
    assert table.tags() == []


def test_two_who_rename_a_tag_to_and_fro(table):
    """There is always one of the two names."""
    for nth in range(1, 7):
        table.create_tag("here", 2)
        back = run(
            "before", "get", lambda _: table.rename_tag("there", "here"), where="tag/tag-here", nth=nth
        )
        after = run("after", "put_if_absent", lambda _: table.rename_tag("there", "here"))
        for meanwhile in (back, after):
            with suppress(anabranch.NotFoundError, anabranch.AlreadyExistsError):
                through(table, meanwhile).rename_tag("here", "there")
            (left,) = table.tags()
            assert table.at(left).snapshot.id == 2
            table.delete_tag(left)
            table.create_tag("here", 2)
        table.delete_tag("here")


def test_two_who_rename_a_tag_alike(table):
    """The slower one may be told that the tag is gone, but never takes back what the faster one was promised."""
    for when, call in [("before", "put_if_absent"), ("after", "put_if_absent"), ("after", "get")]:
        table.create_tag("old", 2)
        other = run(when, call, lambda _: table.rename_tag("old", "new"), where="tag/tag-*")
        with pytest.raises((anabranch.NotFoundError, anabranch.AlreadyExistsError)):
            through(table, other).rename_tag("old", "new")
        assert table.tags() == ["new"]
        assert table.delete_tag("new").snapshot.id == 2


def test_a_tag_that_is_replaced_before_its_maker_has_looked(table):
    def overtake(path):
        table.replace_tag("good", 5)
        forget(table, 2)

    slow = through(table, run("after", "put_if_absent", overtake))
    with pytest.raises(anabranch.NotFoundError):
        slow.create_tag("good", 2)
    assert table.at("good").snapshot.id == 5


# Replacing


def test_replacing(table):
    at_noon = _at(table, NOON)
    at_noon.create_tag("good", 2, retained="1 d")
    later = _at(table, NOON + 5 * 3_600_000)
    replaced = later.replace_tag("good", 4)
    assert (replaced.snapshot.id, replaced.time_retained) == (4, DAY)
    assert replaced.create_time == NOON + 7 * 3_600_000, "the time starts anew, by the local clock"
    assert later.replace_tag("good", timestamp=5000, retained="2 d").time_retained == 2 * DAY
    assert table.at("good").snapshot.id == 5
    assert table.replace_tag("good").snapshot.id == 6
    assert _internal(table) == []
    for name, snapshot in [("bad", 2), ("good", 77)]:
        with pytest.raises(anabranch.NotFoundError):
            table.replace_tag(name, snapshot)
    assert table.at("good").snapshot.id == 6


# How long


@pytest.mark.parametrize(
    ("retained", "millis"), [("7 d", 7 * DAY), ("90 min", 5_400_000), (1500, 1500), (0, 0)]
)
def test_retention(table, retained, millis):
    tag = _at(table, NOON).create_tag("good", retained=retained)
    assert (tag.create_time, tag.time_retained) == (NOON + 7_200_000, millis)
    assert expire_tags(_at(table, NOON + millis).context) == []
    assert expire_tags(_at(table, NOON + millis + 1).context) == ["good"]
    assert table.tags() == []


@pytest.mark.parametrize("retained", ["soon", "-1 d", -5, ""])
def test_retention_that_cannot_be(table, retained):
    with pytest.raises(anabranch.InvalidInputError):
        table.create_tag("good", retained=retained)
    assert table.tags() == []


def test_tags_without_retention_and_internal_ones_stay(table):
    at_noon = _at(table, NOON)
    at_noon.create_tag("for-good")
    at_noon.create_tag("for-a-day", retained="1 d")
    at_noon.create_savepoint()
    assert expire_tags(_at(table, NOON + 5000 * DAY).context) == ["for-a-day"]
    assert table.tags(include_internal=True) == ["anabranch-savepoint-1", "for-good"]


def test_the_default_of_the_table():
    table = make_table(f"memory://tags{next(_names)}", options={"tag.default-time-retained": "3 d"})
    table.append(rows(0, 1))
    assert table.create_tag("a").time_retained == 3 * DAY
    assert table.create_tag("b", retained="1 h").time_retained == 3_600_000
    assert table.create_savepoint().id == 1
    assert table.tag("anabranch-savepoint-1").snapshot.id == 1
    stored = table.context.runtime.clock.now_millis()
    assert expire_tags(table.context) == []
    assert expire_tags(at_time(table, _Clock(stored + 4 * DAY)).context) == ["a", "b"]


class _Zone(_Clock):
    """A machine whose clock is right, with a local time of so many hours ahead of UTC, or as the moment says."""

    def __init__(self, millis, offset):
        self.millis = millis
        self.offset = offset

    def local_offset_millis(self, at_millis):
        return int((self.offset(at_millis) if callable(self.offset) else self.offset) * 3_600_000)


def _in_zone(table, millis, offset):
    return at_time(table, _Zone(millis, offset))


@pytest.mark.parametrize(("made", "read"), [(-8, 0), (-12, 14), (14, -12), (5.5, -9.5)])
def test_the_zones_of_machines_do_not_change_how_long_a_tag_is_kept(table, made, read):
    """The tag has the last copy of its rows."""
    _in_zone(table, NOON, made).create_tag("good", 2, retained="7 h")
    forget(table, 1, 2, 3)
    hour = 3_600_000
    for passed in (1, 7 * hour):
        other = _in_zone(table, NOON + passed, read)
        other.expire_snapshots(retain_max=2)
        assert ids_of(other.at("good")) == [0, 1]
    assert expire_tags(_in_zone(table, NOON + 7 * hour + 1, read).context) == ["good"]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_a_change_of_the_clocks_does_not_change_how_long_a_tag_is_kept(table, before, after):
    def offset(millis):
        return before if millis < NOON + 60_000 else after

    hour = 3_600_000
    _in_zone(table, NOON, offset).create_tag("good", retained="2 h")
    assert expire_tags(_in_zone(table, NOON + 2 * hour, offset).context) == []
    assert expire_tags(_in_zone(table, NOON + 2 * hour + 1, offset).context) == ["good"]


def test_a_tag_of_another_engine_is_kept_until_its_time_is_over_in_every_zone(table):
    """It stores the time of its creation as a local time and does not say of which zone."""
    own = _in_zone(table, NOON, -8).create_tag("good", retained="7 h")
    storage, path = table.context.storage, table.context.layout.tag_path("good")
    storage.put(path, replace(own, created_millis=None).to_json())
    hour = 3_600_000
    assert expire_tags(_in_zone(table, NOON + 7 * hour, 0).context) == []
    assert expire_tags(_in_zone(table, NOON + (12 - 8 + 7) * hour + 1, 0).context) == ["good"]


def test_a_clock_that_is_ahead_of_the_stores_expires_no_tag(table):
    table.create_tag("good", retained="7 h")
    ahead = table.context.runtime.clock.now_millis() + 400 * DAY
    assert expire_tags(_by_a_clock_of(table, ahead).context, dry_run=True) == []
    assert expire_tags(_by_a_clock_of(table, ahead).context) == []
    assert table.tags() == ["good"]


def test_a_tag_that_is_replaced_while_it_expires_stays(table):
    _at(table, NOON).create_tag("good", 2, retained="1 d")
    late = _at(table, NOON + 2 * DAY)

    def replace_it(path):
        late.replace_tag("good", 3)

    slow = through(late, run("after", "get", replace_it, where="tag/tag-good"))
    assert expire_tags(slow.context) == []
    assert table.at("good").snapshot.id == 3


def _expiring():
    table = copied_history()
    _at(table, NOON).create_tag("good", 2, retained="1 d")
    return _at(table, NOON + 2 * DAY)


def _make_anew(table):
    with suppress(anabranch.NotFoundError):
        table.delete_tag("good")
    table.create_tag("good", 3)


def test_a_tag_that_is_made_anew_while_one_of_its_name_expires_stays():
    """At whatever call the expiry stands still."""
    calls = calls_of(_expiring(), lambda table: expire_tags(table.context))
    for (name, nth), when in itertools.product(calls, ("before", "after")):
        late = _expiring()
        meanwhile = run(when, name, lambda _, late=late: _make_anew(late), nth=nth)
        expire_tags(through(late, meanwhile).context)
        assert late.tags(include_internal=True) == ["good"], (name, nth, when)
        assert late.at("good").snapshot.id == 3


def _make_in_vain(table, *faults):
    """Make a tag whose snapshot goes right after it was put."""
    vanish = run("after", "put_if_absent", lambda _: forget(table, 2), where="tag/tag-good")
    slow = through(table, *faults, vanish)
    with pytest.raises(anabranch.AnabranchError):
        slow.create_tag("good", 2)
    return slow.context.storage.calls


def test_a_tag_that_is_made_anew_while_one_of_its_name_is_taken_back_stays():
    """Whoever made the first one finds that its snapshot is gone, and stands still at whatever call."""
    seen = Counter()
    for call, when in itertools.product(_make_in_vain(copied_history()), ("before", "after")):
        seen[call.name] += when == "before"
        table, made = copied_history(), []

        def meanwhile(_, table=table, made=made):
            _make_anew(table)
            made.append("good")

        _make_in_vain(table, run(when, call.name, meanwhile, nth=seen[call.name]))
        # A read that finds nothing has no moment after it.
        assert table.tags(include_internal=True) == made, (call, seen[call.name], when)
        assert made == [] or table.at("good").snapshot.id == 3


def test_a_tag_that_was_set_aside_by_mistake_is_put_back_by_the_next_expiry():
    late = _expiring()
    faults = run("before", "move_many", lambda _: _make_anew(late)), run("after", "move_many", die)
    with pytest.raises(Died):
        expire_tags(through(late, *faults).context)
    (aside,) = late.tags(include_internal=True)
    assert aside.startswith("anabranch-going-"), "nobody looked at it"
    assert late.at(aside).snapshot.id == 3, "what it names is held"
    assert expire_tags(late.context) == []
    assert late.tags(include_internal=True) == ["good"]
    assert late.at("good").snapshot.id == 3


@pytest.mark.parametrize("name", ["good", "ü" * 120])
def test_an_expiry_of_tags_that_dies_is_finished_by_the_next(name):
    def begin():
        table = copied_history()
        _at(table, NOON).create_tag(name, 2, retained="1 d")
        return _at(table, NOON + 2 * DAY)

    for table, *_ in each_death(begin, lambda table: expire_tags(table.context)):
        expire_tags(table.context)
        assert table.tags(include_internal=True) == []


# While snapshots expire


def _overwritten():
    """Each of six snapshots has a file of its own, which only it reaches."""
    table = make_table(f"memory://tags{next(_names)}")
    for i in range(6):
        table.overwrite(rows(i, 1))
    table.create_tag("old", 2)
    return table


def _expire(table):
    return table.expire_snapshots(retain_max=2, retain_min=2, older_than=0)


def _fresh(table):
    from anabranch.kernel.log.cache import MetadataCache

    return anabranch.Table(replace(table.context, cache=MetadataCache()))


WORKS = {
    "create": lambda t: t.create_tag("new", 3),
    "of a tag": lambda t: t.create_tag("new", "old"),
    "replace": lambda t: t.replace_tag("old", 3),
    "rename": lambda t: t.rename_tag("old", "new"),
}


@pytest.mark.parametrize(
    "work",
    [
        WORKS["replace"],
        *(pytest.param(WORKS[name], marks=pytest.mark.long) for name in ("create", "of a tag", "rename")),
    ],
)
def test_an_expiry_between_any_two_calls(work):
    """What the call says is so, and every tag there is reads its rows."""
    for (name, nth), when in itertools.product([*calls_of(_overwritten(), work)], ("before", "after")):
        table = _overwritten()
        meanwhile = through(table, run(when, name, lambda _, table=table: _expire(table), nth=nth))
        try:
            work(meanwhile)
        except anabranch.NotFoundError:
            assert table.tags() == ["old"]
            assert table.at("old").snapshot.id == 2
        _expire(table)
        for tag in table.tags():
            assert ids_of(_fresh(table).at(tag)) == [table.at(tag).snapshot.id - 1]
        assert _internal(table) == []


# Dying


def _with_old():
    table = copied_history()
    table.create_tag("old", 2)
    return table


def _check_readable(table):
    for tag in table.tags(include_internal=True):
        assert ids_of(table.at(tag)) == list(range(table.at(tag).snapshot.id))


DEATHS = {
    "create": (WORKS["create"], [{"old": 2}], {"old": 2, "new": 3}),
    "replace": (WORKS["replace"], [{"old": 2}], {"old": 3}),
    "rename": (WORKS["rename"], [{"old": 2}, {"old": 2, "new": 2}], {"new": 2}),
    "delete": (lambda t: t.delete_tag("old"), [{"old": 2}], {}),
}


@pytest.mark.parametrize(("work", "befores", "after"), DEATHS.values(), ids=DEATHS)
def test_dying_at_every_call(work, befores, after):
    seen = []
    for table, *where in each_death(_with_old, work):
        _check_readable(table)
        found = {name: table.at(name).snapshot.id for name in table.tags()}
        assert found in (*befores, after), where
        seen.append(found)
        if found != after:
            work(table)  # repeated, it comes to its end
        assert {name: table.at(name).snapshot.id for name in table.tags()} == after
    assert befores[0] in seen
    assert after in seen


def test_an_error_leaves_no_tag_that_was_not_looked_after(table):
    slow = through(table, no_space("get", where="snapshot/snapshot-3", nth=2))
    with pytest.raises(anabranch.StorageError):
        slow.create_tag("new", 3)
    assert table.tags() == []
