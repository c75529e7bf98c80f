"""Partitions expire by the time of their values, or of their newest file."""

import datetime as dt
import json
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.lake import Lake
from anabranch.runtime import SYSTEM
from anabranch.storage.memory import MemoryStorage
from tests.support.clock import DAY, HOUR, START, Clock
from tests.support.faults import FaultyStorage
from tests.support.faults import run as run_at

TODAY = dt.datetime.fromtimestamp(START / 1000, dt.UTC)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lake(clock):
    runtime = replace(SYSTEM, clock=clock)
    return Lake(MemoryStorage(runtime=runtime), runtime=runtime)


def table_of(lake, columns="id BIGINT, dt STRING", keys="dt", **options):
    named = {f"partition.{name.replace('_', '-')}": value for name, value in options.items()}
    return lake.create_table("db.t", columns, partition_by=keys, options=named)


def values(table, column="dt"):
    return sorted({str(row[column]) for row in table.scan().to_arrow().to_pylist()})


def day(ago):
    return (TODAY - dt.timedelta(days=ago)).date()


@pytest.mark.parametrize("kind", ["STRING", "DATE"])
def test_old_values_go_in_one_commit(lake, kind):
    table = table_of(lake, f"id BIGINT, dt {kind}", expiration_time="7 d")
    spelled = str if kind == "STRING" else lambda found: found
    for ago in (0, 6, 7, 8, 30):
        table.append([{"id": ago, "dt": spelled(day(ago))}, {"id": ago, "dt": spelled(day(ago))}])
    before = table.snapshot
    preview = table.expire_partitions(dry_run=True)
    # The day before seven days ago ended less than seven days ago, but its time is the midnight it began with.
    assert [found.partition for found in preview.partitions] == [f"dt={day(ago)}" for ago in (30, 8, 7)]
    assert (preview.snapshot, table.snapshot) == (None, before)
    done = table.expire_partitions()
    assert done.partitions == preview.partitions
    assert [(found.rows, found.files) for found in done.partitions] == [(2, 1)] * 3
    assert values(table) == [str(day(6)), str(day(0))]
    assert done.snapshot.id == before.id + 1
    assert values(table.at(before.id)) == sorted(str(day(ago)) for ago in (0, 6, 7, 8, 30))
    assert table.expire_partitions().snapshot is None


@pytest.mark.parametrize(
    ("columns", "keys", "options", "rows", "left"),
    [
        ("d INT", "d", {"timestamp_formatter": "yyyyMMdd"}, [{"d": 20231101}, {"d": 20231114}, {"d": 7}], {20231114, 7}),
        (
            "d STRING, h INT",
            ["d", "h"],
            {"timestamp_pattern": "$d $h:00:00"},
            [{"d": "2023-11-13", "h": 22}, {"d": "2023-11-13", "h": 23}, {"d": "2023-11-13", "h": None}],
            {23, None},
        ),
        (
            "y INT, m INT, region STRING",
            ["region", "y", "m"],
            {"timestamp_pattern": "$y/$m", "timestamp_formatter": "yyyy/M"},
            [{"y": 2023, "m": 10, "region": "a"}, {"y": 2023, "m": 12, "region": "a"}, {"y": 2023, "m": 13, "region": "a"}],
            {12, 13},
        ),
        (
            "d STRING",
            "d",
            {"timestamp_formatter": "'day'yyyy-MM-dd'T'HH"},
            [{"d": "day2023-11-13T21"}, {"d": "2023-11-01"}, {"d": None}, {"d": ""}],
            {"2023-11-01", None, ""},
        ),
        ("d TIMESTAMP(3)", "d", {}, [{"d": dt.datetime(2023, 11, 13, 22)}, {"d": dt.datetime(2023, 11, 13, 23)}],
         {dt.datetime(2023, 11, 13, 23)}),
    ],
)  # fmt: skip
def test_how_times_are_spelled(lake, columns, keys, options, rows, left):
    table = table_of(lake, f"id BIGINT, {columns}", keys, expiration_time="1 d", **options)
    table.append(rows)
    table.expire_partitions()
    last = keys if isinstance(keys, str) else keys[-1]
    assert {row[last] for row in table.scan().to_arrow().to_pylist()} == left


FAR = {"before": -719_529, "after": 2_932_897}
"""The last day of the year -1 and the first of the year 10000, in days since 1970."""


def far_value(kind, days):
    """A column of one value, and an old one beside it."""
    if kind == "DATE":
        return pa.array([days, 0], pa.int32()).cast(pa.date32())
    zone = "UTC" if kind == "TIMESTAMP_LTZ" else None
    return pa.array([days * 86_400_000_000, 0], pa.int64()).cast(pa.timestamp("us", zone))


