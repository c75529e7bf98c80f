"""What a job of this process reads is said in what it commits."""

import asyncio
import threading

import pyarrow as pa
import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.errors import InvalidInputError, InvalidNameError
from anabranch.lineage.model import LINEAGE_PROPERTY, SourceInput, lineage_of
from anabranch.lineage.recording import current
from anabranch.version import __version__
from tests.support.tables import SCHEMA, rows


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path))


@pytest.fixture
def orders(lake):
    table = lake.create_table("db.orders", SCHEMA)
    for start in (1, 3, 5):
        table.append(rows(start, 2))
    return table


@pytest.fixture
def clean(lake):
    return lake.create_table("db.clean", SCHEMA)


def entry_of(snapshot):
    return lineage_of(snapshot.properties, where="test")


def read(snapshot):
    """Of each table that went into a commit: its name, and after which of its snapshots up to which."""
    return [(i.name, i.after, i.through) for i in entry_of(snapshot).inputs]


def test_a_commit_names_the_job_and_what_it_had_read(lake, orders, clean):
    with lake.job("clean-orders", code="c0ffee") as job:
        made = clean.append(orders.scan().to_arrow())
    entry = entry_of(made)
    assert (entry.job, entry.run, entry.code) == ("clean-orders", job.run, "c0ffee")
    assert (entry.engine.name, entry.engine.version) == ("anabranch", __version__)
    (given,) = entry.inputs
    assert (given.name, given.table_uuid, given.branch_uuid) == (
        "db.orders",
        orders.table_uuid,
        orders.branch_uuid,
    )
    assert (given.after, given.through, given.end.stamp) == (0, 3, orders.snapshot.stamp)
    assert given.is_state
    assert not entry.problems


def test_without_a_job_nothing_is_said(lake, orders, clean, caplog):
    assert LINEAGE_PROPERTY not in clean.append(rows(1, 1)).properties
    with lake.job("j"):
        pass
    assert LINEAGE_PROPERTY not in clean.append(rows(1, 1)).properties
    assert not caplog.records


def test_all_forms_of_rows_register(lake, orders, clean):
    for take in ("to_arrow", "to_pandas", "to_polars"):
        with lake.job("j") as job:
            getattr(orders.scan(), take)()
            assert [i.through for i in job.taken("any").inputs] == [3], take
    with lake.job("j") as job:
        next(orders.scan().to_batches())
        assert [i.through for i in job.taken("any").inputs] == [3]
    with lake.job("j") as job:
        orders.scan().explain()
        assert job.taken("any").inputs == ()


def test_moments_and_branches_are_told_apart(lake, orders, clean):
    orders.create_tag("good", 2)
    orders.create_branch("fix", "good")
    fix = orders.branch("fix")
    fix.append(rows(10, 1))
    with lake.job("j"):
        scans = [orders.at("good").scan(), fix.scan(), lake.create_table("db.empty", SCHEMA).scan()]
        for scan in scans:
            scan.to_arrow()
        made = clean.append(rows(1, 1))
    assert read(made) == [("db.orders", 0, 2), ("db.orders$branch_fix", 0, 3), ("db.empty", 0, 0)]
    assert entry_of(made).inputs[1].branch_uuid == fix.branch_uuid != orders.branch_uuid


def test_changes_are_ranges_and_those_that_touch_are_one(lake, orders, clean):
    for start in (7, 9):
        orders.append(rows(start, 2))
    with lake.job("j"):
        for start, end in ((0, 1), (3, 4), (1, 2), (4, 5)):
            orders.changes(start, end).to_arrow()
        made = clean.append(rows(1, 1))
    assert read(made) == [("db.orders", 0, 2), ("db.orders", 3, 5)]
    ends = [given.end.stamp for given in entry_of(made).inputs]
    assert ends == [next(s.stamp for s in orders.snapshots() if s.id == i) for i in (2, 5)]
    assert not any(given.is_state for given in entry_of(made).inputs)


def test_every_commit_names_all_that_was_read_before(lake, orders, clean):
    with lake.job("j"):
        orders.at(1).scan().to_arrow()
        first = clean.append(rows(1, 1))
        orders.changes(1, 2).to_arrow()
        second = clean.overwrite(rows(2, 1))
        third = lake.create_table("db.other", SCHEMA).append(rows(3, 1))
    assert read(first) == [("db.orders", 0, 1)]
    assert read(second) == read(third) == [("db.orders", 0, 1), ("db.orders", 1, 2)]


