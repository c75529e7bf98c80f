"""Health of a table: a score that falls with what is wrong, and the command that mends it."""

import itertools
import shlex
from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import StorageError
from anabranch.kernel.compaction.selection import live_files
from anabranch.kernel.log.file_paths import odd_files
from anabranch.kernel.repair.health import size_text
from anabranch.runtime import Runtime, SystemClock
from tests.streaming.history import History
from tests.support.faults import FaultyStorage, fail
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows

_names = itertools.count()


def new_table(**how):
    return make_table(f"memory://health{next(_names)}", **how)


def day(dt, *ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "dt": pa.array([dt] * len(ids), pa.string())})


def test_a_table_without_rows_is_well():
    state = new_table().health()
    assert (state.score, state.findings, state.snapshot_id, state.files) == (100, (), None, 0)
    assert str(state).startswith("db.t never written: 100 of 100")


def test_few_small_files_are_no_harm():
    table = new_table()
    for i in range(3):
        table.append(rows(i, 1))
    state = table.health()
    assert state.score >= 97
    assert (state.files, state.small_files, state.small_share, state.files_compacted) == (3, 3, 1.0, 1)
    assert [f.command for f in state.findings] == ["anabranch compact db.t --full"]


@pytest.mark.parametrize("options", first_short([{}, {"bucket": "1"}]), ids=["scalable", "queue"])
def test_compaction_mends_what_it_was_said_to_mend(options):
    table = new_table(options=options)
    for i in range(60):
        table.append(rows(i, 1))
    state = table.health()
    assert state.score < 50
    [finding] = state.findings
    assert finding.points == 100 - state.score
    assert finding.command == "anabranch compact db.t", "what a minor compaction leaves is little"
    assert "compaction would turn 60 files into 1" in str(state)
    table.compact()
    assert table.health().score > 85
    table.compact(full=True)
    assert table.health().files == state.files_compacted
    assert (table.health().score, table.health().findings) == (100, ())


def test_the_command_for_a_main_that_was_a_branch_names_no_branch():
    table = new_table()
    table.append(rows(0, 1))
    table.create_tag("good")
    table.create_branch("fix", "good")
    for number in range(60):
        table.branch("fix").append(rows(number, 1))
    assert "--branch fix" in str(table.branch("fix").health())
    table.replace_main_branch("fix")
    [finding] = table.health().findings
    assert finding.command == "anabranch compact db.t"


def test_a_name_in_a_command_is_a_word_and_never_a_command():
    table = make_table(f"memory://health{next(_names)}", "db.t; `touch x`")
    for number in range(60):
        table.append(rows(number, 1))
    (command,) = {f.command for f in table.health().findings if "compact" in f.command}
    assert shlex.split(command) == ["anabranch", "compact", "db.t; `touch x`"]


def test_it_names_the_partitions_that_are_worst():
    table = new_table(schema="id BIGINT, dt STRING", partition_by=["dt"])
    for i in range(7):
        for dt in ["a", "b", None][: 1 + i % 3]:
            table.append(day(dt, i))
    state = table.health()
    assert [(p.partition, p.files, p.small_files, p.rows) for p in state.worst] == [
        ("dt=a", 7, 7, 7),
        ("dt=b", 4, 4, 4),
        ("dt=__DEFAULT_PARTITION__", 2, 2, 2),
    ]
    assert (state.partitions, state.most_files, state.median_files, state.rows) == (3, 7, 4.0, 13)
    assert state.bytes == sum(p.bytes for p in state.worst)
    assert "dt=a: 7 of 7 files are small" in str(state)
    assert "3 partitions with a median of 4 files, 7 at most" in str(state)


def test_it_looks_at_the_moment_it_is_asked_about():
    table = new_table()
    for i in range(4):
        table.append(rows(i, 1))
    table.compact(full=True)
    assert table.health().files == 1
    assert table.at(3).health().files == 3


def test_who_shall_compact_where_jobs_only_write():
    table = new_table(options={"write-only": "true"})
    table.append(rows(0, 1))
    table.append(rows(1, 1))
    assert "write-only" in table.health().findings[0].why


class Later(SystemClock):
    def now_millis(self):
        return super().now_millis() + 7_200_000


def _stored(history):
    """Files for what a history of metadata alone names, or health would tell that they are missing."""
    context = history.context
    live = live_files(context, context.snapshots.head())
    odd = odd_files(context, live.df, context.schemas.latest())
    for path, size in odd.select("path", "file_size").iter_rows():
        context.storage.put(path, bytes(size), durable=False)