@pytest.mark.parametrize("strategy", ["values-time", "update-time"])
@pytest.mark.parametrize("days", FAR.values(), ids=FAR)
@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP_LTZ"])
def test_a_year_that_python_does_not_have_stops_no_other(lake, clock, kind, days, strategy):
    table = table_of(lake, f"id BIGINT, d {kind}", "d", expiration_time="1 d", expiration_strategy=strategy)
    table.append(pa.table({"id": [1, 2], "d": far_value(kind, days)}))
    clock.now += 2 * DAY
    done = table.expire_partitions()
    assert [found.partition[:12] for found in done.partitions] == ["d=1970-01-01"]
    assert done.timeless == 1
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]
    table.maintain()
    assert table.scan().count() == 1


def test_by_the_newest_file(lake, clock):
    table = table_of(lake, expiration_time="1 d", expiration_strategy="update-time")
    table.append([{"id": 1, "dt": "a"}, {"id": 1, "dt": "b"}])
    clock.now += DAY // 2
    table.append([{"id": 2, "dt": "b"}])
    clock.now += DAY // 2 + HOUR
    done = table.expire_partitions()
    assert [found.partition for found in done.partitions] == ["dt=a"]
    assert values(table) == ["b"]


def test_what_got_rows_meanwhile_is_spared(lake, clock, monkeypatch):
    table = table_of(lake, expiration_time="1 d", expiration_strategy="update-time")
    table.append([{"id": 1, "dt": "a"}, {"id": 1, "dt": "b"}])
    clock.now += 2 * DAY
    from anabranch.maintenance import expire_partitions as module

    commit, late = module.commit, [{"id": 2, "dt": "b"}]

    def overtaken(*arguments):
        if late:
            lake.table("db.t").append([late.pop()])
        return commit(*arguments)

    monkeypatch.setattr(module, "commit", overtaken)
    done = table.expire_partitions()
    assert [found.partition for found in done.partitions] == ["dt=a"]
    assert values(table) == ["b"]
    assert table.scan().count() == 2


def marked(table):
    """The partitions that are marked as done, each with the mark."""
    storage = table.context.storage
    found = (info.path for info in storage.list(recursive=True))
    return {path.rpartition("/")[0]: storage.get(path) for path in found if path.endswith("_SUCCESS")}


def disturbed(table, *between):
    """The table as a process sees it to which other things come in between: each when, at what call, where, and what."""
    faults = [run_at(when, call, lambda _, do=do: do(), where=where) for when, call, where, do in between]
    storage = FaultyStorage(table.context.storage, faults)
    return anabranch.Table(replace(table.context, storage=storage))


def test_what_is_spared_keeps_its_mark(lake, clock):
    table = table_of(lake, expiration_time="1 d", expiration_strategy="update-time")
    table.append([{"id": 1, "dt": "a"}, {"id": 1, "dt": "b"}])
    table.mark_partition_done("dt in ('a', 'b')")
    before = marked(table)
    clock.now += 2 * DAY
    late = disturbed(
        table, ("after", "delete_many", "*_SUCCESS", lambda: table.append([{"id": 2, "dt": "b"}]))
    )
    assert [found.partition for found in late.expire_partitions().partitions] == ["dt=a"]
    assert (values(table), marked(table)) == (["b"], {"dt=b": before["dt=b"]})


def test_marks_come_back_where_main_was_replaced_meanwhile(lake):
    table = table_of(lake, expiration_time="1 d")
    table.append([{"id": 1, "dt": "2020-01-01"}, {"id": 1, "dt": "2021-01-01"}])
    table.mark_partition_done("dt < '2022-01-01'")
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").overwrite([], {"dt": "2021-01-01"})
    late = disturbed(table, ("after", "delete_many", "*_SUCCESS", lambda: table.replace_main_branch("fix")))
    with pytest.raises(anabranch.SealedBranchError):
        late.expire_partitions()
    assert (values(table), [*marked(table)]) == (["2020-01-01"], ["dt=2020-01-01"])


def test_a_mark_does_not_come_back_without_its_rows(lake, clock):
    """Of two who expire a partition at a time one is in the way of the other."""
    table = table_of(lake, expiration_time="1 d", expiration_strategy="update-time")
    table.append([{"id": 1, "dt": "2020-01-01"}])
    table.mark_partition_done({"dt": "2020-01-01"})
    clock.now += 2 * DAY
    other = table.with_options({"partition.expiration-strategy": "values-time"})
    late = disturbed(
        table,
        ("after", "delete_many", "*_SUCCESS", lambda: table.append([{"id": 2, "dt": "2020-01-01"}])),
        ("before", "put_if_absent", "*_SUCCESS", other.expire_partitions),
    )
    late.expire_partitions()
    assert (values(table), marked(table)) == ([], {})


def test_a_mark_that_is_put_while_its_rows_go_is_removed(lake):
    table = table_of(lake, expiration_time="1 d")
    table.append([{"id": 1, "dt": "2020-01-01"}])
    done = {"dt": "2020-01-01"}
    late = disturbed(
        table, ("before", "put_if_absent", "*/snapshot-*", lambda: table.mark_partition_done(done))
    )
    assert late.expire_partitions().partitions
    assert (values(table), marked(table)) == ([], {})


