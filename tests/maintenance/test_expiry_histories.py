"""Random histories of everything that refers to files and everything that removes them, by several processes.

Processes append, overwrite, compact, roll back, make and remove tags, savepoints, branches and consumers, expire
and clean up, meet each other at any storage call, find the store failing and die. What a snapshot reads is
noted when it is first seen; from then on every ref that still is there must read the same. In the end nothing
may be left that no ref reaches. A history is determined by its seed.
"""

import os
import random
import threading
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import (
    AnabranchError,
    CommitError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from anabranch.format.records.refs import Consumer
from anabranch.format.records.savepoint import Savepoint
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.scan.request import ScanRequest
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.support.chance import Chance
from tests.support.faults import FaultyStorage, run
from tests.support.reached import reached_paths, ref_files, stored_paths

READS = ("get", "exists", "list", "list_folders", "info", "open_input")
WRITES = ("put", "put_many", "put_if_absent", "write", "delete", "delete_many", "move_many")
SETTINGS = [
    {},
    {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "8 kb"},
    {"manifest.merge-min-count": "3", "manifest.target-file-size": "3 kb"},
    {"bucket": "2", "bucket-key": "id", "manifest.merge-min-count": "4"},
]


class Died(BaseException):
    """A process ended; nothing it would do in response happens."""


@dataclass
class Process:
    """Its own view of the store, which may fail and in which others may come in between."""

    world: "World"
    number: int
    dead: bool = False

    def __post_init__(self):
        hooks = [
            run(when, call, self._hook(when, call), times=10**9)
            for call in READS + WRITES
            for when in ("before", "after")
        ]
        self.storage = FaultyStorage(self.world.storage, hooks)
        self.main = anabranch.Table(
            replace(self.world.main.context, storage=self.storage, cache=MetadataCache())
        )

    def view(self, branch):
        return self.main if branch is None else self.main.branch(branch)

    def _hook(self, when, call):
        def act(path):
            world = self.world
            if self.dead:
                raise Died
            if threading.current_thread() is not threading.main_thread():
                return  # many reads at once have no order of their own, which a seed could determine
            if when == "before" and world.rng.random() < world.crowd:
                world.meanwhile(self)
            if world.rng.random() >= world.trouble:
                return
            if world.rng.random() < 0.5:
                self.dead = True
                raise Died
            if when == "before" or call in WRITES:
                unknown = call in WRITES and (when == "after" or world.rng.random() < 0.5)
                raise StorageError(f"the test made {call} of {path} fail", outcome_unknown=unknown)

        return act


@dataclass
class World:
    """A table, those who work on it, and what was seen in it."""

    rng: random.Random
    trouble: float
    crowd: float
    depth: int = 0
    number: int = 0
    truth: dict = field(default_factory=dict)  # stamp of a snapshot -> ids of its rows
    branches: set = field(default_factory=set)
    done: Counter = field(default_factory=Counter)
    made: set = field(default_factory=set)
    """Paths of tags and consumers whose creation was acknowledged."""

    def __post_init__(self):
        runtime = Chance(self.rng.getrandbits(64), ticks=(0, 1, 1, 7)).runtime
        storage = MemoryStorage(runtime=runtime)
        options = {"compaction.min.file-num": "2", **self.rng.choice(SETTINGS)}
        self.main = Lake(storage, runtime=runtime).create_table(
            "db.t", "id BIGINT, p STRING", partition_by=["p"], options=options
        )
        self.storage = storage.scoped("db.db/t")
        self.processes = [Process(self, i) for i in range(3)]

    # What happens

    def step(self, process=None):
        process = process or self.rng.choice(self.processes)
        acts = {
            self.append: 8,
            self.overwrite: 3,
            self.compact: 3,
            self.roll_back: 3,
            self.tag: 3,
            self.change_tag: 3,
            self.savepoint: 2,
            self.forget_savepoint: 1,
            self.branch: 1,
            self.forget_branch: 1,
            self.consumer: 1,
            self.forget_consumer: 2,
            self.expire: 6,
        }
        act = self.rng.choices([*acts], [*acts.values()])[0]
        branch = self.rng.choice([None, None, *sorted(self.branches)])
        try:
            act(process, process.view(branch))
            self.done[act.__name__] += 1
        except (StorageError, CommitError, NotFoundError, InvalidInputError):
            return
        except AnabranchError as error:
            assert self.is_half_made(error) or (act in self.readers and self.has_expired(error)), error
        except Died:
            assert process.dead
            self.processes[process.number] = Process(self, process.number)

    @property
    def readers(self):
        """What reads a snapshot before it holds it, and has to look again if that expires meanwhile."""
        return (self.compact, self.roll_back)

    def has_expired(self, error):
        return "may have expired while it was read" in str(
            error.hint
        ) or "removed although it is needed" in str(error.hint)

    def is_half_made(self, error):
        """A branch is made or removed file by file, and meanwhile nobody may delete anything."""
        return "is being created or deleted" in str(error.hint) or "exists already" in error.message

    def meanwhile(self, interrupted):
        """Somebody else does something between two calls of one process, perhaps several times."""
        if self.depth:
            return
        self.depth += 1
        for _ in range(self.rng.randint(1, 3)):
            self.step(self.rng.choice([p for p in self.processes if p is not interrupted]))
        self.depth -= 1

    def rows(self):
        ids = range(self.number, self.number + self.rng.choice([1, 1, 2, 4]))
        self.number = ids.stop
        return pa.table({"id": [*ids], "p": [self.rng.choice("ab") for _ in ids]})

    def append(self, process, table):
        table.append(self.rows())

    def overwrite(self, process, table):
        table.overwrite(self.rows())

    def compact(self, process, table):
        table.compact(full=self.rng.random() < 0.7)

    def roll_back(self, process, table):
        table.rollback(self.some_id(table))

    def tag(self, process, table):
        self.number += 1
        name = f"t{self.number}"
        table.create_tag(name, self.some_id(table))
        self.made.add(table.context.layout.tag_path(name))

    def change_tag(self, process, table):
        names = table.tags()
        if not names:
            return
        name, kind = self.rng.choice(names), self.rng.random()
        if kind < 0.6:
            table.delete_tag(name)
        elif kind < 0.8:
            self.number += 1
            table.rename_tag(name, f"r{self.number}")
            self.made.add(table.context.layout.tag_path(f"r{self.number}"))
        else:
            table.replace_tag(name, self.some_id(table))

    def savepoint(self, process, table):
        table.create_savepoint(self.some_id(table))

    def forget_savepoint(self, process, table):
        numbers = [savepoint.id for savepoint in table.savepoints()]
        if numbers:
            table.delete_savepoint(self.rng.choice(numbers))

    def branch(self, process, table):
        """As other engines make one, from a tag that pins it, schemas first."""
        if table is not process.main or len(self.branches) > 1:
            return
        self.number += 1
        name, snapshot_id = f"b{self.number}", self.some_id(table)
        tag = table.create_tag(f"fork-{name}", snapshot_id)
        storage, root = process.storage, f"branch/branch-{name}"
        storage.put(f"{root}/schema/schema-0", storage.get("schema/schema-0"))
        storage.put(f"{root}/tag/tag-{tag.name}", storage.get(f"tag/tag-{tag.name}"))
        if not storage.exists(f"tag/tag-{tag.name}"):
            storage.delete_folder(root)
            return
        storage.put(f"{root}/snapshot/snapshot-{snapshot_id}", tag.snapshot.to_json())
        self.branches.add(name)

    def forget_branch(self, process, table):
        if self.branches:
            name = self.rng.choice(sorted(self.branches))
            self.branches.discard(name)
            process.storage.delete_folder(f"branch/branch-{name}")

    def consumer(self, process, table):
        """One that keeps what is there; like any ref it is written first and then checked.

        In the middle of an expiry that has looked for consumers already it would come too late.
        """
        if self.depth:
            return
        self.number += 1
        layout, snapshot_id = table.context.layout, self.some_id(table)
        path = layout.consumer_path(f"c{self.number}")
        process.storage.put(path, Consumer(snapshot_id).to_json())
        if not process.storage.exists(layout.snapshot_path(snapshot_id)):
            process.storage.delete(path)
        self.made.add(path)

    def forget_consumer(self, process, table):
        for info in [*process.storage.list(table.context.layout.consumer_folder)][:1]:
            process.storage.delete(info.path)

    def expire(self, process, table):
        how = self.rng.choice(
            [{"retain_max": self.rng.randint(1, 5)}, {"older_than": "0 s", "retain_min": 2}]
        )
        table.expire_snapshots(**how, dry_run=self.rng.random() < 0.1)

    def some_id(self, table):
        ids = table.context.snapshots.ids()
        return self.rng.choice(ids) if ids else 1

    # What must hold

    def clean(self, *, alone=True):
        """No age is spared: whoever comes in between does all of what it does, from the first file to the commit."""
        process, crowd = self.rng.choice(self.processes), self.crowd
        self.crowd = 0 if alone else crowd
        try:
            process.main.remove_orphan_files("0 s")
        except (StorageError, CorruptTableError) as error:
            assert isinstance(error, StorageError) or self.is_half_made(error)
            return
        except Died:
            self.processes[process.number] = Process(self, process.number)
            return
        finally:
            self.crowd = crowd
        if alone:
            assert stored_paths(self.main) == reached_paths(self.main)

    def repair(self):
        """What a process left that died between writing a ref and looking whether what it names is still there."""
        for folder in [*self.storage.list_folders("branch")]:
            if not [
                *self.storage.list(f"{folder}/schema")
            ]:  # a commit that came after the branch was removed
                self.storage.delete_folder(folder)
        for path, content in [*ref_files(self.storage)]:
            if "/tag-" in f"/{path}" and path not in self.made:
                named = [f"manifest/{content[key]}" for key in ("baseManifestList", "deltaManifestList")]
                if not all(map(self.storage.exists, named)):
                    self.storage.delete(path)
        for table in (self.main, *map(self.main.branch, sorted(self.branches))):
            layout = table.context.layout
            for info in [*self.storage.list(layout.consumer_folder)]:
                unread = Consumer.from_json(self.storage.get(info.path), path=info.path).next_snapshot
                if info.path not in self.made and not self.storage.exists(layout.snapshot_path(unread)):
                    self.storage.delete(info.path)

    def check(self, *, share=1.0):
        """Refs read what they did when their snapshot was first seen."""
        self.repair()
        self.main = anabranch.Table(replace(self.main.context, cache=MetadataCache()))
        for path, content in ref_files(self.storage):
            stamp = self.stamp(content)
            if stamp not in self.truth or self.rng.random() < share:
                found = self.read(path)
                assert self.truth.setdefault(stamp, found) == found, path
        for branch in (None, *sorted(self.branches)):
            self.check_history(self.main if branch is None else self.main.branch(branch))

    def stamp(self, content):
        content = content.get("savedSnapshot", content)
        return content["baseManifestList"], content["deltaManifestList"]

    def read(self, path):
        if path.startswith("savepoint/"):  # perhaps of a branch that is gone
            saved = Savepoint.from_path(self.storage, path).snapshot
            splits = ScanRequest(self.main.context, saved, self.main.schema).plan().splits
            return sorted(self.main.scan(columns=["id"]).reader.read_table(splits)["id"].to_pylist())
        return sorted(self.view_of(path).scan(columns=["id"]).to_arrow()["id"].to_pylist())

    def view_of(self, path):
        folder, _, file_name = path.rpartition("/")
        view = self.main.branch(folder.split("/")[1].removeprefix("branch-")) if "/" in folder else self.main
        kind, _, name = file_name.partition("-")
        return view.at(int(name)) if kind == "snapshot" else view.with_options({"scan.tag-name": name})

    def check_history(self, table):
        """No gap, two snapshots at least, and nothing missing that a consumer has to read."""
        ids = sorted(table.context.snapshots.ids())
        assert ids == [*range(ids[0], ids[-1] + 1)] if ids else True
        for info in self.storage.list(table.context.layout.consumer_folder):
            unread = Consumer.from_json(self.storage.get(info.path), path=info.path).next_snapshot
            assert ids[0] <= unread, info.path


def live_through(seed, steps, *, trouble=None, crowd=None):
    rng = random.Random(seed)
    trouble = rng.choice([0.0, 0.002, 0.01]) if trouble is None else trouble
    crowd = rng.choice([0.0, 0.01, 0.05]) if crowd is None else crowd
    world = World(random.Random(seed), trouble=trouble, crowd=crowd)
    for number in range(steps):
        world.step()
        world.check(share=0.15)
        if number % 8 == 7:
            world.clean(alone=world.rng.random() < 0.5)
    world.trouble = world.crowd = 0
    for table in (world.main, *map(world.main.branch, sorted(world.branches))):
        table.expire_snapshots(retain_max=2)
    world.processes = [Process(world, i) for i in range(3)]
    world.clean()
    world.check()
    return world


@pytest.mark.parametrize("seed", range(1))
def test_random_histories(seed):
    live_through(seed, 24)


@pytest.mark.long
def test_histories_hold_what_they_are_about():
    done = Counter()
    for seed in (100, 101, 102):
        done += live_through(seed, 40, trouble=0.0, crowd=0.0).done
    for act in ("append", "overwrite", "compact", "roll_back", "tag", "savepoint", "branch", "consumer"):
        assert done[act], act
    assert done["expire"] > 5


@pytest.mark.long
def test_a_history_is_determined_by_its_seed():
    first, second = (live_through(7, 16) for _ in range(2))
    assert first.done == second.done
    assert [*first.truth.values()] == [*second.truth.values()]


MANY = int(os.environ.get("ANABRANCH_EXPIRY_STEPS", "10000"))
"""Steps of the long form in all."""
PER_HISTORY = 80


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_random_histories():
    for seed in range(1000, 1000 + MANY // PER_HISTORY):
        try:
            live_through(seed, PER_HISTORY)
        except Exception as error:
            raise AssertionError(f"the history of seed {seed} went wrong") from error
