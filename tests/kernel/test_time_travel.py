"""Finding a moment of a table, also while snapshots expire, and with names nobody should have."""

import itertools
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

import anabranch
from anabranch.format.records.savepoint import Savepoint
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.refs.published import at_time
from anabranch.runtime import Runtime
from anabranch.storage.memory import MemoryStorage
from tests.support.faults import FaultyStorage, run
from tests.support.moments import foreign_savepoint, foreign_tag, forget, history, rewrite, set_times
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()


@pytest.fixture
def table():
    return history(f"memory://travel{next(_names)}")


def _through(table, *faults):
    return anabranch.Table(replace(table.context, storage=FaultyStorage(table.context.storage, faults)))


# By time


@pytest.mark.parametrize(
    ("millis", "expected"), [(1000, 1), (1999, 1), (2000, 2), (3500, 3), (6000, 6), (10**15, 6)]
)
def test_the_newest_at_or_before_a_time(table, millis, expected):
    found = table.at(timestamp=millis)
    assert found.snapshot.id == expected
    assert (found.moment.found_by, found.moment.name) == ("snapshot", f"snapshot.{expected}")
    assert found.moment.distance_millis == millis - 1000 * expected
    assert ids_of(found) == list(range(expected))


def test_several_of_one_millisecond_count_as_the_last(table):
    set_times(table, {2: 3000, 3: 3000, 4: 3000})
    assert table.at(timestamp=3000).snapshot.id == 4
    assert table.at(timestamp=2999).snapshot.id == 1


@pytest.mark.parametrize(
    ("times", "asked", "expected"),
    [
        ({3: 1500}, 1600, 3),
        ({3: 1500}, 1400, 1),
        ({2: 9000}, 4500, 4),
        ({1: 9000, 2: 9000, 3: 9000, 4: 9000, 5: 9000}, 6000, 6),
        ({6: 10}, 10, 6),
        ({6: 10}, 9, None),
        ({1: 5000, 2: 50, 3: 5000, 4: 6000, 5: 7000, 6: 8000}, 60, 2),
    ],
)
def test_clocks_that_went_back(table, times, asked, expected):
    """The newest whose time is not later, whatever the times of those before it."""
    set_times(table, times)
    if expected is None:
        with pytest.raises(anabranch.NotFoundError):
            table.at(timestamp=asked)
    else:
        assert table.at(timestamp=asked).snapshot.id == expected


def test_times_as_people_write_them(table):
    """In winter Berlin is an hour ahead of UTC, in summer two; on 2026-10-25 the hour from 2 to 3 comes twice."""
    start = datetime(2026, 10, 24, 23, tzinfo=UTC)
    hours = [start + timedelta(hours=h) for h in range(6)]
    set_times(table, {n + 1: int(t.timestamp()) * 1000 for n, t in enumerate(hours)})
    for text, expected in {
        "2026-10-24 23:00:00": 1,
        "2026-10-25": 2,
        "2026-10-25T00:30:00Z": 2,
        "2026-10-25 01:00:00+02:00": 1,
        "2026-10-25 01:59:59.999 Europe/Berlin": 1,
        "2026-10-25 02:30:00 Europe/Berlin": 2,  # the first time it comes: summer time
        "2026-10-25 03:00:00 Europe/Berlin": 4,
        "2026-10-25 02:30:00+01:00": 3,
        "2026-10-24 22:00:00 America/New_York": 4,
    }.items():
        assert table.at(timestamp=text).snapshot.id == expected, text
    assert table.at(timestamp=hours[2]).snapshot.id == 3
    assert table.at(timestamp=datetime(2026, 10, 25, 1)).snapshot.id == 3
    assert table.at(timestamp=datetime(2026, 10, 25, 1, tzinfo=timezone(timedelta(hours=2)))).snapshot.id == 1


def test_an_hour_that_clocks_leave_out_is_counted_on(table):
    """On 2026-03-29 in Berlin 3 o'clock follows 2; 2:30 is half an hour after 2, as 3:30 is."""
    start = datetime(2026, 3, 29, tzinfo=UTC)
    set_times(table, {n: int((start + timedelta(minutes=30 * n)).timestamp()) * 1000 for n in range(1, 7)})
    assert table.at(timestamp="2026-03-29 02:30:00 Europe/Berlin").snapshot.id == 3
    assert table.at(timestamp="2026-03-29 03:30:00 Europe/Berlin").snapshot.id == 3


