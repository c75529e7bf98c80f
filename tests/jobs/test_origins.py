"""How far back sources are read to make state again: bounds by plans as Spark shows them, and positions by files."""

from datetime import UTC, datetime, timedelta

import pytest

import anabranch
from anabranch.jobs.source import stream
from anabranch.jobs.state.origins import Since, far_enough
from anabranch.jobs.state.reach import Reach, reach_in
from anabranch.streaming.offsets import BEGINNING, Position

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BRANCH = "321598c9-78ae-4567-a22f-a1eb4064d28a"
EVENTS = f"""\
~EventTimeWatermark 2c22baf2-22e2-40ff-b5cc-4bea040009a2, ts#39: timestamp, 10 seconds
   {{indent}}+- ~StreamingRelationV2 anabranch.DefaultSource@4627f4c5, anabranch, db.a ({BRANCH}, snapshot 3 of 17, schema 0), \
[warehouse=/w, path=db.a], [id#37L, k#38, ts#{{ts}}], name=<Unassigned>"""
END = "precisetimestampconversion((((x - 0) % 5000000) - 0) + {}), LongType, TimestampType)"


def over(operator, ts=39):
    return f"{operator}\n+- " + EVENTS.format(indent="", ts=ts)


def windows(micros, keys="window#46-T10000ms, k#38"):
    window = f"~Project [named_struct(start, s, end, knownnullable({END.format(micros)})) AS window#46-T10000ms, id#37L]"
    return f"~Aggregate [{keys}], [{keys}, count(1) AS n#1L]\n+- {window}\n   +- " + EVENTS.format(
        indent="   ", ts=39
    )


def join(condition):
    side = EVENTS.format(indent="", ts=39)
    other = side.replace("#39", "#6").replace("+-", "   +-", 1)
    return f"~Join Inner, {condition}\n:- {side.replace('   +-', ':  +-')}\n+- {other}"


NEAR = "((k#1 = k#5) AND ((ts#6-T3000ms >= ts#39-T10000ms) AND (ts#6-T3000ms <= cast(ts#39-T10000ms + {} as timestamp))))"


@pytest.mark.parametrize(
    ("plan", "bound"),
    [
        (windows(10_000_000), 10_000),
        (windows(1_200_000_000), 1_200_000),
        (over("~DeduplicateWithinWatermark [id#37L]"), 10_000),
        (over("~Deduplicate [id#37L, ts#39-T10000ms]"), 0),
        (over("~Aggregate [ts#39-T10000ms], [ts#39-T10000ms, count(1) AS n#1L]"), 0),
        (join(NEAR.format("INTERVAL '20' SECOND")), 40_000),
        (join(NEAR.format("INTERVAL '01:30' HOUR TO MINUTE")), 2 * 90 * 60_000),
        (join("((k#1 = k#5) AND (ts#6-T3000ms = ts#39-T10000ms))"), 0),
    ],
)
def test_bounds_of_operators(plan, bound):
    assert reach_in(plan) == Reach(bound, {BRANCH: "ts"})


@pytest.mark.parametrize(
    "plan",
    [
        over("~Deduplicate [id#37L]"),
        over("~Aggregate [k#38], [k#38, count(1) AS n#1L]"),
        over("~GlobalLimit 5"),
        over("~FlatMapGroupsInPandasWithState [k#38], f"),
        windows(10_000_000, "session_window#46-T10000ms, k#38"),
        over("~DeduplicateWithinWatermark [id#37L]", ts=77),  # the watermark is of a computed column
        over("~DeduplicateWithinWatermark [id#37L]").replace("10 seconds", "1 months"),
        join("((k#1 = k#5) AND (ts#6-T3000ms >= ts#39-T10000ms))"),
        join(NEAR.format("INTERVAL '1' MONTH")),
        # What is computed of event times may be far from them.
        join("(date_trunc(day, ts#6-T3000ms, Some(UTC)) = date_trunc(day, ts#39-T10000ms, Some(UTC)))"),
        join("((k#1 = k#5) AND (cast(ts#6-T3000ms as date) = cast(ts#39-T10000ms as date)))"),
        join(
            "((ts#6-T3000ms >= ts#39-T10000ms) AND (unix_seconds(ts#6-T3000ms) <= (unix_seconds(ts#39-T10000ms) + 86400)))"
        ),
        join(NEAR.format("(INTERVAL '01' HOUR * 24)")),
        join("(window#6-T3000ms = window#40-T10000ms)"),
        join(
            "((ts#6-T3000ms = ts#39-T10000ms) AND (hour(ts#6-T3000ms, Some(UTC)) > hour(ts#39-T10000ms, Some(UTC))))"
        ),
        over("~Aggregate [date_trunc(day, ts#39-T10000ms, Some(UTC))], [count(1) AS n#1L]"),
        over("~Deduplicate [window#46-T10000ms]"),
        join(NEAR.format("INTERVAL '20' SECOND").replace(" AND ((", " OR ((")),
        over("~Project [id#37L]"),
    ],
)
def test_what_is_not_bounded_or_not_understood_has_no_bound(plan):
    assert reach_in(plan) is None


@pytest.fixture
def events(tmp_path):
    """Snapshot n has rows of second 10 n, and of the second before."""
    table = anabranch.connect(str(tmp_path)).create_table("db.a", "id BIGINT, ts TIMESTAMP_LTZ(6)")
    for number in range(1, 9):
        at = BEGIN + timedelta(seconds=10 * number)
        table.append([{"id": number, "ts": at}, {"id": number, "ts": at - timedelta(seconds=1)}])
    return table


def since(second):
    return Since("ts", round((BEGIN + timedelta(seconds=second)).timestamp() * 1000))


def begins(events, second, begin=BEGINNING):
    end = Position.after(events.context.snapshots.get(7))
    return far_enough(events.context, stream("db.a").options, since(second), begin, end).snapshot


def test_reading_begins_before_the_first_file_that_may_matter(events):
    assert begins(events, 45) == 4
    assert begins(events, 50) == 4
    assert begins(events, 51) == 5
    assert begins(events, -500) == 0
    assert begins(events, 10_000) == 6  # the last one is read in any case
    assert begins(events, 45, Position(6, None)) == 6


def test_a_row_that_came_early_is_not_missed(events):
    early = [{"id": 0, "ts": BEGIN + timedelta(seconds=900)}]
    events.overwrite(early)
    for number in range(3):
        events.append([{"id": number, "ts": BEGIN + timedelta(seconds=10 * number)}])
    begin, end = (Position.after(events.context.snapshots.get(n)) for n in (8, 12))
    options = {"scan.on-overwrite": "added"}
    assert far_enough(events.context, options, since(500), begin, end) == begin
    # A stream that would stop there is read from the beginning.
    assert far_enough(events.context, {}, since(500), BEGINNING, end) == BEGINNING


def test_rows_without_an_event_time_and_other_columns_are_all_read(events):
    events.append([{"id": 9, "ts": None}])
    end = Position.after(events.context.snapshots.get(9))
    assert far_enough(events.context, {}, since(10_000), Position(7, None), end).snapshot == 8
    assert far_enough(events.context, {}, Since("id", 10**15), BEGINNING, end) == BEGINNING
    assert far_enough(events.context, {}, Since("no", 10**15), BEGINNING, end) == BEGINNING
