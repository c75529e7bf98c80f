"""Random histories of main and its branches in a real table, each step of which the oracle knows the meaning of.

A history is determined by its seed: what happens, when, and under which names. Where what a merge does is not what
the oracle says, `Wrong` tells the history that led there.
"""

import io
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import CommitConflictError, SchemaError
from anabranch.format.rows.partition_path import DEFAULT_PARTITION_NAME
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.kernel.merge.plan import Outcome
from anabranch.kernel.scan.partitions import key_of_row
from anabranch.lake import Lake
from anabranch.storage.memory import MemoryStorage
from tests.branches.oracle import Did, Forked, Line, Step, can_say, judge, judge_columns
from tests.support.chance import Chance
from tests.support.foreign_expiry import expire_as_others

PARTITIONS = ["a", "b", None]
WHOLE = ()
"""The one partition of a table without partitions."""
LAYOUTS = [
    {},
    {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "8 kb"},
    {"bucket": "2", "bucket-key": "id"},
    {"bucket": "1", "manifest.merge-min-count": "3"},
]
SCHEMA_REWRITE_NEEDED = "SCHEMA_REWRITE_NEEDED"
EAGER = {"compaction.min.file-num": "2", "compaction.max.file-num": "3"}


class Wrong(AssertionError):
    """The table is not as the oracle says."""