@pytest.mark.parametrize(
    "text", ["soon", "", "2026-13-01", "2026-01-01 25:00:00", "2026-01-01 10:00:00 Nowhere/X"]
)
def test_text_that_is_no_time(table, text):
    with pytest.raises(anabranch.InvalidInputError, match="no moment"):
        table.at(timestamp=text)


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.at(timestamp=date(1970, 1, 1)),
        lambda table: table.at(timestamp=1.5),
        lambda table: table.at(timestamp=True),
        lambda table: table.at(True),
        lambda table: table.at(1.0),
        lambda table: table.at(["good"]),
        lambda table: table.at(watermark="5"),
        lambda table: table.rollback(None),
        lambda table: table.create_tag("good", []),
        lambda table: table.create_savepoint(timestamp="yesterday"),
        lambda table: table.expire_snapshots(retain_max="3"),
        lambda table: table.expire_snapshots(older_than=1.5),
        lambda table: table.remove_orphan_files(older_than="yesterday"),
        lambda table: table.compact(idle=5),
        lambda table: table.sort_compact([1]),
    ],
)
def test_what_means_no_moment_is_bad_input(tmp_path, ask):
    table = history(tmp_path)
    with pytest.raises(anabranch.InvalidInputError):
        ask(table)
    assert (table.tags(include_internal=True), table.savepoints()) == ([], [])


def test_before_the_first(table):
    table.create_savepoint(3)
    forget(table, 1, 2, 3)
    with pytest.raises(anabranch.NotFoundError) as caught:
        table.at(timestamp=2999)
    assert "no snapshot at or before 2999 (1970-01-01 00:00:02.999Z)" in caught.value.message
    assert "earliest is snapshot 4 of 4000" in caught.value.message
    assert "latest is snapshot 6 of 6000" in caught.value.message
    assert "nearest savepoint is 1, of 3000" in caught.value.message
    assert "'savepoint.1', 'snapshot.4'" in caught.value.hint


def test_a_table_never_written():
    empty = make_table(f"memory://travel{next(_names)}")
    for asked in ({"timestamp": 5}, {"watermark": 5}, {"version": 1}):
        with pytest.raises(anabranch.NotFoundError):
            empty.at(**asked)
    for make in (empty.create_savepoint, lambda: empty.create_tag("x")):
        with pytest.raises(anabranch.NotFoundError, match="no snapshots"):
            make()


# Savepoints stand in


def test_a_savepoint_bridges_a_gap(table):
    table.create_savepoint(2)
    table.create_savepoint(4)
    forget(table, 1, 2, 3, 4)
    for millis, expected in [(2000, 1), (3999, 1), (4000, 2), (4999, 2)]:
        moment = table.at(timestamp=millis).moment
        assert (moment.found_by, moment.name) == ("savepoint", f"savepoint.{expected}")
        assert moment.distance_millis == millis - 2000 * expected
    assert table.at(timestamp=5000).moment.found_by == "snapshot"
    assert ids_of(table.at(timestamp=3999)) == [0, 1]
    assert str(table.at(timestamp=3999).moment) == (
        "savepoint.1 (snapshot 2) of 1970-01-01 00:00:02Z, 1 s 999 ms from 1970-01-01 00:00:03.999Z; "
        "what came in between is not known"
    )


def test_a_savepoint_is_no_better_than_a_snapshot_that_is_newer(table):
    table.create_savepoint(2)
    assert table.at(timestamp=3500).moment.name == "snapshot.3"
    assert table.at(timestamp=2500).moment.name == "snapshot.2"


def test_the_older_of_two_savepoints_may_have_the_higher_number(table):
    table.create_savepoint(4)
    table.create_savepoint(2)
    forget(table, 1, 2, 3, 4, 5)
    assert table.at(timestamp=4500).moment.name == "savepoint.1"
    assert table.at(timestamp=3500).moment.name == "savepoint.2"


def test_what_was_rolled_away_is_not_found_by_time(table):
    table.create_savepoint(6)
    table.create_savepoint(5)
    forget(table, 4, 5, 6)
    table.append(rows(50, 1))
    table.append(rows(60, 1))
    set_times(table, {4: 7000, 5: 8000})
    assert table.at(timestamp=6500).snapshot.id == 3
    assert ids_of(table.at("savepoint.1")) == [0, 1, 2, 3, 4, 5]


def test_savepoints_of_the_proposal_count_by_when_they_were_made(table):
    foreign_savepoint(table, 7, 2, saveTime=2200)
    forget(table, 1, 2, 3)
    with pytest.raises(anabranch.NotFoundError):
        table.at(timestamp=2199)
    assert ids_of(table.at(timestamp=2200)) == [0, 1]
    foreign_savepoint(table, 8, 4)
    forget(table, 4, 5)
    assert table.at(timestamp=4500).moment.name == "savepoint.7", "8 does not say of when it is"
    assert ids_of(table.at("savepoint.8")) == [0, 1, 2, 3]


