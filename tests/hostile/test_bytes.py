"""Mutations of every kind of file of a table: only clear errors, in bounded time and memory, nothing outside touched.

Each mutation is of a copy of a table with tags, savepoints, branches, an audit, a merge, a replacement of main and
a ledger. Some verbs, chosen by its seed, then read, write and clean the table in another process.
"""

import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.audit import Checks
from anabranch.errors import AnabranchError
from tests.hostile.mutations import mutated
from tests.support.hostile import bad, survive

KINDS = {
    "snapshot": "**/snapshot/*",
    "schema": "**/schema/schema-*",
    "tag": "**/tag/*",
    "savepoint": "savepoint/*",
    "consumer": "**/consumer/*",
    "manifest": "manifest/manifest-*-[0-9]",
    "manifest list": "manifest/manifest-list-*",
    "branch": "branch/branch-*/*",
    "pointer": "branch/[A-Z]*",
    "inherited tags": "branch/TAGS-*",
    "ledger": "**/ledger/*",
    "data": "**/bucket-0/*",
}
SHORT = 1
LONG, LONG_DATA = 1_000, 2_000
VERBS = {
    "scan": lambda t: t.scan().to_arrow(),
    "filter": lambda t: t.scan("id >= 3 AND v LIKE 'v%'", columns=["v"]).to_arrow(),
    "stream": lambda t: [*t.scan().to_batches()],
    "past": lambda t: [t.at(snapshot.id).scan().to_arrow() for snapshot in t.snapshots()],
    "tags": lambda t: [t.at(name).scan().to_arrow() for name in t.tags()],
    "savepoints": lambda t: [t.at(f"savepoint.{point.id}").scan().to_arrow() for point in t.savepoints()],
    "branches": lambda t: [t.branch(name).scan().to_arrow() for name in t.branches()],
    "time": lambda t: t.at(timestamp="2040-01-01 00:00:00").scan().to_arrow(),
    "changes": lambda t: t.changes(0).to_arrow(),
    "system": lambda t: [t.system(name) for name in SYSTEM],
    "health": lambda t: str(t.health()),
    "schemas": lambda t: t.schemas(),
    "diff": lambda t: str(t.diff("main", "fix")),
    "lineage": lambda t: [str(t.lineage.upstream()), str(t.lineage.downstream())],
    "append": lambda t: t.append(_rows(1000, 2)),
    "overwrite": lambda t: t.overwrite(_rows(2000, 2)),
    "alter": lambda t: t.alter().add_column("x", "INT").apply(),
    "compact": lambda t: t.compact(full=True),
    "create tag": lambda t: t.create_tag("new"),
    "create savepoint": lambda t: t.create_savepoint(),
    "create branch": lambda t: t.create_branch("new", tag="good"),
    "merge": lambda t: t.merge_branch("fix"),
    "replace": lambda t: t.replace_main_branch("fix"),
    "undo": lambda t: t.undo_replace(),
    "audit": lambda t: t.branch("fix").audit(Checks.parse("checks: [{row_count: {min: 1}}]")),
    "delete branch": lambda t: t.delete_branch("fix"),
    "delete tag": lambda t: t.delete_tag("good"),
    "rollback": lambda t: t.rollback("good"),
    "roll back for good": lambda t: t.rollback("good", destructive=True),
    "expire": lambda t: t.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s"),
    "orphans": lambda t: t.remove_orphan_files("0 s"),
    "maintain": lambda t: t.maintain(),
}
SYSTEM = (
    "snapshots",
    "schemas",
    "options",
    "files",
    "manifests",
    "partitions",
    "tags",
    "savepoints",
    "branches",
    "consumers",
)
ALWAYS = ("scan",)
OTHERS_EACH_TIME = 4


