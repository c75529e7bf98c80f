"""Tags that commits make by themselves: which, of which snapshot, under which name, and once."""

import itertools
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import anabranch
from anabranch.errors import OptionError
from anabranch.format.records.manifest_list import encode_manifest_list
from anabranch.format.records.snapshot import CommitKind, Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.refs.auto_tags import due_tags
from anabranch.runtime import SystemClock
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import at_time
from tests.support.deaths import each_death, through
from tests.support.faults import FaultyStorage, run
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
DAILY = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}
HOURLY = {**DAILY, "tag.creation-period": "hourly"}


def _millis(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class _Clock(SystemClock):
    def __init__(self, millis):
        self.millis = millis

    def now_millis(self):
        return self.millis

    def local_offset_millis(self, at_millis):
        return -5 * 3_600_000


def _table(**options):
    return make_table(f"memory://auto{next(_names)}", options=options)


def _commit(table, text, **how):
    """An append at that time, by the machine's clock and by the store's."""
    return anabranch.Table(at_time(table, _Clock(_millis(text))).context, **how).append(rows(0, 1)).id


def _tags(table):
    return {name: table.tag(name).snapshot.id for name in table.tags()}


# On branches


@pytest.mark.parametrize("more", [{}, {"tag.automatic-completion": "true"}])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_branch_tags_periods_that_pass_after_it_began_and_can_take_the_place_of_main(more, deleted):
    """What had passed before is main's, whether the branch's folder has the tag or not."""
    table = _table(**DAILY, **more)
    _commit(table, "2026-01-30 10:00")
    _commit(table, "2026-01-31 10:00")
    _commit(table, "2026-01-31 12:00")
    table.create_tag("good")
    _commit(table, "2026-02-01 09:00")
    assert _tags(table) == {"2026-01-29": 1, "2026-01-30": 2, "2026-01-31": 4, "good": 3}
    if deleted:
        table.delete_tag("2026-01-30")
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    assert _commit(fix, "2026-01-31 20:00") == 4
    assert _tags(fix) == {"good": 3}
    assert _commit(fix, "2026-02-02 10:00") == 5
    passed = {"2026-01-31": 5} if more else {}
    assert _tags(fix) == {"good": 3, "2026-02-01": 5, **passed}
    table.replace_main_branch("fix")
    main = anabranch.Table(table.branch("main").context)
    before = {"2026-01-29": 1, **({} if deleted else {"2026-01-30": 2})}
    assert _tags(main) == {**before, "good": 3, "2026-02-01": 5, **passed}
    _commit(main, "2026-02-03 10:00")
    assert _tags(main)["2026-02-02"] == main.snapshot.id


def test_a_branch_tags_periods_by_its_watermark_from_where_it_began():
    table = _table(**{"tag.automatic-creation": "watermark"})
    _append_until(table, "2026-01-30 10:00")
    table.create_tag("first")
    _append_until(table, "2026-01-31 10:00")
    table.create_tag("good")
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    _append_until(fix, "2026-01-31 20:00")
    assert _tags(fix) == {"good": 2}
    _append_until(fix, "2026-02-01 00:00")
    assert _tags(fix) == {"good": 2, "2026-01-31": 4}
    table.replace_main_branch("fix")


# By time


def test_the_first_commit_after_a_day_tags_the_day():
    table = _table(**DAILY)
    for text in (
        "2026-01-30 10:00",
        "2026-01-30 23:59:59",
        "2026-01-31 00:00",
        "2026-01-31 12:00",
        "2026-02-02 08:00",
    ):
        _commit(table, text)
    # Nothing was written on February 1st: its tag is that of what was there, the first commit after it.
    assert _tags(table) == {"2026-01-29": 1, "2026-01-30": 3, "2026-02-01": 5}
    assert ids_of(table.at("2026-01-30")) == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"tag.creation-period": "hourly"}, ["2026-01-31 08", "2026-01-31 09", "2026-01-31 11"]),
        ({"tag.creation-period": "two-hours"}, ["2026-01-31 06", "2026-01-31 08", "2026-01-31 10"]),
        ({"tag.period-formatter": "without_dashes"}, ["20260130"]),
        (
            {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"},
            ["20260131 08", "20260131 09", "20260131 11"],
        ),
        (
            {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
            ["2026013108", "2026013109", "2026013111"],
        ),
    ],
    ids=str,
)
def test_periods_and_their_names(options, names):
    table = _table(**DAILY, **options)
    for text in ("2026-01-31 09:30", "2026-01-31 10:00", "2026-01-31 10:59", "2026-01-31 12:00"):
        _commit(table, text)
    assert table.tags() == names


