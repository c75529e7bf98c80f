"""The watermark that commits record: what it is, that it never goes back, and what the sources of the rows mean to it."""

import itertools
import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import SchemaError
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append
from anabranch.kernel.commit.watermark import claim
from anabranch.kernel.log.properties import WATERMARK_PROPERTY
from anabranch.runtime import Runtime, SystemClock
from tests.support.faults import FaultyStorage, fail
from tests.support.tables import make_table

_names = itertools.count()
COLUMNS = "id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
BY_SOURCE = {"sink.watermark.source-column": "_source"}
EPOCH = datetime(1970, 1, 1)


class Clock(SystemClock):
    def __init__(self):
        self.millis = 1_000_000_000_000

    def now_millis(self):
        return self.millis


def a_table(columns=COLUMNS, **how):
    return make_table(f"memory://watermark{next(_names)}", schema=columns, **how)


def at(seconds):
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def of(*seconds, source=None):
    """Rows with these event times."""
    column = {} if source is None else {"_source": source}
    return [{"id": number, "ts": at(s), **column} for number, s in enumerate(seconds)]


def no_rows():
    return pa.table({"id": pa.array([], pa.int64()), "ts": pa.array([], pa.timestamp("ms"))})


def recorded(table):
    return [s.watermark for s in sorted(table.snapshots(), key=lambda s: s.id)]


def on_clock(table, clock, storage=None):
    """The table for somebody whose clock this is."""
    context = replace(table.context, runtime=Runtime(clock=clock), storage=storage or table.context.storage)
    return anabranch.Table(context)


def foreign_commit(table):
    """A commit of an engine that does not know our properties, but carries the watermark on."""
    head = table.snapshot
    made = replace(table.append(no_rows()), properties={}, commit_user="other", watermark=head.watermark)
    table.context.storage.put(table.context.layout.snapshot_path(made.id), made.to_json())


# The definition


def test_it_is_the_newest_event_time_less_the_delay_and_rows_never_move_it_back():
    table = a_table()
    steps = [
        (lambda: table.append(of(100, 70, None)), 95_000),
        (lambda: table.append(of(40)), 95_000),
        (lambda: table.append(of(None)), 95_000),
        (lambda: table.append(no_rows()), 95_000),
        (lambda: table.overwrite(of(102)), 97_000),
        (lambda: table.overwrite(of(7)), 97_000),
        (lambda: table.append(of(-3, 110.999)), 105_999),
    ]
    for step, expected in steps:
        assert step().watermark == expected
    table.compact(full=True)
    assert table.snapshot.watermark == 105_999
    table.rollback("snapshot.6")
    assert table.snapshot.watermark == 97_000, "that of the rows that are back"


def test_nothing_is_recorded_before_the_first_event_time():
    table = a_table()
    assert table.append(of(None)).watermark is None
    assert table.append(of(-100)).watermark == -105_000
    plain = a_table("id BIGINT, ts TIMESTAMP(3)")
    assert plain.append(of(100)).watermark is None
    assert plain.snapshot.properties.get(WATERMARK_PROPERTY) is None