def test_snapshots_that_outlived_their_retention():
    history = History.new(f"memory://health{next(_names)}")
    for i in range(130):
        history.append(f"data-{i}")
    _stored(history)
    context = replace(history.context, runtime=Runtime(clock=Later()))
    commands = lambda context: [f.command for f in anabranch.Table(context).health().findings]  # noqa: E731
    assert commands(history.context) == ["anabranch compact db.t"], "none is old enough"
    assert set(commands(context)) == {"anabranch compact db.t", "anabranch expire-snapshots db.t"}
    state = anabranch.Table(context).health()
    assert state.snapshots == 130
    assert "120 of 130 snapshots" in str(state)


@pytest.mark.parametrize("kept", [None, 0, 100], ids=["gone", "empty", "cut"])
def test_data_files_that_are_gone_or_cut(kept, tmp_path):
    table = make_table(tmp_path / "w")
    for number in range(3):
        table.append(rows(number, 10))
    assert table.health().score > 90
    paths = sorted((tmp_path / "w/db.db/t/bucket-0").glob("*.parquet"))
    sizes = {path.name: path.stat().st_size for path in paths}
    for path in paths[:2]:
        path.unlink() if kept is None else path.write_bytes(path.read_bytes()[:kept])
    state = table.health()
    finding = state.findings[0]
    assert (state.score, finding.points, finding.command) == (0, 100, "anabranch verify db.t")
    (named,) = (path.name for path in paths[:2] if path.name in finding.why)
    assert ", and 1 more" in finding.why
    told = "is missing" if kept is None else f"has {kept:,} bytes, its manifest says {sizes[named]:,}"
    assert told in finding.why
    assert {problem.kind for problem in table.verify().problems} == {
        "file-missing" if kept is None else "file-size"
    }


def test_sizes_of_files_need_no_calls_of_their_own(tmp_path):
    """Those that are listed anyway: one listing for each bucket folder, whatever is wrong there."""
    table = make_table(tmp_path / "w", schema="id BIGINT, dt STRING", partition_by=["dt"])
    for number in range(30):
        table.append(day("abc"[number % 3], number))
    storage, listed = table.context.storage, []
    listing = type(storage).list

    def counted(self, path="", **how):
        listed.append(path)
        return listing(self, path, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(storage), "list", counted)
        table.health()
        before = [path for path in listed if "bucket-" in path]
        listed.clear()
        file = next((tmp_path / "w/db.db/t").glob("dt=a/bucket-0/*"))
        file.write_bytes(b"")
        assert table.health().score == 0
    assert sorted(before) == [f"dt={dt}/bucket-0" for dt in "abc"]
    assert sorted(path for path in listed if "bucket-" in path) == sorted(before)


def test_partitions_that_are_too_fine():
    history = History.new(f"memory://health{next(_names)}")
    for i in range(100):
        history.append(f"data-{i}", partition=f"p{i}")
    _stored(history)
    [finding] = anabranch.Table(history.context).health().findings
    assert "100 partitions hold 10 bytes each on average" in finding.why
    assert finding.command is None
    assert "None" not in str(anabranch.Table(history.context).health())


def test_notebooks_show_it():
    table = new_table(schema="id BIGINT, `<b>` STRING", partition_by=["<b>"])
    for i in range(6):
        table.append(pa.table({"id": [i], "<b>": ["xy"[i % 2]]}))
    page = table.health()._repr_html_()
    assert "anabranch compact db.t --full" in page
    assert "2 partitions" in page
    assert "<b>db.t at snapshot 6" in page


def test_sizes_are_spelled_for_people():
    assert [size_text(n) for n in (0, 1023, 1536, 200 << 20, 3 << 40, 5 << 60)] == [
        "0 bytes",
        "1,023 bytes",
        "1.5 KB",
        "200 MB",
        "3.0 TB",
        "5,120 PB",
    ]


def test_a_store_that_does_not_answer_is_no_damage():
    table = new_table()
    for i in range(3):
        table.append(rows(i, 1))
    storage = FaultyStorage(table.context.storage, [fail("get", times=50, where="snapshot/snapshot-2")])
    with pytest.raises(StorageError):
        anabranch.Table(replace(table.context, storage=storage)).health()