def test_a_loop_over_a_tail_names_in_each_commit_what_is_new(lake, orders, clean):
    other = lake.create_table("db.other", SCHEMA)
    seen, elsewhere = [], []
    with lake.job("j"):
        for batch in orders.tail(start="snapshot.1", idle=0, max_files=1):
            seen.append(clean.append(batch))
            if len(seen) == 2:
                elsewhere.append(other.append(batch))
    assert [read(made) for made in seen] == [[("db.orders", n, n + 1)] for n in range(3)]
    assert [read(made) for made in elsewhere] == [[("db.orders", 0, 2)]]


def test_steps_that_were_gathered_are_named_by_the_commit_that_takes_them(lake, orders, clean):
    held = []
    with lake.job("j"):
        for batch in orders.tail(start="snapshot.1", idle=0, max_files=1):
            held.append(batch)
            if len(held) == 2:
                first = clean.append(pa.Table.from_batches(held))
        last = clean.append(held[-1])
    assert read(first) == [("db.orders", 0, 2)]
    assert read(last) == [("db.orders", 2, 3)]


def test_a_tail_in_a_coroutine_is_of_the_job_of_its_task(lake, orders, clean):
    async def copy(name, sink):
        with lake.job(name):
            return [sink.append(batch) async for batch in orders.tail(idle=0)]

    async def both():
        return await asyncio.gather(copy("a", clean), copy("b", lake.create_table("db.b", SCHEMA)))

    for name, made in zip("ab", asyncio.run(both()), strict=True):
        assert {(entry_of(s).job, *read(s)) for s in made} == {(name, ("db.orders", 0, 3))}


def test_an_audit_looks_at_rows_and_takes_none(lake, orders, clean):
    checks = Checks.parse("checks:\n  - unique: id\n", name="checks")
    with lake.job("j"):
        with orders.publish("nightly", checks) as branch:
            written = branch.append(rows(20, 2))
        made = clean.append(rows(1, 1))
    assert entry_of(written).job == entry_of(made).job == "j"
    assert entry_of(orders.snapshot).job == "merge-branch nightly"
    assert entry_of(made).inputs == ()


def test_rewriting_has_no_origin_of_its_own(lake, orders):
    with lake.job("tidy"):
        orders.compact(full=True)
        orders.rollback("snapshot.1")
    kinds = {s.commit_kind.value: LINEAGE_PROPERTY in s.properties for s in orders.snapshots()}
    assert kinds == {"APPEND": False, "COMPACT": False, "OVERWRITE": False}


def test_other_sources_are_named_by_the_job(lake, clean):
    with lake.job("j") as job:
        job.read_from("https://rates.example", end="2026-01-01")
        made = clean.append(rows(1, 1))
        with pytest.raises(InvalidInputError, match="'table' was named"):
            job.read_from("db.t", kind="table")
    assert entry_of(made).inputs == (SourceInput("unknown", "https://rates.example", None, "2026-01-01"),)


def test_jobs_do_not_nest(lake, clean):
    with lake.job("outer"):
        with (
            pytest.raises(InvalidInputError, match="job 'inner' was begun inside of job 'outer'"),
            lake.job("inner"),
        ):
            pass
        assert entry_of(clean.append(rows(1, 1))).job == "outer"
    assert current() is None