def _rows(start, count):
    ids = range(start, start + count)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids], "p": [f"p{i % 2}" for i in ids]}
    )


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A warehouse: the table that is damaged, and what must stay as it is."""
    folder = tmp_path_factory.mktemp("hostile") / "pristine"
    lake = anabranch.connect(str(folder))
    options = {"manifest.merge-min-count": "3", "snapshot.num-retained.min": "1"}
    table = lake.create_table("db.t", "id BIGINT, v STRING, p STRING", partition_by=["p"], options=options)
    for i in range(4):
        with lake.job("writer"):
            table.append(_rows(10 * i, 6))
    table.create_tag("good")
    table.create_tag("early", 2)
    table.create_savepoint()
    table.create_branch("fix", tag="good")
    table.create_branch("old", tag="good")
    table.branch("fix").append(_rows(100, 3))
    table.branch("old").append(_rows(200, 3))
    table.merge_branch("old")
    table.branch("fix").audit(Checks.parse("checks: [{row_count: {min: 1}}]"))
    table.create_branch("next", tag="good")
    table.branch("next").append(_rows(300, 3))
    table.replace_main_branch("next", force=True)
    table.alter().add_column("w", "INT").apply()
    table.append(_rows(400, 3).append_column("w", pa.array([1, 2, 3], pa.int32())))
    for prefix in ("", "branch/branch-next/"):
        table.context.storage.put(f"{prefix}consumer/consumer-reader", b'{"nextSnapshot":5}')
    table.compact(full=True)
    table.expire_snapshots(retain_max=3, retain_min=1, older_than="0 s")
    other = lake.create_table("db.other", "id BIGINT, v STRING, p STRING")
    other.append(_rows(0, 3))
    (folder / "notes.txt").write_text("mine")
    return folder


def attack(item):
    """What came of each verb on a damaged copy. Raises what is none of our errors."""
    pristine, scratch, kind, seed = item
    chance = random.Random(f"{kind} {seed}")
    place = Path(scratch) / f"{kind}-{seed}".replace(" ", "-")
    shutil.copytree(pristine, place)
    try:
        table = place / "db.db" / "t"
        victims = sorted(path for path in table.glob(KINDS[kind]) if path.is_file())
        victim = chance.choice(victims)
        victim.write_bytes(mutated(victim.read_bytes(), chance))
        before = _outside(place, table)
        told = {}
        for verb in [*ALWAYS, *chance.sample([*VERBS], OTHERS_EACH_TIME)]:
            try:
                VERBS[verb](anabranch.connect(str(place)).table("db.t"))
                told[verb] = "done"
            except AnabranchError as error:
                assert len(str(error)) < 10_000
                told[verb] = type(error).__name__
        assert _outside(place, table) == before, "something outside of the table was touched"
        return told
    finally:
        shutil.rmtree(place)


def _outside(place, table):
    found = {}
    for folder, _, names in os.walk(place):
        if not Path(folder).is_relative_to(table):
            for name in names:
                status = os.stat(os.path.join(folder, name))
                found[os.path.join(folder, name)] = (status.st_size, status.st_mtime_ns)
    # The index of lineage is the warehouse's, and may be made when lineage is asked for.
    return {path: status for path, status in found.items() if "lineage" not in path}


def _attacked(pristine, tmp_path, kind, count):
    outcomes = survive(attack, [(str(pristine), str(tmp_path), kind, seed) for seed in range(count)])
    assert not bad(outcomes), "\n\n".join(f"{o.item[2:]} {o.kind}: {o.value}" for o in bad(outcomes)[:5])
    return outcomes


def test_there_are_files_of_every_kind(pristine):
    table = pristine / "db.db" / "t"
    for kind, pattern in KINDS.items():
        assert [path for path in table.glob(pattern) if path.is_file()], kind


def test_a_few_mutations_of_every_kind(pristine, tmp_path):
    for kind in KINDS:
        _attacked(pristine, tmp_path, kind, SHORT)


@pytest.mark.long
@pytest.mark.timeout(0)  # each mutation has its own
@pytest.mark.parametrize("kind", KINDS)
def test_many_mutations(pristine, tmp_path, kind):
    outcomes = _attacked(pristine, tmp_path, kind, LONG_DATA if kind == "data" else LONG)
    assert any(set(o.value.values()) != {"done"} for o in outcomes), "nothing was damaged"