def test_a_mark_that_is_put_after_rows_came_anew_stays(lake):
    table = table_of(lake, expiration_time="1 d")
    table.append([{"id": 1, "dt": "2020-01-01"}, {"id": 2, "dt": "2021-01-01"}])

    def complete_again():
        table.append([{"id": 3, "dt": "2020-01-01"}])
        table.mark_partition_done({"dt": "2020-01-01"})

    late = disturbed(table, ("after", "put_if_absent", "*/snapshot-*", complete_again))
    assert len(late.expire_partitions().partitions) == 2
    assert (values(table), [*marked(table)]) == (["2020-01-01"], ["dt=2020-01-01"])


def test_at_most_so_many_the_oldest_first(lake):
    table = table_of(lake, expiration_time="1 d", expiration_max_num="2")
    table.append([{"id": ago, "dt": str(day(ago))} for ago in (3, 9, 5, 0)])
    assert [found.partition for found in table.expire_partitions().partitions] == [
        f"dt={day(9)}",
        f"dt={day(5)}",
    ]
    assert values(table) == [str(day(3)), str(day(0))]
    assert [found.partition for found in table.expire_partitions().partitions] == [f"dt={day(3)}"]


def test_streams_pass_over_it_and_see_what_comes(lake):
    table = table_of(lake, expiration_time="7 d")
    table.append([{"id": 1, "dt": str(day(30))}])
    tail = iter(table.tail(start="latest-full", idle=0))
    seen = [row["id"] for row in next(tail).to_pylist()]
    table.expire_partitions()
    table.append([{"id": 2, "dt": str(day(0))}])
    seen += [row["id"] for batch in tail for row in batch.to_pylist()]
    assert seen == [1, 2]
    assert table.changes(1, 3).to_arrow()["id"].to_pylist() == [2]
    with_losses = table.changes(1, 3, on_overwrite="changes").to_arrow().to_pylist()
    assert [(row["id"], row["_change"]) for row in with_losses] == [(1, "delete"), (2, "insert")]


def test_maintain_does_it_on_main_only(lake):
    table = table_of(lake, expiration_time="7 d")
    table.append([{"id": 1, "dt": str(day(30))}, {"id": 2, "dt": str(day(0))}])
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    branch = table.branch("fix")
    assert not branch.maintain().partitions.partitions
    assert "1 partitions with 1 rows would be expired" in str(table.maintain(dry_run=True))
    assert "1 partitions with 1 rows expired" in str(table.maintain())
    assert (values(table), values(branch)) == ([str(day(0))], [str(day(30)), str(day(0))])


def test_nothing_goes_unless_it_was_asked_for(lake):
    table = table_of(lake)
    table.append([{"id": 1, "dt": "1970-01-01"}])
    assert table.expire_partitions().partitions == ()
    assert [found.partition for found in table.expire_partitions("1 d").partitions] == ["dt=1970-01-01"]
    plain = lake.create_table("db.plain", "id BIGINT", options={"partition.expiration-time": "1 d"})
    plain.append([{"id": 1}])
    assert plain.maintain().partitions.partitions == ()
    with pytest.raises(anabranch.InvalidInputError, match="no partitions that could expire"):
        plain.expire_partitions("1 d")
    with pytest.raises(anabranch.InvalidInputError, match="no duration"):
        table.expire_partitions("soon")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timestamp_formatter": "yyyyMMMdd"}, "'MMMdd' is not understood"),
        ({"timestamp_formatter": "yyyy-MM-dd'"}, "is not understood"),
        ({"timestamp_formatter": "HH"}, "no year"),
        ({"timestamp_formatter": "yyyyyyyy"}, "is not understood"),
        ({"timestamp_pattern": "$day"}, "'day' is no partition column"),
    ],
)
def test_what_is_not_understood_takes_nothing(lake, options, said):
    table = table_of(lake, expiration_time="1 d", **options)
    table.append([{"id": 1, "dt": "2020-01-01"}])
    with pytest.raises(anabranch.OptionError, match=said):
        table.expire_partitions()
    assert values(table) == ["2020-01-01"]


def test_on_the_command_line(tmp_path, capsys):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, dt STRING", partition_by="dt")
    table.append([{"id": 1, "dt": "2020-01-01"}, {"id": 2, "dt": "other"}])
    asked = ["-w", str(tmp_path), "expire-partitions", "db.t", "--older-than", "90 d"]
    assert run([*asked, "--dry-run"]) == 0
    assert "1 partitions with 1 rows would be expired" in capsys.readouterr().out
    assert run([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["snapshot"], found["timeless"]) == (2, 1)
    assert [one["partition"] for one in found["partitions"]] == ["dt=2020-01-01"]
    assert values(table) == ["other"]
    assert run([*asked, "--yes"]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == "0 partitions with 0 rows expired"
    assert "1 partitions stand for no time" in printed.err