def test_exact(table):
    assert table.at(timestamp=3500, exact=True).snapshot.id == 3
    assert table.at(timestamp=10**12, exact=True).snapshot.id == 6, "it is what it was then"
    with pytest.raises(anabranch.NotFoundError, match="still to come"):
        table.at(timestamp=10**15, exact=True)
    table.create_savepoint(2)
    table.create_savepoint(3)
    forget(table, 1, 2, 3, 4)
    assert table.at(timestamp=2500, exact=True).moment.name == "savepoint.1", "3 is known to be later"
    with pytest.raises(anabranch.NotFoundError) as caught:
        table.at(timestamp=3500, exact=True)
    assert "not certain" in caught.value.message
    assert "savepoint.2 (snapshot 3 of 3000 (1970-01-01 00:00:03Z)), 500 ms earlier" in caught.value.message
    assert not table.at(timestamp=3500).moment.is_exact
    table.create_savepoint(5)
    forget(table, 5)
    assert table.at(timestamp=5500, exact=True).moment.name == "savepoint.3"


# The rule against a model


class _FixedClock:
    def now_millis(self):
        return 10**6

    def monotonic(self):
        return 0.0

    def local_offset_millis(self, at_millis):
        return 0


def _random_history(chance):
    """Times of snapshots by number, which are retained, and the snapshot of each savepoint."""
    last, times = 0, {}
    holes = chance.random() < 0.3
    for number in range(1, chance.randint(1, 30) + 1):
        last = max(1, last + chance.choice([0, 0, 3, 10, 10, 10, 10 if holes else -4]))
        times[number] = last
    ids = list(times)
    retained = set(ids[chance.randrange(len(ids)) :])
    if holes:  # as others leave them; their clocks do not go back besides
        retained |= {number for number in ids if chance.random() < 0.3}
    saved = [chance.choice(ids) for _ in range(chance.choice([0, 0, 1, 3, 8]))]
    return times, retained | {ids[-1]}, saved


def _model(times, retained, saved, asked):
    """By definition: what is found, by what, and whether it is certain."""
    early = [number for number in retained | set(saved) if times[number] <= asked]
    if not early:
        return None
    found = max(early)
    if found == max(times):
        exact = asked <= 10**6
    else:
        exact = found + 1 in retained | set(saved) and times[found + 1] > asked
    return found, "snapshot" if found in retained else "savepoint", exact


def _snapshot(number, millis):
    name = f"manifest-list-{number}"
    return Snapshot(
        id=number, schema_id=0, base_manifest_list=name, delta_manifest_list=name, commit_user="u",
        commit_identifier=number, commit_kind=CommitKind.APPEND, time_millis=millis, total_record_count=1,
    )  # fmt: skip


def _check_against_model(seed):
    chance = random.Random(seed)
    times, retained, saved = _random_history(chance)
    storage = MemoryStorage(f"model{next(_names)}")
    context = TableContext(storage, "db.t", runtime=Runtime(clock=_FixedClock()), known_uuid="u")
    snapshots = {number: _snapshot(number, millis) for number, millis in times.items()}
    for number in retained:
        storage.put(context.layout.snapshot_path(number), snapshots[number].to_json())
    for number, of in enumerate(saved, 1):
        savepoint = Savepoint(
            id=number, saved_snapshot_id=of, schema_id=0, full_manifest_list="all", record_count=1,
            branch_uuid="u", saved_snapshot=snapshots[of],
        )  # fmt: skip
        storage.put(context.layout.savepoint_path(number), savepoint.to_json())
    asks = sorted({t + near for t in times.values() for near in (-1, 0, 1)} | {10**7})
    for asked in chance.sample(asks, min(10, len(asks))):
        expected = _model(times, retained, saved, asked)
        try:
            moment = at_time(context, asked)
            found = moment.snapshot.id, moment.found_by, moment.is_exact
        except anabranch.NotFoundError:
            found = None
        assert found == expected, (
            f"seed {seed}, asked {asked}, of {times}, retained {retained}, saved {saved}"
        )


@pytest.mark.long
def test_the_rule_is_the_model():
    for seed in range(80):
        _check_against_model(seed)


@pytest.mark.long
def test_the_rule_is_the_model_in_many_histories():
    for seed in range(1_000, 4_000):
        _check_against_model(seed)