def test_a_delay_waits_for_late_rows():
    table = _table(**HOURLY, **{"tag.creation-delay": "10 min"})
    for text in ("2026-01-31 09:30", "2026-01-31 10:00", "2026-01-31 10:09", "2026-01-31 10:10"):
        _commit(table, text)
    assert _tags(table) == {"2026-01-31 08": 1, "2026-01-31 09": 4}


def test_a_delay_must_be_shorter_than_the_period(caplog):
    too_long = {"tag.creation-delay": "1 h"}
    with pytest.raises(OptionError, match="not less than the period"):
        _table(**HOURLY, **too_long)
    table = _table(**HOURLY)
    with pytest.raises(OptionError, match="not less than the period"):
        table.alter().set_option("tag.creation-delay", "1 h").apply()
    # A write may ask for it all the same, or another engine have set it.
    assert _commit(table, "2026-01-31 09:30", options=too_long) == 1, "the commit stands"
    assert "automatic tags were not made" in caplog.text
    with pytest.raises(OptionError, match="not less than the period"):
        due_tags(table.context, {**table.options, **too_long})


def test_completion_tags_periods_without_commits_too():
    table = _table(**HOURLY, **{"tag.automatic-completion": "true"})
    for text in ("2026-01-31 09:30", "2026-01-31 13:10"):
        _commit(table, text)
    assert _tags(table) == {
        "2026-01-31 08": 1, "2026-01-31 09": 2, "2026-01-31 10": 2, "2026-01-31 11": 2, "2026-01-31 12": 2
    }  # fmt: skip


def test_completion_over_a_long_pause_makes_no_more_than_would_stay():
    table = _table(**HOURLY, **{"tag.automatic-completion": "true", "tag.num-retained-max": "3"})
    for text in ("1990-01-31 09:30", "2026-01-31 13:10"):
        _commit(table, text)
    assert table.tags() == ["2026-01-31 10", "2026-01-31 11", "2026-01-31 12"]


def test_days_are_those_of_a_zone():
    """By default those of the machine, here five hours behind UTC."""
    for zone, name in {None: "2026-01-29", "Asia/Tokyo": "2026-01-30", "UTC": "2026-01-30"}.items():
        options = {"tag.automatic-creation": "process-time"} | (
            {"sink.process-time-zone": zone} if zone else {}
        )
        table = _table(**options)
        _commit(table, "2026-01-31 03:00")
        assert table.tags() == [name]


def test_the_hour_that_comes_twice_has_one_tag():
    """On 2026-10-25 clocks in Berlin go from 3 back to 2, at 1 o'clock UTC."""
    table = _table(**{**HOURLY, "sink.process-time-zone": "Europe/Berlin"})
    for minutes in range(0, 300, 30):
        text = (datetime(2026, 10, 24, 22, 30) + timedelta(minutes=minutes)).isoformat(" ")
        _commit(table, text)
    assert _tags(table) == {
        "2026-10-24 23": 1, "2026-10-25 00": 2, "2026-10-25 01": 4, "2026-10-25 02": 8, "2026-10-25 03": 10
    }  # fmt: skip


def _append_until(table, watermark):
    from anabranch.kernel.actions.append import Append
    from tests.support.tables import written

    committed = table.commit(
        Append(written(table, 0, 1)), watermark=None if watermark is None else _millis(watermark)
    )
    return committed.snapshot.id


