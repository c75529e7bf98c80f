"""What processes do with Anabranch, and what each act means for the rows of the table."""

import json

import pyarrow as pa

from anabranch.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    NotFoundError,
    StorageError,
)
from anabranch.format.records.snapshot import CommitIdentity
from anabranch.kernel.actions.append import Append as Appending
from tests.simulation.process import Known, Violation

PARTS = ("a", "b", "c")
_GONE = "gone meanwhile"
_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.string())])


def part_of(row):
    """The partition of a row."""
    return PARTS[row % len(PARTS)]


def is_old(entry):
    """Whether a commit may remove it by itself: with more than ten snapshots, what is older than an hour expires.

    A snapshot says when it was made by the clock of its writer, which may be behind.
    """
    world = entry.world
    return world.skews != (0,) or world.now + world.settings.tolerance > entry.put_at + 3_600_000


def table_of(rows):
    return pa.table({"id": pa.array(rows, pa.int64()), "p": [part_of(row) for row in rows]}, schema=_SCHEMA)


class Act:
    """Something done by one process. `do` calls Anabranch; the rest says what it means."""

    starts_history = False
    is_alone = False
    """Whether everybody else waits until it is done: what the documentation asks for ("stop the writers first")."""
    is_repeated = False
    """Whether a successor does it again if its process dies."""
    may_move_away = False
    """Whether it moves files away that are needed, and looks again afterwards."""
    is_for_main = False
    is_foreign = False
    """Whether it is another engine's."""
    copies_past = False
    """Whether it puts older snapshots below those of a branch."""
    is_damage = False
    """Whether what it takes away or changes must be brought back by a repair."""
    is_rescued = False
    """Whether rows that it put astray must not be lost: it is told that they were committed."""
    built_on = None
    is_acknowledged = False

    def __init__(self):
        self.made = []
        """Entries of the history that it put."""
        self.taken = []
        """Those of them that were removed again."""

    def __str__(self):
        return type(self).__name__

    def do(self, process):
        raise NotImplementedError

    def done(self, process, result):
        self.is_acknowledged = True

    def failed(self, process, error):
        if process.world.is_calm:
            kind = Known if process.world.is_hint_of_what_another_engine_rolled_back(error) else Violation
            raise kind(f"{self} failed although nothing was wrong: {error}") from error

    def rows_after(self, content, before, model):
        """The rows there must be after a snapshot that it put on the newest one."""
        return before

    def drops(self, branch):
        """Whether it removes a branch, by its folder, with all its history."""
        return False

    def may_remove_newest(self, entry):
        """Who commits takes back a rollback whose writer died before it looked, and of which files are gone."""
        return isinstance(entry.act, SoftRollback) and not entry.act.is_acknowledged and entry.is_unsettled

    def may_remove_oldest(self, entry):
        return False

    def may_break(self, entry):
        """Whether it may take away files of an old snapshot before the snapshot itself."""
        return False

    def may_untag(self, path, content, world):
        return False

    def may_forget(self, kind, name, content):
        """Whether it may remove a savepoint or consumer, by its file."""
        return False

    def is_harmless_on_old(self, result):
        """Whether it may come to such a result with a handle of a table that is gone."""
        return False


def is_tag_due(path, content, world):
    """Whether a tag was kept for as long as it was made for."""
    made = world.model.tagged_at.get(path)
    retained = content.get("anabranch.retained-millis")  # what is said to other engines is longer
    if retained is None and "tagTimeRetained" in content:
        retained = content["tagTimeRetained"] * 1000
    if retained is None or made is None:
        return False
    return world.now + world.settings.tolerance > made + retained