@dataclass
class World:
    """A table with its branches, and what the oracle knows of them."""

    seed: int
    foreign: float = 0.0
    """How likely it is another engine that expires snapshots."""
    told: list = field(default_factory=list)
    merges: int = 0
    replaced: set = field(default_factory=set)
    """Partitions that the last merge replaced."""
    conflicts: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        runtime = Chance(self.seed).runtime
        lake = Lake(MemoryStorage(runtime=runtime), runtime=runtime)
        layout = self.rng.choice(LAYOUTS)
        self.partitions = PARTITIONS if self.rng.random() < 0.85 else [WHOLE]
        self.is_queue = "bucket" in layout
        made = lake.create_table(
            "db.t",
            "id BIGINT NOT NULL, p STRING, n INT",
            partition_by=[] if self.partitions == [WHOLE] else ["p"],
            options={**layout, **EAGER},
        )
        self.root = type(made)(replace(made.context, cache=MetadataCache()))
        self.main = Line("main", [Step(0, {})])
        self.branches: list[Forked] = []
        self.next_row = 0
        self.values: dict[int, dict[int, int]] = {}
        self.written: dict[tuple[str, int], set] = {}
        # Of each branch as main has them; a rollback leaves columns as they are.
        self.taken_columns: dict[str, dict] = {}
        self.tell(f"layout {layout}, partitions {self.partitions}")

    def tell(self, what):
        self.told.append(what)

    # What happens

    def run(self, steps):
        """So many steps, and at the end one merge of each branch."""
        self.append(self.main)
        self.fork()
        for _ in range(steps):
            self.step()
        for branch in list(self.branches):
            self.merge(branch)
        for line in (self.main, *self.branches):
            self.check(line)
        for branch in self.branches:
            if not branch.is_lost_since(branch.steps[0], branch.name):
                self.check_fence(branch)
        return self

    def step(self):
        acts = {
            self.append: 10,
            self.overwrite: 3,
            self.compact: 6,
            self.expire: 2,
            self.alter: 2,
            self.merge: 4,
            self.fork: 1,
            self.roll_back: 1,
        }
        act = self.rng.choices([*acts], [*acts.values()])[0]
        if act == self.fork:
            act()
        elif act == self.merge:
            if self.branches:
                self.merge(self.rng.choice(self.branches))
        else:
            act(self.rng.choice([self.main, *self.branches]))

    def append(self, line):
        data, added = self.new_rows(line, self.some_partitions())
        table = self.table(line)
        table.append(data)
        self.tell(f"append to {line.name}: {added}")
        self.note(line, _joined(line.head.rows, added), appended=frozenset(added))

    def overwrite(self, line):
        table, kind = self.table(line), self.rng.choice(["dynamic", "dynamic", "static", "whole", "empty"])
        if self.partitions == [WHOLE]:
            kind = "whole"
        if kind == "dynamic":
            data, added = self.new_rows(line, self.some_partitions())
            table.overwrite(data)
            gone, rows = frozenset(added), {**line.head.rows, **added}
        elif kind == "whole":
            data, added = self.new_rows(line, self.some_partitions())
            table.replace(data)
            gone, rows = frozenset(), added
        else:
            part = self.rng.choice(self.partitions)
            data, added = self.new_rows(line, [part], most=0 if kind == "empty" else 3)
            table.overwrite(data, {"p": part})
            gone, rows = frozenset({part}), {**line.head.rows, part: added.get(part, ())}
        self.tell(f"overwrite ({kind}) {line.name}: {sorted(gone, key=str)} with {added}")
        self.note(line, rows, overwrote=gone, is_of_all=kind == "whole")

    def compact(self, line):
        table = self.table(line)
        kind = self.rng.choice(["minor", "full", "full", "sort"])
        if kind == "sort" and not self.is_queue:
            table.sort_compact(["id"], "order")
        else:
            table.compact(full=kind != "minor")
        self.tell(f"compact ({kind}) {line.name}")
        for ids in line.head.rows.values():
            for row in ids:
                self.written.setdefault((line.name, row), set()).add(frozenset(self.columns(line).items()))
        self.note(line, line.head.rows)

    def expire(self, line):
        table = self.table(line)
        keep = self.rng.choice([2, 2, 3, 5])
        is_foreign = self.rng.random() < self.foreign
        before = set(table.context.snapshots.ids())
        if is_foreign:
            expire_as_others(table, keep)
        else:
            table.expire_snapshots(retain_max=keep, retain_min=2)
        self.tell(f"expire {line.name}{' as others do' if is_foreign else ''}, keeping {keep}")
        first = min(table.context.snapshots.ids())
        known = frozenset() if is_foreign else frozenset(branch.name for branch in self.branches)
        for earlier, step in pairwise(line.steps):
            of_step = range(earlier.snapshot + 1, step.snapshot)
            step.is_torn |= is_foreign and any(n < first and n in before for n in of_step)
        for step in line.steps:
            if step.snapshot < first and step.kept_for is None:
                step.kept_for = known

    def alter(self, line):
        table = self.table(line)
        names = [f.name for f in table.schema.fields if f.name not in ("id", "p")]
        number = len(self.told)
        change, kind = table.alter(), self.rng.choice(["add", "add", "drop", "rename", "widen"])
        if kind == "add" or not names:
            change = change.add_column(self.rng.choice(["x", f"c{number}", f"c{number}"]), "INT")
        elif kind == "drop":
            change = change.drop_column(self.rng.choice(names))
        elif kind == "rename":
            change = change.rename_column(self.rng.choice(names), f"r{number}")
        else:
            change = change.widen_column(self.rng.choice(names), "BIGINT")
        try:
            change.apply()
        except SchemaError:
            return
        self.tell(f"alter {line.name}: {kind}, now {[(f.id, f.name) for f in table.schema.fields]}")

    def fork(self):
        if len(self.branches) == 3:
            return
        kept = set(self.root.context.snapshots.ids())
        steps = [step for step in self.main.steps if step.snapshot in kept]
        step = steps[-1] if self.rng.random() < 0.7 else self.rng.choice(steps)
        name = f"fix{len(self.branches)}"
        self.root.create_tag(f"t-{name}", step.snapshot)
        self.root.create_branch(name, f"t-{name}")
        begun = Step(step.snapshot, step.rows, step.files)
        self.branches.append(Forked(name, [begun], step))
        self.taken_columns[name] = _columns(self.root.at(step.snapshot).schema.fields)
        for row in range(self.next_row):
            self.written[name, row] = set(self.written.get(("main", row), ()))
        self.tell(f"branch {name} from snapshot {step.snapshot}")

    def roll_back(self, line):
        table = self.table(line)
        kept = set(table.context.snapshots.ids())
        steps = [step for step in line.steps[:-1] if step.snapshot in kept]
        if not steps:
            return
        step = self.rng.choice(steps)
        is_for_good = line is self.main and self.rng.random() < 0.3
        if is_for_good and any(line.place(branch.fork) > line.place(step) for branch in self.branches):
            return
        table.rollback(step.snapshot, destructive=is_for_good, force=is_for_good)
        self.tell(f"roll {line.name} back to {step.snapshot}{', for good' if is_for_good else ''}")
        if is_for_good:
            del line.steps[line.place(step) + 1 :]
            return
        known, before = line.head, line.head.files
        self.note(line, step.rows, back_to=step)
        if line.head is not known:
            after = line.head.files
            changed = {part for part in {*before, *after} if before.get(part) != after.get(part)}
            line.head.overwrote = frozenset(changed)

    # Merging

    def merge(self, branch):
        """Merge, and settle conflicts by chance."""
        verdict = judge(self.main, branch)
        columns, clashes = self.judge_columns(branch)
        is_doubtful = self.doubt_files(branch, verdict, columns)
        self.tell(f"merge {branch.name}: {verdict}, columns {columns} {clashes or ''}")
        found = self.attempt(branch)
        if not self.agrees(verdict, clashes, found):
            self.fail(f"merging {branch.name} gave {found and [*map(str, found)]}")
        for conflict in found or ():
            self.conflicts[conflict.kind] += 1
        if found is None:
            self.take_in(branch, verdict, {}, columns)
        elif all(c.partition is not None for c in found) and self.rng.random() < 0.6:
            choices = {self.part_of(c): self.rng.choice(["ours", "theirs"]) for c in found}
            self.tell(f"settle {choices}")
            more = self.attempt(branch, {c.partition: choices[self.part_of(c)] for c in found})
            if more is None:
                self.take_in(branch, verdict, choices, columns)
            elif not all(
                choices[self.part_of(c)] == "theirs"
                and (is_doubtful if c.kind == SCHEMA_REWRITE_NEEDED else self.may_be_out_of_order(branch, c))
                for c in more
            ):
                self.fail(f"settled by {choices}, merging {branch.name} gave {[*map(str, more)]}")

    def attempt(self, branch, choices=None):
        """The conflicts of a merge, or None if it was made. A dry run says the same."""
        tried = self.root.merge_branch(branch.name, resolve=choices, dry_run=True)
        try:
            made = self.root.merge_branch(branch.name, resolve=choices)
        except CommitConflictError as error:
            self.tell(f"  {[*map(str, error.conflicts)]}")
            if error.conflicts != tried.conflicts:
                self.fail(f"a dry run found {[*map(str, tried.conflicts)]}")
            return error.conflicts
        if tried.conflicts or tried.partitions != made.partitions:
            self.fail(f"a dry run found {tried}, the merge did {made}")
        self.replaced = {self.part_of(one) for one in made.partitions if one.outcome == Outcome.REPLACED}
        return None

    def may_be_out_of_order(self, branch, conflict):
        """Whether files that stay may hinder a queue from getting the order that a branch has."""
        part = self.part_of(conflict)
        both = self.main.files(part) & branch.files(part)
        return self.is_queue and conflict.kind == "ORDER_CHANGED" and bool(both)

    def judge_columns(self, branch):
        """The columns of main after a merge, and what stands against that."""
        return judge_columns(self.taken_columns[branch.name], self.columns(self.main), self.columns(branch))

    def doubt_files(self, branch, verdict, columns):
        """Add where files may have to be rewritten because no version of main's schema says what they hold.

        Returns whether there may be any such file on the branch.
        """
        versions = [_columns(schema.fields) for schema in self.root.schemas()]
        said = {}
        for part, ids in branch.head.rows.items():
            taken = branch.taken(self.main).rows.get(part, ())
            rows = set(ids) - (set() if verdict.did[part] is Did.OVERWROTE else set(taken))
            for row in ids:
                for schema in self.written[branch.name, row]:
                    if schema not in said:
                        said[schema] = can_say(dict(schema), versions, columns)
                    if row in rows and part in verdict.may and not said[schema]:
                        verdict.may[part] |= {SCHEMA_REWRITE_NEEDED}
        return not all(said.values())

    def agrees(self, verdict, clashes, found):
        """Whether a merge ended as the oracle says."""
        if found is None:
            return not verdict.must and not clashes
        of_schema = {c.kind for c in found if c.partition is None}
        return of_schema == clashes and verdict.is_agreed(
            (self.part_of(c), c.kind) for c in found if c.partition is not None
        )

    def take_in(self, branch, verdict, choices, columns):
        """What a merge that was made means: for main, for this branch and for others."""
        self.merges += 1
        rows = dict(verdict.rows)
        for part, choice in choices.items():
            rows[part] = branch.rows(part) if choice == "theirs" else self.main.rows(part)
        changed = {part for part in verdict.did if self.main.rows(part) or branch.rows(part)}
        did = {part: verdict.did[part] for part in changed - choices.keys()}
        did |= dict.fromkeys(self.replaced & verdict.replaceable & did.keys(), Did.OVERWROTE)
        added = {part for part in verdict.addable & did.keys() - self.replaced if did[part] is Did.OVERWROTE}
        did |= dict.fromkeys(added, Did.APPENDED)
        theirs = frozenset(part for part, choice in choices.items() if choice == "theirs")
        point = branch.head
        branch.is_merged = True
        if self.columns(self.main) != columns:
            self.fail(f"the columns of main are {self.columns(self.main)}")
        known = self.main.head
        self.note(
            self.main,
            rows,
            appended=frozenset(part for part, done in did.items() if done is Did.APPENDED),
            overwrote=theirs | {part for part, done in did.items() if done is Did.OVERWROTE},
            merged=(branch.name, point),
            theirs=theirs,
        )
        if self.main.head is not known:
            self.taken_columns[branch.name] = self.columns(branch)
            head = self.main.head
            same = {part for part in head.overwrote if known.files.get(part) == head.files.get(part)}
            head.overwrote -= same - theirs  # replaced by just the files that were there
        self.note(branch, branch.head.rows)
        self.check(self.main)

    def part_of(self, conflict):
        """The partition of a conflict as the oracle calls it."""
        if self.partitions == [WHOLE]:
            return WHOLE
        value = conflict.partition.removeprefix("p=")
        return None if value == DEFAULT_PARTITION_NAME else value

    # What is known

    def columns(self, line):
        """Name and type of the columns by the ids of their fields, but for those that never change."""
        return _columns(self.table(line).schema.fields)

    def table(self, line):
        return self.root if line is self.main else self.root.branch(line.name)

    def some_partitions(self):
        return self.rng.sample(self.partitions, self.rng.randint(1, min(2, len(self.partitions))))

    def new_rows(self, line, parts, most=3):
        """Rows with values in all columns of today, and their ids by partition."""
        fields = self.table(line).schema.fields
        added = {}
        for part in parts:
            count = self.rng.randint(min(1, most), most)
            if count:
                added[part] = tuple(range(self.next_row, self.next_row + count))
            self.next_row += count
        pairs = [(row, part) for part, ids in added.items() for row in ids]
        columns = {}
        for f in fields:
            if f.name == "id":
                columns[f.name] = pa.array([row for row, _ in pairs], pa.int64())
            elif f.name == "p":
                columns[f.name] = pa.array([None if p == WHOLE else p for _, p in pairs], pa.string())
            else:
                columns[f.name] = pa.array([_value(row, f) for row, _ in pairs], pa.int64())
        for row, _ in pairs:
            self.values[row] = {f.id: _value(row, f) for f in fields if f.name not in ("id", "p")}
            self.written[line.name, row] = {frozenset(_columns(fields).items())}
        writer = self.table(line).writer()
        return pa.table(columns).cast(writer.schema), added

    def note(self, line, rows, **meaning):
        table = self.table(line)
        head = table.context.snapshots.head()
        if head.id == line.head.snapshot:
            return  # there was nothing to do
        rows = {part: ids for part, ids in rows.items() if ids}
        line.steps.append(Step(head.id, rows, self.live(table, head), **meaning))

    def live(self, table, head):
        """Names of the live files by partition."""
        context = table.context
        entries = context.manifests.entries(context.manifests.of_snapshot(head), only=_NAMES).live().df
        files = {}
        for row, name in entries.select("partition", "file_name").iter_rows():
            key = key_of_row(row, table.schema)
            part = WHOLE if self.partitions == [WHOLE] else key[0]
            files.setdefault(part, set()).add(name)
        return {part: frozenset(names) for part, names in files.items()}

    # What must hold

    def check(self, line, rows=None):
        """The table has exactly the rows that the oracle knows, with their values, and queues their order."""
        table = self.table(line)
        expected = line.head.rows if rows is None else rows
        found = table.scan().to_arrow()
        parts = found["p"].to_pylist() if self.partitions != [WHOLE] else [WHOLE] * len(found)
        by_part = {}
        for row, part in zip(found["id"].to_pylist(), parts, strict=True):
            by_part.setdefault(part, []).append(row)
        wanted = {part: sorted(ids) for part, ids in expected.items() if ids}
        if {part: sorted(ids) for part, ids in by_part.items()} != wanted:
            self.fail(f"{line.name} has {by_part}, the oracle {expected}")
        ids = found["id"].to_pylist()
        for f in table.schema.fields:
            if f.name not in ("id", "p"):
                values = [self.values[row].get(f.id) for row in ids]
                if found[f.name].to_pylist() != values:
                    self.fail(f"{line.name}: column {f.name} is {found[f.name].to_pylist()}, not {values}")

        if self.is_queue:
            self.check_order(line)

    def check_order(self, line):
        """In each bucket of a queue the rows stand as they were committed, merged ones after those that main had."""
        places = {row: place for ids in line.head.rows.values() for place, row in enumerate(ids)}
        buckets = {}
        for (part, bucket, _), ids in self.rows_of_files(line).items():
            buckets.setdefault((part, bucket), []).extend(ids)
        for bucket, ids in buckets.items():
            if ids != sorted(ids, key=places.__getitem__):
                self.fail(f"{line.name}: bucket {bucket} has {ids}, the oracle {line.head.rows}")

    def check_fence(self, branch):
        """No file of a branch holds rows from both sides of what main has of it.

        But for partitions that it overwrote since, by a rollback perhaps: a merge takes these as a whole.
        """
        points = [branch.steps[0], *(step.merged[1] for step in branch.merges(self.main))]
        parts = {row: part for part, rows in branch.head.rows.items() for row in rows}
        for file, ids in self.rows_of_files(branch).items():
            for point in points:
                old = {row for rows in point.rows.values() for row in rows}
                is_whole = any(step.did(parts[ids[0]]) is Did.OVERWROTE for step in branch.all_since(point))
                if len({row in old for row in ids}) > 1 and not is_whole:
                    self.fail(f"{branch.name}: {file} holds rows {ids}, of which {old & {*ids}} are old")

    def rows_of_files(self, line):
        """Ids of the rows of each live file by partition row, bucket and path, as they are read."""
        table = self.table(line)
        context = table.context
        live = context.manifests.entries(context.manifests.of_snapshot(table.snapshot)).live().df
        live = live.with_columns(path=bucket_folders(live, table.schema) + "/" + live["file_name"])
        live = live.sort("min_sequence_number", maintain_order=True).select("partition", "bucket", "path")
        files = {
            place: pq.read_table(io.BytesIO(context.storage.get(place[2])), pre_buffer=False)
            for place in live.iter_rows()
        }
        return {place: rows.column("id").to_pylist() for place, rows in files.items()}

    def fail(self, what):
        raise Wrong(f"seed {self.seed}: {what}\n" + "\n".join(self.told))


def _columns(fields):
    return {f.id: (f.name, str(f.type)) for f in fields if f.name not in ("id", "p")}


def _value(row, field):
    return row * 1000 + field.id % 4096 * 8 + field.id // 4096


_NAMES = ("kind", "partition", "bucket", "level", "file_name")


def _joined(rows, added):
    return {**rows, **{part: (*rows.get(part, ()), *ids) for part, ids in added.items()}}