def test_threads_have_jobs_of_their_own_and_may_take_part(lake, orders, clean):
    found = {}

    def work(name, begin):
        with begin:
            orders.scan().to_arrow()
            table = lake.create_table(f"db.{name}", SCHEMA)
            found[name] = entry_of(table.append(rows(1, 1)))

    with lake.job("ours") as job:
        threads = [
            threading.Thread(target=work, args=("theirs", lake.job("theirs"))),
            threading.Thread(target=work, args=("shared", job.joined())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [given.through for given in job.taken("any").inputs] == [3]
    assert {name: entry.job for name, entry in found.items()} == {"theirs": "theirs", "shared": "ours"}
    assert found["shared"].run == job.run != found["theirs"].run


@pytest.mark.parametrize("name", ["", " ", " x", "x\n", "a\tb"])
def test_names_are_for_people(lake, name):
    with pytest.raises(InvalidNameError, match="is no name of a job"), lake.job(name):
        pass


def test_the_version_of_the_code_is_the_commit_that_its_file_is_at(lake, clean, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "work" / "jobs"
    folder.mkdir(parents=True)
    git = tmp_path / "work" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{commit} refs/heads/main\n")
    code = compile("with lake.job('j'):\n    made = clean.append(data)\n", str(folder / "job.py"), "exec")
    names = {"lake": lake, "clean": clean, "data": rows(1, 1)}
    exec(code, names)
    assert entry_of(names["made"]).code == commit


def test_reading_goes_on_when_lineage_cannot_be_gathered(lake, orders, clean, monkeypatch, caplog):
    def broken(*_):
        raise InvalidInputError("no such thing")

    monkeypatch.setattr("anabranch.lineage.reads.state_read", broken)
    with lake.job("j"):
        for _ in range(2):
            assert orders.scan().to_arrow().num_rows == 6
        made = clean.append(rows(1, 1))
    assert entry_of(made).problems == ("what was read of 'db.orders': no such thing",)
    assert [record.message for record in caplog.records] == [
        "lineage of job 'j' is incomplete: what was read of 'db.orders': no such thing"
    ]


def test_what_a_very_long_list_leaves_out_is_said(lake, clean):
    with lake.job("j") as job:
        for n in range(700):
            job.read_from(f"file-{n}")
        entry = entry_of(clean.append(rows(1, 1)))
    assert len(entry.inputs) == 500
    assert entry.inputs[-1].source == "file-699"
    assert entry.problems == ("200 of 700 inputs are left out",)


def test_of_a_very_long_list_the_newest_of_each_source_is_named(lake, orders, clean):
    rates = lake.create_table("db.rates", SCHEMA)
    for number in range(6):
        rates.append(rows(number, 1))
    with lake.job("j") as job:
        for at in range(1, 7):
            rates.at(at).scan().to_arrow()
        orders.scan().to_arrow()
        for n in range(250):
            job.read_from("a", kind="files", start=2 * n, end=2 * n + 1)
            job.read_from("b", kind="files", start=2 * n, end=2 * n + 1)
        entry = entry_of(clean.append(rows(1, 1)))
    assert entry.problems == ("7 of 507 inputs are left out",)
    assert [(i.name, i.through) for i in entry.inputs[:7]] == [
        *(("db.rates", at) for at in range(1, 7)),
        ("db.orders", 3),
    ]
    files = {name: [i.start for i in entry.inputs[7:] if i.source == name] for name in "ab"}
    assert sorted(len(starts) for starts in files.values()) == [246, 247]
    assert [starts[-1] for starts in files.values()] == [498, 498]


def test_what_another_thread_is_handed_meanwhile_is_named_by_the_next_commit(
    lake, orders, clean, monkeypatch
):
    batches = iter(orders.tail(start="snapshot.1", idle=0, max_files=1))
    commit, others = clean._committed, []

    def take_all():
        with job.joined():
            others.extend(batches)

    def committed_meanwhile(request, *seen):
        thread = threading.Thread(target=take_all)
        thread.start()
        thread.join()
        return commit(request, *seen)

    with lake.job("j") as job:
        ours = next(batches)
        with monkeypatch.context() as patched:
            patched.setattr(clean, "_committed", committed_meanwhile)
            first = clean.append(ours)
        second = clean.append(pa.Table.from_batches(others))
        third = clean.append(rows(1, 1))
    assert (read(first), read(second)) == ([("db.orders", 0, 1)], [("db.orders", 1, 3)])
    assert read(third) == []


def test_steps_that_became_one_are_told_as_each_of_them(lake, orders, clean, monkeypatch):
    """A commit to another branch makes one of steps that this commit names."""
    batches = iter(orders.tail(start="snapshot.1", idle=0, max_files=1))
    other = lake.create_table("db.other", SCHEMA)
    commit, elsewhere = clean._committed, []

    def committed_meanwhile(request, *seen):
        elsewhere.append(other.append(pa.Table.from_batches(held)))
        return commit(request, *seen)

    with lake.job("j"):
        held = list(batches)
        with monkeypatch.context() as patched:
            patched.setattr(clean, "_committed", committed_meanwhile)
            first = clean.append(pa.Table.from_batches(held))
        last = clean.append(rows(1, 1))
    assert read(first) == read(elsewhere[0]) == [("db.orders", 0, 3)]
    assert read(last) == []