def test_by_watermark():
    options = {"tag.automatic-creation": "watermark", "sink.watermark-time-zone": "Asia/Tokyo"}
    table = _table(**options)
    for watermark in (
        None,
        "2026-01-31 10:00",
        "2026-01-31 14:59",
        "2026-01-31 15:00",
        None,
        "2026-02-01 15:00",
    ):
        _append_until(table, watermark)
    assert _tags(table) == {"2026-01-30": 2, "2026-01-31": 4, "2026-02-01": 6}


# What goes again


def test_only_the_newest_stay():
    table = _table(**HOURLY, **{"tag.num-retained-max": "2"})
    for hour in range(9, 15):
        _commit(table, f"2026-01-31 {hour:02}:30")
        if hour == 9:
            table.create_tag("mine")
    assert table.tags() == ["2026-01-31 12", "2026-01-31 13", "mine"]


def test_they_are_kept_as_long_as_the_option_says_and_not_made_again():
    table = _table(**HOURLY, **{"tag.default-time-retained": "30 min"})
    for text in ("2026-01-31 09:00", "2026-01-31 10:00"):
        _commit(table, text)
    assert table.tags() == ["2026-01-31 09"], "that of the hour before has been kept long enough"
    assert table.tag("2026-01-31 09").snapshot.id == 2
    table.delete_tag("2026-01-31 09")
    _commit(table, "2026-01-31 10:40")
    assert table.tags() == [], "it was deleted on purpose"
    _commit(table, "2026-01-31 11:00")
    assert table.tags() == ["2026-01-31 10"]


def test_without_the_hint_the_newest_tag_tells():
    table = _table(**HOURLY)
    for text in ("2026-01-31 09:00", "2026-01-31 10:00"):
        _commit(table, text)
    for hint in (None, b"", b"2026-01-31", b"\xff", b"2026-01-31 08"):
        if hint is None:
            table.context.storage.delete("tag/AUTOMATIC")
        else:
            table.context.storage.put("tag/AUTOMATIC", hint)
        _commit(table, "2026-01-31 10:30")
        assert _tags(table) == {"2026-01-31 08": 1, "2026-01-31 09": 2}


def test_turned_off_there_are_none():
    table = _table()
    _commit(table, "2026-01-31 09:00")
    assert table.tags() == []
    assert not table.context.storage.exists("tag/AUTOMATIC")


# After batch writes


def test_a_batch_write_tags_the_day():
    table = _table(**{**DAILY, "tag.automatic-creation": "batch"})
    for text in ("2026-01-30 10:00", "2026-01-30 11:00", "2026-01-31 09:00"):
        _commit(table, text)
    assert _tags(table) == {"batch-write-2026-01-30": 2, "batch-write-2026-01-31": 3}


def test_a_batch_write_may_have_a_tag_of_its_own_name():
    table = _table(**{"tag.automatic-creation": "batch", "tag.batch.customized-name": "nightly"})
    for expected in (1, 2, 3):
        _commit(table, "2026-01-30 10:00")
        assert _tags(table) == {"nightly": expected}
    streamed = replace(table.snapshot, commit_identifier=7)
    assert due_tags(table.context, table.options, streamed) == []
    assert due_tags(table.context, table.options, table.context.snapshots.get(1)) == [], (
        "a later write was faster"
    )
    assert _tags(table) == {"nightly": 3}


# Once, whoever asks and however often


def _snapshot(number, millis):
    name = f"manifest-list-{number}"
    return Snapshot(
        id=number, schema_id=0, base_manifest_list=name, delta_manifest_list=name, commit_user="u",
        commit_identifier=number, commit_kind=CommitKind.APPEND, time_millis=millis, total_record_count=1,
    )  # fmt: skip


def _by_definition(times, length, delay, *, completion):
    """Every snapshot in turn, with the last period in mind."""
    tags, last = {}, None
    for number, millis in times.items():
        passed = (millis - delay) // length * length - length
        if last is None or passed > last:
            first = passed if last is None or not completion else last + length
            for period in range(first, passed + 1, length):
                tags[period] = number
            last = passed
    return tags