def test_a_long_history_is_searched_not_walked():
    storage = MemoryStorage(f"model{next(_names)}")
    for number in range(1, 3001):
        storage.put(f"snapshot/snapshot-{number}", _snapshot(number, 10 * number).to_json())
    counted = FaultyStorage(storage)
    context = TableContext(counted, "db.t", known_uuid="u")
    storage.put("snapshot/LATEST", b"3000")
    storage.put("snapshot/EARLIEST", b"1")
    assert at_time(context, 12_345).snapshot.id == 1234
    assert sum(counted.counts().values()) < 70


# While snapshots expire


def test_snapshots_that_expire_while_one_is_looked_for(table):
    def expire(path):
        forget(table, 1, 2, 3)

    expiring = _through(table, run("after", "get", expire, where="snapshot/snapshot-[1-5]"))
    assert expiring.at(timestamp=4500).snapshot.id == 4
    with pytest.raises(anabranch.NotFoundError, match="earliest is snapshot 4 of 4000"):
        table.at(timestamp=3999)


def test_all_snapshots_below_a_time_expire_while_it_is_looked_for(table):
    def expire(path):
        forget(table, 1, 2, 3)

    expiring = _through(table, run("before", "get", expire, where="snapshot/snapshot-[1-3]"))
    with pytest.raises(
        anabranch.NotFoundError, match="no snapshot at or before 2500.*earliest is snapshot 4"
    ):
        expiring.at(timestamp=2500)


def test_a_stale_hint_of_the_earliest_does_not_mislead(table):
    forget(table, 1, 2)
    for hint in (b"1", b"5", b"77", b"x"):
        table.context.storage.put(table.context.layout.earliest_hint_path, hint)
        assert table.context.snapshots.earliest_id() == 3
        assert table.at(timestamp=3000).snapshot.id == 3


# By watermark


def _with_watermarks(table, watermarks):
    for number, watermark in watermarks.items():
        rewrite(table, number, watermark=watermark)


def test_the_first_whose_watermark_has_come_so_far(table):
    _with_watermarks(table, {2: 100, 3: 100, 4: 200, 5: 300, 6: 300})
    for asked, expected in [(-5, 2), (100, 2), (101, 4), (200, 4), (300, 5)]:
        moment = table.at(watermark=asked, exact=True).moment
        assert moment.snapshot.id == expected
        assert moment.distance_millis == moment.snapshot.watermark - asked
        assert table.at(f"watermark-{max(asked, 0)}").snapshot.id == (expected if asked > 0 else 2)
        assert table.with_options({"scan.watermark": str(asked)}).snapshot.id == expected
    with pytest.raises(anabranch.NotFoundError, match="newest snapshot, 6, has 300"):
        table.at(watermark=301)


def test_a_table_without_watermarks(table):
    with pytest.raises(anabranch.NotFoundError, match="no watermark of 5 or more: its snapshots have no"):
        table.at(watermark=5)


def test_by_watermark_savepoints_stand_in_too(table):
    _with_watermarks(table, {1: 50, 2: 100, 3: 150, 4: 200, 5: 250, 6: 300})
    table.create_savepoint(2)
    forget(table, 1, 2, 3, 4)
    assert table.at(watermark=80).moment.name == "savepoint.1"
    assert table.at(watermark=120).moment.name == "snapshot.5"
    assert not table.at(watermark=120).moment.is_exact
    with pytest.raises(anabranch.NotFoundError, match="not certain.*snapshot.5 has 250"):
        table.at(watermark=120, exact=True)
    assert table.at(watermark=260, exact=True).snapshot.id == 6


# By version


@pytest.mark.parametrize("version", [4, "4", "snapshot.4", "savepoint.1", "watermark-44", "good"])
def test_every_way_to_name_a_moment(table, version):
    rewrite(table, 4, watermark=44)
    table.create_savepoint(4)
    table.create_tag("good", 4)
    found = table.at(version)
    assert found.snapshot.id == 4
    assert ids_of(found) == [0, 1, 2, 3]
    assert ids_of(table.with_options({"scan.version": str(version)})) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "version",
    ["snapshot." + "9" * 5000, "9" * 5000, "9" * 19, "snapshot.", "snapshot.x", "snapshot.-1", "snapshot.١",
     "²", "nowhere", "..", ".", "a/b", "a\\b", "", " ", "x" * 300, "snapshot.0", 0, -1, 2**70,
     "savepoint.1", "savepoint.0", "savepoint.x", "savepoint." + "9" * 19, "watermark-5", "watermark-x"],
    ids=lambda v: repr(v)[:20],
)  # fmt: skip
def test_versions_that_do_not_exist(table, version):
    with pytest.raises((anabranch.NotFoundError, anabranch.InvalidInputError)):
        table.at(version)