@pytest.mark.parametrize("zone", ["", " WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize("precision", [0, 1, 3, 5, 6, 7, 9])
def test_event_times_of_every_precision_count_in_milliseconds(precision, zone):
    table = a_table(f"ts TIMESTAMP({precision}){zone}, WATERMARK FOR ts AS ts")
    (column,) = table.schema.fields
    kind = table.writer().schema.field("ts").type
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    for seconds, fraction in ((-7, per_second // 3), (-2, 0), (5, per_second // 3), (6, 0)):
        value = seconds * per_second + fraction
        rows = pa.table({column.name: pa.array([None, value, value - 1], pa.int64()).cast(kind)})
        assert table.append(rows).watermark == value * 1000 // per_second


def test_a_time_without_a_zone_is_one_of_utc():
    local = a_table("ts TIMESTAMP(3) WITH LOCAL TIME ZONE, WATERMARK FOR ts AS ts")
    assert local.append([{"ts": datetime(1970, 1, 2, tzinfo=UTC)}]).watermark == 86_400_000
    plain = a_table("ts TIMESTAMP(3), WATERMARK FOR ts AS ts")
    assert plain.append([{"ts": datetime(1970, 1, 2)}]).watermark == 86_400_000


def test_many_batches_and_buckets_have_one_newest_row():
    table = a_table(partition_by=["id"])
    batches = [pa.table({"id": [n % 7], "ts": pa.array([at(n)], pa.timestamp("us"))}) for n in range(50)]
    random.Random(1).shuffle(batches)
    assert table.append(iter(batches)).watermark == 44_000


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(16)"])
def test_event_times_have_bounds_for_finding_late_rows(mode):
    table = a_table(options={"metadata.stats-mode": mode})
    table.append(of(100))
    table.append(of(200))
    early = table.scan("ts < TIMESTAMP_NTZ '1970-01-01 00:02:30'").plan()
    assert early.files.height == 1
    asked_for = a_table(options={"metadata.stats-mode": mode, "fields.ts.stats-mode": "none"})
    asked_for.append(of(200))
    assert asked_for.scan("ts < TIMESTAMP_NTZ '1970-01-01 00:02:30'").plan().files.height == 1


def test_a_definition_of_another_engine_records_nothing_and_harms_nothing():
    table = a_table("id BIGINT, ts TIMESTAMP(3)")
    schema = table.schema
    theirs = {"schema.watermark.0.rowtime": "ts", "schema.watermark.0.strategy.expr": "f(ts)"}
    stored = replace(schema, id=1, options={**schema.options, **theirs})
    table.context.storage.put(table.context.layout.schema_path(1), stored.to_json())
    assert table.append(of(100)).watermark is None
    assert table.scan().to_arrow().num_rows == 1


def test_tags_are_made_by_it():
    table = a_table(options={"tag.automatic-creation": "watermark", "tag.creation-period": "hourly"})
    for seconds in (3_599, 3_604, 3_605, 3_700, 7_300):
        table.append(of(seconds))
    assert {name: table.tag(name).snapshot.id for name in table.tags()} == {
        "1969-12-31 23": 1,
        "1970-01-01 00": 3,
        "1970-01-01 01": 5,
    }


# Sources


def test_the_slowest_source_decides():
    table = a_table().with_options(BY_SOURCE)
    assert table.append(of(100, source="a") + of(300, None, source="b")).watermark == 95_000
    assert table.append(of(400, source="b")).watermark == 95_000, "a is behind, though it brought nothing"
    assert table.append(of(90, source="a")).watermark == 95_000
    assert table.append(of(500, source="a")).watermark == 395_000
    assert table.append(of(100, source="c")).watermark == 395_000, "it never goes back"
    assert table.append(of(600, source="a") + of(600, source="b")).watermark == 395_000, "c is behind"
    assert [f.name for f in table.schema.fields] == ["id", "ts"]
    assert "_source" not in table.scan().to_arrow().schema.names


def test_a_source_column_of_the_table_is_stored_too():
    table = a_table(f"{COLUMNS}, part INT").with_options({"sink.watermark.source-column": "part"})
    rows = [{"id": 1, "ts": at(s), "part": p} for s, p in ((100, 0), (300, 1), (400, None))]
    assert table.append(rows).watermark == 95_000
    assert sorted(table.scan().to_arrow()["part"].to_pylist(), key=str) == [0, 1, None]
    (state,) = json.loads(table.snapshot.properties[WATERMARK_PROPERTY])["producers"].values()
    assert sorted(state) == ["", "0", "1"]


def test_rows_must_say_their_source_if_the_option_asks():
    table = a_table().with_options(BY_SOURCE)
    with pytest.raises(SchemaError, match="_source"):
        table.append(of(1))
    with pytest.raises(SchemaError, match="_source"):
        table.append(of(1, source="a") + of(2))
    assert table.snapshot is None


def test_without_a_definition_the_source_column_is_only_taken_out():
    table = a_table("id BIGINT, ts TIMESTAMP(3)").with_options(BY_SOURCE)
    assert table.append(of(1, source="a")).watermark is None
    assert table.scan().to_arrow().schema.names == ["id", "ts"]


def test_an_idle_source_holds_nothing_back_until_it_is_there_again():
    clock = Clock()
    table = on_clock(a_table(), clock).with_options({**BY_SOURCE, "scan.watermark.idle-timeout": "1 min"})
    assert table.append(of(100, source="a") + of(200, source="b")).watermark == 95_000
    clock.millis += 60_000
    assert table.append(of(300, source="b")).watermark == 95_000
    clock.millis += 1
    assert table.append(of(301, source="b")).watermark == 296_000
    assert table.append(of(150, source="a") + of(400, source="b")).watermark == 296_000
    assert table.append(of(310, source="a")).watermark == 305_000


def test_what_is_known_of_sources_survives_other_commits():
    table = a_table()
    by_source = table.with_options(BY_SOURCE)
    by_source.append(of(100, source="a") + of(300, source="b"))
    table.append(of(1))
    table.compact(full=True)
    table.overwrite(of(2))
    foreign_commit(table)
    foreign_commit(table)
    assert by_source.append(of(400, source="b")).watermark == 95_000, "a is still known to be behind"
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert min(s.id for s in table.snapshots()) > 5, "only the newest commits are left"
    assert by_source.append(of(500, source="b")).watermark == 95_000


def test_a_commit_of_another_engine_between_two_of_ours_loses_nothing():
    table = a_table()
    by_source = table.with_options(BY_SOURCE)
    by_source.append(of(100, source="a") + of(300, source="b"))
    foreign_commit(table)
    table.append(of(1))  # on top of a commit without our property
    assert by_source.append(of(400, source="b")).watermark == 95_000


def test_where_all_that_was_known_has_expired_the_watermark_stays_for_once():
    table = a_table()
    by_source = table.with_options(BY_SOURCE)
    by_source.append(of(100, source="a") + of(300, source="b"))
    foreign_commit(table)
    table.context.storage.delete(table.context.layout.snapshot_path(1))
    assert by_source.append(of(400, source="b")).watermark == 95_000, "nobody knows whether a is behind"
    assert by_source.append(of(500, source="b")).watermark == 495_000


def test_it_is_not_looked_for_through_all_of_a_long_history():
    table = a_table()
    table.append(of(50))
    by_source = table.with_options(BY_SOURCE)
    for _ in range(150):
        foreign_commit(table)
    storage = FaultyStorage(table.context.storage)
    counted = anabranch.Table(replace(table.context, storage=storage), options=BY_SOURCE)
    assert counted.append(of(400, source="a")).watermark == 45_000
    assert sum(call.name == "get" and "snapshot-" in call.path for call in storage.calls) < 120
    assert by_source.append(of(500, source="a")).watermark == 495_000


def test_producers_do_not_hold_each_other_back():
    table = a_table().with_options(BY_SOURCE)
    one, two = (table.with_options({**BY_SOURCE, "anabranch.job": job}) for job in ("one", "two"))
    assert one.append(of(100, source="a")).watermark == 95_000
    assert two.append(of(300, source="a")).watermark == 295_000
    assert one.append(of(400, source="b")).watermark == 295_000
    producers = json.loads(one.snapshot.properties[WATERMARK_PROPERTY])["producers"]
    assert {job: sorted(sources) for job, sources in producers.items()} == {"one": ["a", "b"], "two": ["a"]}


def test_producers_that_are_gone_for_long_are_forgotten():
    clock = Clock()
    table = on_clock(a_table(), clock)
    one, two = (table.with_options({**BY_SOURCE, "anabranch.job": job}) for job in ("one", "two"))
    one.append(of(100, source="a"))
    clock.millis += 29 * 86_400_000
    two.append(of(100, source="a"))
    clock.millis += 2 * 86_400_000
    two.append(of(200, source="a"))
    assert list(json.loads(two.snapshot.properties[WATERMARK_PROPERTY])["producers"]) == ["two"]


def commit(table, batch, rows, expected=()):
    """A batch of a streaming query."""
    writer = table.writer()
    messages = writer.write(pa.Table.from_pylist(rows, schema=writer.schema).to_batches())
    said = claim(
        writer.table_schema,
        writer.context.all_options,
        messages,
        producer="job",
        is_first=batch == 0,
        expected=frozenset(expected),
    )
    return table.commit(Append(messages), identity=CommitIdentity("job", batch), watermark=said)


def test_a_source_that_is_known_and_has_brought_nothing_is_waited_for(caplog):
    clock = Clock()
    table = on_clock(a_table(), clock).with_options({**BY_SOURCE, "scan.watermark.idle-timeout": "1 min"})
    topic = ["t-0", "t-1", "t-2"]
    assert commit(table, 0, [], topic).snapshot.watermark is None
    assert commit(table, 1, of(100, source="t-0") + of(200, source="t-1"), topic).snapshot.watermark is None
    clock.millis += 30_000
    assert commit(table, 2, of(300, source="t-0"), topic).snapshot.watermark is None
    assert caplog.text.count("waits for sources that have brought no rows yet: t-2;") == 1
    assert commit(table, 3, of(150, source="t-2"), topic).snapshot.watermark == 145_000
    grown = [*topic, "t-3"]
    clock.millis += 30_000
    assert commit(table, 4, of(400, None, source="t-0"), grown).snapshot.watermark == 145_000
    clock.millis += 60_001
    everybody = [row for source in topic for row in of(500, source=source)]
    assert commit(table, 5, everybody, grown).snapshot.watermark == 495_000, (
        "t-3 has been idle from the start"
    )
    assert commit(table, 6, of(600, source="t-0"), topic).snapshot.watermark == 495_000
    state = json.loads(table.snapshot.properties[WATERMARK_PROPERTY])["producers"]["job"]
    assert sorted(state) == topic, "what is not there any more is not remembered if it never brought anything"


def test_sources_that_are_called_otherwise_are_not_waited_for():
    table = a_table().with_options(BY_SOURCE)
    assert commit(table, 0, of(100, source="a"), ["t-0", "t-1"]).snapshot.watermark == 95_000


def test_a_repeated_batch_changes_nothing():
    table = a_table().with_options(BY_SOURCE)
    assert commit(table, 0, of(100, source="a") + of(200, source="b")).snapshot.watermark == 95_000
    first = commit(table, 1, of(300, source="a"))
    again = commit(table, 1, of(300, source="a"))
    assert (first.repeated, again.repeated) == (False, True)
    assert first.snapshot.watermark == again.snapshot.watermark == 195_000
    assert recorded(table) == [95_000, 195_000]


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"version":2}', '{"version":1,"producers":{"batch":{"a":1}}}']
)
def test_a_damaged_record_of_sources_fails_no_commit(damage):
    table = a_table().with_options(BY_SOURCE)
    table.append(of(100, source="a"))
    head = table.snapshot
    damaged = replace(head, properties={**head.properties, WATERMARK_PROPERTY: damage})
    table.context.storage.put(table.context.layout.snapshot_path(1), damaged.to_json())
    assert table.append(of(400, source="a")).watermark == 95_000
    assert table.append(of(500, source="a")).watermark == 495_000


def test_a_store_that_does_not_answer_fails_no_commit(caplog):
    table = a_table()
    by_source = table.with_options(BY_SOURCE)
    by_source.append(of(100, source="a"))
    for _ in range(5):  # looking for the newest snapshot reads some before it
        foreign_commit(table)
    head = table.snapshot
    storage = FaultyStorage(table.context.storage, [fail("get", times=10**6, where="*snapshot-1")])
    faulty = anabranch.Table(replace(table.context, storage=storage), options=BY_SOURCE)
    assert faulty.append(of(400, source="a")).watermark == head.watermark
    assert "the watermark of 'db.t' stays" in caplog.text


# Against the definition in words


def _lowest_over(sources, now, idle, delay):
    active = [newest for newest, seen in sources.values() if idle is None or now - seen <= idle]
    return min(active) - delay if active else None


def _check_history(seed):
    chance = random.Random(seed)
    clock = Clock()
    idle = chance.choice([None, 30_000])
    plain = on_clock(a_table(), clock)
    options = {**BY_SOURCE, **({} if idle is None else {"scan.watermark.idle-timeout": f"{idle} ms"})}
    known, expected = {}, None
    for _ in range(chance.randint(3, 25)):
        clock.millis += chance.choice([0, 1, 10_000, 31_000])
        before = expected
        match chance.choice(["sources", "sources", "sources", "plain", "compact", "foreign"]):
            case "sources":
                rows = []
                for source in chance.sample("abcd", chance.randint(1, 4)):
                    times = [chance.choice([None, chance.randint(0, 500)]) for _ in range(3)]
                    rows += of(*times, source=source)
                    some = [t * 1000 for t in times if t is not None]
                    if some:
                        known[source] = (max(*some, known.get(source, (0, 0))[0], 0), clock.millis)
                plain.with_options(options).append(rows)
                lowest = _lowest_over(known, clock.millis, idle, 5_000)
                expected = max((w for w in (expected, lowest) if w is not None), default=None)
            case "plain":
                seconds = chance.randint(0, 300)
                plain.append(of(seconds))
                own = seconds * 1000 - 5_000
                expected = own if expected is None else max(expected, own)
            case "compact":
                plain.compact(full=True)
            case "foreign" if plain.snapshot is not None:
                foreign_commit(plain)
        head = plain.snapshot
        assert (None if head is None else head.watermark) == expected, seed
        assert before is None or expected >= before


@pytest.mark.long
def test_histories_agree_with_the_definition():
    for seed in range(25):
        _check_history(seed)


@pytest.mark.long
def test_many_histories_agree_with_the_definition():
    for seed in range(25, 2_000):
        _check_history(seed)