def _check_against_definition(seed):
    chance = random.Random(seed)
    length, form = chance.choice([(3_600_000, "%Y-%m-%d %H"), (86_400_000, "%Y-%m-%d")])
    delay, completion = chance.choice([0, length // 6]), chance.random() < 0.3
    options = {
        **(HOURLY if length == 3_600_000 else DAILY),
        "tag.creation-delay": f"{delay} ms",
        "tag.automatic-completion": str(completion).lower(),
    }
    storage = MemoryStorage(f"due{next(_names)}")
    context = TableContext(storage, "db.t", known_uuid="u")
    millis, times, made = _millis("2026-01-30 12:00"), {}, []
    for number in range(1, chance.randint(2, 40)):
        millis += chance.choice([0, 1, length // 20, length // 3, length // 3, length, 3 * length])
        times[number] = millis
        snapshot = _snapshot(number, millis)
        storage.put(context.layout.snapshot_path(number), snapshot.to_json())
        storage.put(context.layout.manifest_path(snapshot.base_manifest_list), encode_manifest_list([]))
        if chance.random() < 0.5:  # not every commit gets as far
            made += due_tags(context, options, _snapshot(number, millis))
        if chance.random() < 0.1:
            storage.delete("tag/AUTOMATIC")
    made += due_tags(context, options)
    expected = {
        datetime.fromtimestamp(period / 1000, UTC).strftime(form): number
        for period, number in _by_definition(times, length, delay, completion=completion).items()
    }
    table = anabranch.Table(context)
    assert _tags(table) == expected, seed
    assert sorted(made) == sorted(expected), seed
    assert due_tags(context, options) == []


def test_tags_are_those_of_the_definition():
    for seed in range(60):
        _check_against_definition(seed)


@pytest.mark.long
def test_tags_are_those_of_the_definition_in_many_histories():
    for seed in range(1_000, 3_000):
        _check_against_definition(seed)


def test_many_who_ask_at_once_make_each_tag_once():
    table = _table()
    for text in ("2026-01-31 09:30", "2026-01-31 10:10", "2026-01-31 12:10"):
        _commit(table, text)
    together = threading.Barrier(6)

    def work(_):
        context = replace(table.context)
        together.wait(30)
        return due_tags(context, HOURLY)

    with ThreadPoolExecutor(6) as pool:
        made = [*itertools.chain(*pool.map(work, range(6)))]
    assert {"2026-01-31 08", "2026-01-31 09", "2026-01-31 11"} == set(made)
    assert _tags(table) == {"2026-01-31 08": 1, "2026-01-31 09": 2, "2026-01-31 11": 3}


def test_dying_at_every_call_makes_them_once():
    def make():
        table = _table()
        for text in ("2026-01-31 09:30", "2026-01-31 10:10"):
            _commit(table, text)
        return table

    for table, *_ in each_death(make, lambda t: due_tags(t.context, HOURLY)):
        due_tags(table.context, HOURLY)
        assert _tags(table) == {"2026-01-31 08": 1, "2026-01-31 09": 2}


def test_a_snapshot_that_expires_meanwhile_gets_no_tag():
    table = _table()
    for text in ("2026-01-31 09:30", "2026-01-31 09:40", "2026-01-31 10:10"):
        _commit(table, text)

    def expire(path):
        table.context.storage.delete("snapshot/snapshot-1")

    slow = through(table, run("before", "put_if_absent", expire))
    assert due_tags(slow.context, HOURLY) == ["2026-01-31 09"]
    assert _tags(table) == {"2026-01-31 09": 3}


def test_where_nothing_is_due_one_small_read_tells():
    table = _table(**HOURLY)
    for minute in range(30):
        _commit(table, f"2026-01-31 09:{minute + 10}")
    watched = FaultyStorage(table.context.storage)
    assert due_tags(replace(table.context, storage=watched), HOURLY, table.snapshot) == []
    assert sum(watched.counts().values()) == 1