@pytest.mark.parametrize(
    ("name", "other", "key"),
    [
        ("4", "snapshot.4", "scan.snapshot-id"),
        ("snapshot.4", "4", "scan.snapshot-id"),
        ("savepoint.1", None, "scan.savepoint-id"),
        ("watermark-40", None, "scan.watermark"),
    ],
)
def test_a_name_that_means_two_things(table, name, other, key):
    """Others may call their tags so; then the tag is read by its exact name, the other by its number."""
    foreign_tag(table, name, 2)
    rewrite(table, 4, watermark=40)
    table.create_savepoint(4)
    with pytest.raises(anabranch.InvalidInputError, match="ambiguous") as caught:
        table.at(name)
    assert f"the tag '{name}' (of snapshot 2) and " in caught.value.message
    assert f"scan.tag-name={name}" in caught.value.hint
    assert f"{key}=" in caught.value.hint
    assert ids_of(table.tag(name)) == ids_of(table.with_options({"scan.tag-name": name})) == [0, 1]
    number = "40" if key == "scan.watermark" else "4" if key == "scan.snapshot-id" else "1"
    assert ids_of(table.with_options({key: number})) == [0, 1, 2, 3]
    if other is not None:
        assert ids_of(table.at(other)) == [0, 1, 2, 3]
    forget(table, 1, 2, 3, 4, 5)
    if key == "scan.snapshot-id":
        assert ids_of(table.at(name)) == [0, 1], "there is only the tag now"


def test_a_snapshot_that_expired_says_what_holds_it(table):
    table.create_savepoint(2)
    table.create_tag("good", 3)
    forget(table, 1, 2, 3, 4)
    for version, hint in {
        2: "kept as 'savepoint.1'",
        3: "kept as 'good'",
        "snapshot.2": "'savepoint.1'",
    }.items():
        with pytest.raises(anabranch.NotFoundError, match="earliest is 5, the latest is 6") as caught:
            table.at(version)
        assert hint in caught.value.hint
    with pytest.raises(anabranch.NotFoundError) as caught:
        table.at(9)
    assert "nearest snapshot is 6" in caught.value.hint
    assert "nearest savepoint is 1, of snapshot 2" in caught.value.hint


def test_the_schema_is_that_of_the_moment(table):
    table.create_savepoint(3)
    table.create_tag("before")
    table.alter().add_column("note", "STRING").rename_column("v", "w").apply()
    table.append([{"id": 99, "w": "x", "note": "y"}])
    forget(table, 1, 2, 3)
    for past in (table.at("savepoint.1"), table.at("before"), table.at(6), table.at(timestamp=6000)):
        assert [f.name for f in past.schema.fields] == ["id", "v"]
        assert past.scan().to_arrow().schema.names == ["id", "v"]
    assert [f.name for f in table.at(7).schema.fields] == ["id", "w", "note"]


def test_a_moment_is_not_written(table):
    for past in (table.at(2), table.at(timestamp=2500)):
        with pytest.raises(anabranch.InvalidInputError, match="pinned to snapshot.2"):
            past.append(rows(9, 1))


# As options


def test_options_name_moments(table):
    table.create_savepoint(3)
    table.create_tag("good", 3)
    for options in (
        {"scan.snapshot-id": "3"}, {"scan.savepoint-id": "1"}, {"scan.tag-name": "good"},
        {"scan.version": "savepoint.1"}, {"scan.timestamp": "1970-01-01 00:00:03"},
        {"scan.timestamp-millis": "3999", "scan.exact": "true"},
    ):  # fmt: skip
        view = table.with_options(options)
        assert ids_of(view) == [0, 1, 2]
        assert view.moment.snapshot.id == 3
    assert table.with_options({}).moment is None
    assert table.at(2).with_options({"scan.exact": "true"}).snapshot.id == 2
    forget(table, 4)
    with pytest.raises(anabranch.NotFoundError, match="not certain"):
        table.with_options({"scan.timestamp-millis": "3999", "scan.exact": "true"})


def test_a_read_names_one_moment(table):
    with pytest.raises(anabranch.OptionError, match="one moment, found scan.snapshot-id and scan.tag-name"):
        table.with_options({"scan.snapshot-id": "1", "scan.tag-name": "x"})
    with pytest.raises(anabranch.InvalidInputError, match="either"):
        table.at(1, timestamp=5)
    with pytest.raises(anabranch.InvalidInputError, match="either"):
        table.at()
    with pytest.raises(anabranch.InvalidInputError, match="either"):
        table.create_tag("x", 1, timestamp=5)