class Commit(Act):
    """An act whose commit is acknowledged, refused, or in doubt. Afterwards what is old may expire."""

    def may_remove_oldest(self, entry):
        return is_old(entry)

    def may_untag(self, path, content, world):
        return is_tag_due(path, content, world)

    def done(self, process, result):
        super().done(process, result)
        if not self.made or self.made[-1] in self.taken_back():
            raise Violation(f"{self} was acknowledged, but is in no history")
        if self.made[-1] not in self.taken and not self.made[-1].is_expired:
            process.world.model.check_settled(self.made[-1])

    def failed(self, process, error):
        super().failed(process, error)
        if any(entry.is_away for entry in self.made):
            raise Violation(f"{self} took away what others have built on")
        if isinstance(error, CommitOutcomeUnknownError):
            return
        # What bridges a gap to a snapshot that has to be replaced changes nothing.
        made = [
            entry for entry in self.made if "anabranch.leftover" not in entry.content.get("properties", {})
        ]
        if [entry for entry in made if entry not in self.taken]:
            raise Violation(f"{self} failed with {error!r}, but was committed")

    def taken_back(self):
        """What it put and removed itself."""
        return [entry for entry in self.taken if entry.removed_by is self]


class Append(Commit):
    """A batch of rows."""

    is_for_main = True

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def __str__(self):
        return f"append {list(self.rows)}"

    def do(self, process):
        return process.table.append(table_of(self.rows)).id

    def rows_after(self, content, before, model):
        return (*before, *self.rows)


class Batch(Append):
    """A micro-batch of a stream: repeated under the same identity until it is acknowledged, also by its successor."""

    is_repeated = True

    def __str__(self):
        return f"batch {list(self.rows)}"

    def do(self, process):
        identity = CommitIdentity(f"stream-{self.rows[0]}", 1)
        for again in (True, True, False):
            try:
                messages = process.table.writer().write(table_of(self.rows).to_batches())
                return process.table.commit(Appending(messages), identity=identity).repeated
            except (CommitOutcomeUnknownError, StorageError):
                if not again:
                    raise
        raise AssertionError

    def failed(self, process, error):
        """It may have been committed by one of the tries."""

    def rows_after(self, content, before, model):
        if set(self.rows) <= set(before):
            raise Violation(f"{self} was committed twice")
        return super().rows_after(content, before, model)


class Overwrite(Commit):
    """Replaces the partitions that occur in its rows."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def __str__(self):
        return f"overwrite with {list(self.rows)}"

    def do(self, process):
        return process.table.overwrite(table_of(self.rows)).id

    def rows_after(self, content, before, model):
        gone = {part_of(row) for row in self.rows}
        return (*(row for row in before if part_of(row) not in gone), *self.rows)


class Compact(Act):
    """Rewrites small files; rows stay. Afterwards what is old may expire."""

    def may_remove_oldest(self, entry):
        return is_old(entry)

    def do(self, process):
        return process.table.compact(full=True).tasks


class Expire(Act):
    """Removes old snapshots."""

    def __init__(self, keep, older_than=None, *, left=None):
        super().__init__()
        self.keep, self.older_than, self.left = keep, older_than, left

    def __str__(self):
        return f"expire all but {self.keep}" if self.keep else f"expire what is older than {self.older_than}"

    def do(self, process):
        return process.table.expire_snapshots(
            retain_max=self.keep, retain_min=2, older_than=self.older_than
        ).snapshots

    def done(self, process, result):
        super().done(process, result)
        model = process.world.model
        found = len(model.lines[model.main].entries)
        if self.left is not None and found > self.left:
            kind = Known if "future" in process.world.known else Violation
            raise kind(f"{found} snapshots are left, however old they are")

    def may_remove_oldest(self, entry):
        return True

    def may_untag(self, path, content, world):
        return is_tag_due(path, content, world)


class CleanOrphans(Act):
    """Moves away what nothing refers to."""

    def __str__(self):
        return "remove orphan files"

    may_move_away = True

    def do(self, process):
        return process.table.remove_orphan_files(older_than="1 d").files.height

    def done(self, process, result):
        super().done(process, result)
        process.world.model.check_refs()


class Rollback(Act):
    """Goes back for good."""

    is_alone = True

    def __init__(self, back):
        super().__init__()
        self.back, self.target = back, None

    def __str__(self):
        return f"roll back for good to {self.target}"

    def do(self, process):
        head = process.table.snapshot
        self.target = max(1, head.id - self.back)
        return process.table.rollback(self.target, destructive=True, force=True).snapshot.id

    def failed(self, process, error):
        """An expiry that died stands in the way for a week."""
        if "EXPIRY_UNDERWAY" not in str(error) or not process.world.model.is_expiry_marked_from(self.target):
            super().failed(process, error)

    def may_remove_newest(self, entry):
        return self.target is not None and entry.id > self.target

    def may_untag(self, path, content, world):
        return self.target is not None and content["id"] > self.target

    def may_forget(self, kind, name, content):
        if self.target is None:
            return False
        if kind == "consumer":
            return content["nextSnapshot"] > self.target + 1
        return content["savedSnapshotId"] > self.target


class SoftRollback(Commit):
    """Goes back by a new snapshot."""

    def __init__(self, back):
        super().__init__()
        self.back, self.target = back, None

    def __str__(self):
        return f"roll back to {self.target}"

    def do(self, process):
        head = process.table.snapshot
        self.target = max(1, head.id - self.back)
        return process.table.rollback(self.target).snapshot.id

    def done(self, process, result):
        self.is_acknowledged = True

    def failed(self, process, error):
        """What comes after its commit may fail; repeating it is harmless."""

    def rows_after(self, content, before, model):
        to = json.loads(content["properties"]["anabranch.rollback"])["to"]
        if to["snapshot"] != self.target:
            raise Violation(f"{self} went back to {to['id']}")
        return model.rows_of[to["stamp"]]


class CreateTag(Act):
    """Names the newest snapshot."""

    def __init__(self, name, retained=None):
        super().__init__()
        self.name, self.retained = name, retained
        self.at = self.tag = None

    def __str__(self):
        return f"create tag {self.name} for {self.retained}"

    def do(self, process):
        self.at = process.world.now
        self.tag = process.table.create_tag(self.name, retained=self.retained)
        return self.tag.snapshot.id

    def done(self, process, result):
        super().done(process, result)
        process.world.model.tag_acknowledged(self.tag, self.at)

    def failed(self, process, error):
        if not isinstance(error, AlreadyExistsError):
            super().failed(process, error)


class DeleteTag(Act):
    """Removes a tag."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __str__(self):
        return f"delete tag {self.name}"

    def do(self, process):
        process.table.delete_tag(self.name)

    def may_untag(self, path, content, world):
        return path.endswith(f"/tag-{self.name}")


class Read(Act):
    """Reads all rows, which must be those of some moment while it read."""

    def do(self, process):
        world = process.world
        try:
            rows = process.table.scan().to_arrow()["id"].to_pylist()
        except NotFoundError:
            return _GONE
        wanted = [tuple(sorted(state)) for state in world.model.seen_since(process.begun)]
        if tuple(sorted(rows)) not in wanted:
            raise Violation(f"read {sorted(rows)}, which main was not since step {process.begun}: {wanted}")
        return len(rows)

    def is_harmless_on_old(self, result):
        return result == _GONE


class Repair(Act):
    """Mends what `verify` finds."""

    def do(self, process):
        done = process.table.repair()
        left = [problem.message for problem in done.left if problem.severity == "error"]
        if left:
            raise Violation(f"repair left: {left}")
        return [step.what for step in done.steps]

    def done(self, process, result):
        super().done(process, result)
        model = process.world.model
        for branch, line in model.lines.items():
            if line.lost:
                raise Violation(f"snapshots {[entry.id for entry in line.lost]} of '{branch}' are still lost")
        model.check_refs()

    def may_remove_newest(self, entry):
        """One that nobody can read, as its writer slept until its files were purged, and died before it looked."""
        return not entry.act.is_acknowledged and entry.is_unsettled
