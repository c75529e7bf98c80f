"""A random warehouse of tables and jobs that knows of every row where it comes from.

Whatever happens happens to real tables. The graph only remembers, of every row by its number, which commit brought it to
where it was read and from which commits it was derived: so it says what is upstream and downstream of a commit without
any of the rules by which lineage finds that out. What tables contain it reads from them after each step.

All rows of a commit are derived from all that its job read, and no commit loses all its rows by overwrites of single
partitions: so what is true of commits is true of rows, and the other way round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch import CommitConflictError, InvalidInputError, Lake, NotFoundError
from anabranch.lineage.model import TableInput
from anabranch.lineage.recording import aside
from anabranch.storage.open import open_storage
from anabranch.streaming.offsets import Position
from anabranch.table import Table
from tests.support.chance import Chance
from tests.support.tables import ids_of

Mark = tuple[str, int]
"""A commit: the identity of its branch, and its id."""
Instance = tuple[int, Mark]
"""A row, and the commit that brought it to where it was read: its own, or a merge."""

PARTITIONS = 3


@dataclass
class Branch:
    """A branch that is there."""

    table: str
    uuid: str
    name: str
    """By which it is opened."""
    known: int
    """Id of its newest snapshot that was looked at."""
    is_overwritten: bool = False
    """Whether it took away rows that main has: merging that is an overwrite of what main has of them, and of others."""
    is_merged: bool = False
    is_sealed: bool = False
    """Whether it was main."""


@dataclass
class Graph:
    """Tables, jobs, and what became of rows."""

    seed: int
    url: str
    size: int = 5
    rng: random.Random = field(init=False)
    content: dict[Mark, dict[int, Mark]] = field(default_factory=dict)
    """What a branch contained at each of its own snapshots: rows, and the commits that brought them."""
    rows: dict[Mark, set[int]] = field(default_factory=dict)
    """What commits brought."""
    marks: dict[Instance, frozenset[Mark]] = field(default_factory=dict)
    """The commits that a row comes from, by whom it was brought included."""
    direct: dict[Mark, set[Mark]] = field(default_factory=dict)
    """The commits that a commit took in."""
    jobs: dict[Mark, str] = field(default_factory=dict)
    merges: set[Mark] = field(default_factory=set)
    forks: dict[str, Mark] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    """Identity of the branch that is main, by table."""
    done: dict[str, int] = field(default_factory=dict)
    """How often each step was done: a graph in which nothing happens shows nothing."""
    reached: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """How far jobs have read their sources, by job and table: branch and snapshot."""
    ends: dict[Mark, dict[str, tuple[str, int]]] = field(default_factory=dict)
    """How far the job of a commit had read each of its sources by then."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.lake = Lake(open_storage(self.url), runtime=Chance(self.seed, (0, 1, 1, 5)).runtime)
        self._next_row = self._next_name = 0
        self._overwritten: dict[str, set[int]] = {}
        self._restored: set[Mark] = set()
        self._compacted: set[str] = set()
        self.partitioned = {f"db.t{i}": self.rng.random() < 0.4 for i in range(self.size)}
        for name, is_partitioned in self.partitioned.items():
            table = self.lake.create_table(
                name, "id BIGINT NOT NULL, p INT NOT NULL", partition_by=["p"] if is_partitioned else ()
            )
            self.main[name] = table.branch_uuid
            self.branches[table.branch_uuid] = Branch(name, table.branch_uuid, name, 0)

    def run(self, steps: int) -> None:
        """Let so many things happen."""
        weighted = [
            (self.arrival, 5),
            (self.batch, 8),
            (self.increment, 9),
            (self.stream, 4),
            (self.rewrite, 2),
            (self.partial, 2),
            (self.rollback, 2),
            (self.fork, 4),
            (self.merge, 5),
            (self.replace, 3),
            (self.replace_content, 2),
            (self.undo, 2),
            (self.compact, 4),
            (self.expire, 4),
            (self.delete, 2),
        ]
        steps_to_choose, weights = zip(*weighted, strict=True)
        for _ in range(steps):
            step = self.rng.choices(steps_to_choose, weights)[0]
            try:
                did = step()
            except (NotFoundError, CommitConflictError):  # expired, or in conflict: then it does not happen
                did = False
            except InvalidInputError as error:
                assert "AMBIGUOUS_SNAPSHOT" in error.message, error  # main was replaced: neither does it
                did = False
            self._look_everywhere()
            if did is not False:
                self.done[step.__name__] = self.done.get(step.__name__, 0) + 1

    # What happens

    def arrival(self) -> bool | None:
        """Rows from outside, of a job or of nobody."""
        branch = self._sink()
        if self.rng.random() < 0.5:
            self._write(branch, self._open(branch).append, set(), None)
            return None
        with self.lake.job("ingest") as job:
            job.read_from(
                "orders", kind="kafka", start={"orders": {"0": 0}}, end={"orders": {"0": self._next_row}}
            )
            self._write(branch, self._open(branch).append, set(), "ingest")
        return None

    def batch(self) -> bool | None:
        """A job that reads tables as they are, or were."""
        sources = [self._any() for _ in range(self.rng.choice((1, 1, 2)))]
        sinks = [self._sink() for _ in range(self.rng.choice((1, 1, 1, 2)))]
        job = f"batch-{self.rng.randrange(4)}"
        with self.lake.job(job):
            read = set().union(*(self._read_state(branch) for branch in sources))
            if not read:
                return False
            for sink in sinks:
                is_whole = self.rng.random() < 0.3
                table = self._open(sink)
                self._write(sink, table.replace if is_whole else table.append, read, job)
                sink.is_overwritten |= is_whole
        return None

    def rewrite(self) -> bool | None:
        """A job that replaces a table by what it makes of it."""
        branch = self._sink()
        with self.lake.job("rewrite"):
            read = self._read_state(branch)
            if not read:
                return False
            self._write(branch, self._open(branch).replace, read, "rewrite")
            branch.is_overwritten = True
        return None

    def increment(self) -> bool | None:
        """A job that reads what was added since it last did."""
        number = self.rng.randrange(6)
        job = f"increment-{number}"
        own = random.Random(self.seed * 100 + number)
        source, sink = self.branches[self.main[own.choice(list(self.main))]], own.choice(list(self.main))
        read = self._read_changes(job, source)
        if not read:
            return False
        with self.lake.job(job) as run:
            run.register(read[1])
            target = self.branches[self.main[sink]]
            self._write(target, self._open(target).append, read[0], job)
        return None

    def stream(self) -> bool | None:
        """A query that begins with a whole table and goes on with what is added, on any branch."""
        source, sink = self._any(), self._sink()
        ids = self._ids(source)
        if not ids:
            return False
        first = self.rng.choice(ids)
        last = self.rng.choice([number for number in ids if number >= first])
        table = self._open(source)
        read = self._instances(
            source, first, table.at(_version(table, first)).scan(columns=["id"]).to_arrow()
        )
        read |= self._added(source, first, last)
        if not read:
            return False
        start = Position(first, self._stamp(source, first), files=0, full=True)
        taken = TableInput(
            table.name, table.table_uuid, source.uuid, start, Position(last, self._stamp(source, last))
        )
        with self.lake.job("stream") as run:
            run.register(taken)
            self._write(sink, self._open(sink).append, read, "stream")
        return None

    def partial(self) -> bool | None:
        """A job that overwrites one partition, each partition of a table once."""
        branch = self._sink()
        used = self._overwritten.setdefault(branch.table, set())
        left = [p for p in range(PARTITIONS - 1) if p not in used]
        source = self._any()
        if not self.partitioned[branch.table] or not left or not branch.known:
            return False
        with self.lake.job("partial"):
            read = self._read_state(source)
            if not read:
                return False
            table = self._open(branch)
            self._write(branch, lambda rows: table.overwrite(rows, {"p": left[0]}), read, "partial", left[:1])
        used.add(left[0])
        return None

    def rollback(self) -> bool | None:
        branch = self._sink()
        ids = self._ids(branch)
        if len(ids) < 2:
            return False
        target = self.rng.choice(ids[:-1])
        before = self._at(branch, target)
        self._open(branch).rollback(f"snapshot.{target}")
        fork = self.forks.get(branch.uuid, ("", 0))[1]
        branch.is_overwritten |= branch.is_merged or target < fork
        self._look(branch, lambda row, number: before[row], restores=True)
        return None

    def fork(self) -> bool:
        table = self.rng.choice(list(self.main))
        main = self.branches[self.main[table]]
        ids = self._ids(main)
        if not ids:
            return False
        at = self.rng.choice(ids[-3:])
        name = f"b{self._next_name}"
        self._next_name += 1
        self._open(main).create_branch(name, f"g-{name}", snapshot=f"snapshot.{at}")
        made = self.lake.table(f"{table}$branch_{name}")
        self.forks[made.branch_uuid] = self._own(main.uuid, at)
        self.branches[made.branch_uuid] = Branch(table, made.branch_uuid, made.name, at)
        return True

    def merge(self) -> bool | None:
        branch = self._side()
        if branch is None or branch.is_overwritten:
            return False
        if branch.known == self.forks[branch.uuid][1]:
            self._derive(branch)
        main = self.branches[self.main[branch.table]]
        self._open(main).merge_branch(branch.name.partition("$branch_")[2], allow_source_overlap=True)
        self._look_everywhere(but=main)
        theirs = self._at(branch, branch.known)

        def bring(row: int, number: int) -> Mark:
            mark = (main.uuid, number)
            self.marks[row, mark] = self.marks[row, theirs[row]] | {mark}
            self.direct.setdefault(mark, set()).add(theirs[row])
            self.merges.add(mark)
            self.jobs[mark] = f"merge-branch {branch.name.partition('$branch_')[2]}"
            return mark

        branch.is_merged = True
        return self._look(main, bring) > 0

    def replace(self) -> bool | None:
        branch = self._side()
        if branch is None:
            return False
        old = self.branches[self.main[branch.table]]
        self._open(old).replace_main_branch(branch.name.partition("$branch_")[2], force=True)
        self._main_is_now(branch.table)
        return None

    def replace_content(self) -> bool | None:
        branch = self._side()
        if branch is None or branch.is_merged:
            return False
        if branch.known == self.forks[branch.uuid][1]:
            self._derive(branch)
        main = self.branches[self.main[branch.table]]
        theirs = self._at(branch, branch.known)
        self._open(main).replace_main_branch(branch.name.partition("$branch_")[2], mode="commit", force=True)
        return self._look(main, lambda row, number: theirs[row], restores=True) > 0

    def undo(self) -> bool | None:
        replaced = sorted({branch.table for branch in self.branches.values() if branch.is_sealed})
        if not replaced:
            return False
        table = self.rng.choice(replaced)
        self.lake.table(table).undo_replace()
        self._main_is_now(table)
        return None

    def compact(self) -> bool:
        branch = self._sink()
        before = branch.known
        self._open(branch).compact(full=True)
        self._look(branch, None)
        return branch.known > before

    def expire(self) -> bool:
        branch = self._any()
        return bool(
            self._open(branch).expire_snapshots(retain_max=2, retain_min=1, older_than=2**53).snapshots
        )

    def delete(self) -> bool | None:
        branch = self._side()
        if branch is None:
            return False
        self.lake.table(branch.table).delete_branch(branch.name.partition("$branch_")[2])
        del self.branches[branch.uuid]
        return None

    # What is asked

    @property
    def commits(self) -> list[Mark]:
        """All commits that brought rows, also those that have expired."""
        return sorted(mark for mark, rows in self.rows.items() if rows)

    def upstream(self, asked: Iterable[Mark]) -> set[Mark]:
        """All that the rows of commits come from, themselves included."""
        return set().union(*(self.marks[row, mark] for mark in asked for row in self.rows.get(mark, ())))

    def downstream(self, asked: Iterable[Mark]) -> set[Mark]:
        """All commits that brought rows which come from these."""
        wanted = set(asked)
        return {
            mark
            for mark, rows in self.rows.items()
            if any(not wanted.isdisjoint(self.marks[row, mark]) for row in rows)
        }

    def flows(self, commits: set[Mark], sources: set[Mark]) -> dict[tuple[str, str, str, bool], int]:
        """How many of some commits took from others, by the branches and the job."""
        found: dict[tuple[str, str, str, bool], int] = {}
        for mark in commits:
            for source in {taken[0] for taken in self.direct.get(mark, set()) & sources}:
                key = (source, mark[0], self.jobs[mark], mark in self.merges)
                found[key] = found.get(key, 0) + 1
        return found

    def history(self, branch: str) -> list[Mark]:
        """All commits that a branch has or had."""
        return [self._own(branch, number) for number in range(1, self.branches[branch].known + 1)]

    def own(self, branch: str, number: int) -> Mark:
        """A commit by the branch that it was made on."""
        return self._own(branch, number)

    # How it is done

    def _write(
        self,
        branch: Branch,
        put: Callable[[pa.Table], Any],
        read: set[Instance],
        job: str | None,
        partitions: Iterable[int] = range(PARTITIONS),
    ) -> None:
        ids = [(self._next_row + i, p) for i, p in enumerate(partitions)]
        self._next_row += len(ids)
        put(pa.table({"id": [i for i, _ in ids], "p": pa.array([p for _, p in ids], pa.int32())}))
        origins = frozenset().union(*(self.marks[one] for one in read))

        def carry(row: int, number: int) -> Mark:
            mark = (branch.uuid, number)
            self.marks[row, mark] = origins | {mark}
            self.direct[mark] = {carrier for _, carrier in read}
            if job is not None:
                self.jobs[mark] = job
                self.ends[mark] = {
                    source: end for (of_job, source), end in self.reached.items() if of_job == job
                }
            return mark

        assert self._look(branch, carry) == len(ids), "what was written is there"

    def _derive(self, branch: Branch) -> None:
        """A job that appends to a branch what it makes of another one."""
        with self.lake.job("derive"):
            self._write(branch, self._open(branch).append, self._read_state(self._any()), "derive")

    def _read_state(self, branch: Branch) -> set[Instance]:
        ids = self._ids(branch)
        if not ids:
            return set()
        table, number = self._open(branch), ids[-1]
        if self.rng.random() < 0.3:
            number = self.rng.choice(ids)
            table = table.at(_version(table, number))
        return self._instances(branch, number, table.scan(columns=["id"]).to_arrow())

    def _read_changes(self, job: str, source: Branch) -> tuple[set[Instance], TableInput] | None:
        """What is new of a source for a job, which remembers how far it read."""
        ids = self._ids(source)
        if not ids:
            return None
        branch, after = self.reached.get((job, source.table), (source.uuid, ids[0] - 1))
        if branch != source.uuid:  # main was replaced: it goes on where the new one stands
            after = ids[-1]
        through = self.rng.choice([number for number in ids if number >= after] or [after])
        self.reached[job, source.table] = (source.uuid, through)
        read = self._added(source, after, through)
        if not read:
            return None
        table = self._open(source)
        start = Position(after, self._stamp(source, after) if after else None)
        end = Position(through, self._stamp(source, through))
        return read, TableInput(table.name, table.table_uuid, source.uuid, start, end)

    def _added(self, source: Branch, after: int, through: int) -> set[Instance]:
        """What snapshots added, one by one, as a stream delivers it that takes what overwrites add."""
        table, read = self._open(source), set()
        for number in range(after + 1, through + 1):
            if self._own(source.uuid, number) in self._restored and source.table in self._compacted:
                raise NotFoundError("rows may come again only because files were rewritten")
            rows = table.changes(number - 1, number, on_overwrite="added", columns=["id"]).to_arrow()
            read |= self._instances(source, number, rows)
        return read

    def _instances(self, branch: Branch, number: int, rows: pa.Table) -> set[Instance]:
        carriers = self._at(branch, number)
        return {(row, carriers[row]) for row in rows["id"].to_pylist()}

    def _look_everywhere(self, but: Branch | None = None) -> None:
        """Nothing may have come to a branch unseen; what rewrites or seals is looked at."""
        for branch in self.branches.values():
            if branch is not but:
                self._look(branch, None)

    def _look(
        self, branch: Branch, carry: Callable[[int, int], Mark] | None, *, restores: bool = False
    ) -> int:
        """See what the newest snapshots of a branch contain; how many rows came to it."""
        table, came = self._open(branch), 0
        head = table.context.snapshots.head()
        for number in range(branch.known + 1, 0 if head is None else head.id + 1):
            before = self._at(branch, number - 1)
            with aside():  # no job reads here
                there = ids_of(table.at(_version(table, number)))
            new = [row for row in there if row not in before]
            assert not new or carry is not None, f"rows {new} came to {branch.name} unseen"
            # What is brought back is as it was, also where it was there all along.
            if restores:
                self._restored.add((branch.uuid, number))
            elif not new:  # or sealed, or fenced, which looks like it
                self._compacted.add(branch.table)
            stays = [] if restores else [row for row in there if row in before]
            now = {row: before[row] for row in stays}
            for row in there if restores else new:
                now[row] = carry(row, number)
                if now[row] == (branch.uuid, number):
                    self.rows.setdefault((branch.uuid, number), set()).add(row)
            came += len(new)
            self.content[branch.uuid, number] = now
            branch.known = number
        return came

    def _main_is_now(self, table: str) -> None:
        """After a replacement or its undoing: which branch is main, and what the others are called."""
        now = self.lake.table(table).branch_uuid
        old = self.branches[self.main[table]]
        if now == old.uuid:
            return
        self.main[table] = now
        old.name = next(
            (
                f"{table}$branch_{name}"
                for name in (*self.lake.table(table).branches(), *(f"main@{i}" for i in range(9, 0, -1)))
                if self._uuid_of(f"{table}$branch_{name}") == old.uuid
            ),
            old.name,
        )
        self.branches[now].name, self.branches[now].is_sealed = table, False
        old.is_sealed = True

    def _uuid_of(self, name: str) -> str | None:
        try:
            return self.lake.table(name).branch_uuid
        except NotFoundError:
            return None

    def _open(self, branch: Branch) -> Table:
        return self.lake.table(branch.name)

    def _any(self) -> Branch:
        return self.rng.choice(list(self.branches.values()))

    def _sink(self) -> Branch:
        """A branch that can be written."""
        return self.rng.choice([one for one in self.branches.values() if not one.is_sealed])

    def _side(self) -> Branch | None:
        """A branch that is not main, and never was."""
        others = [
            one for one in self.branches.values() if one.uuid != self.main[one.table] and not one.is_sealed
        ]
        if not others and self.fork():
            others = [list(self.branches.values())[-1]]
        return self.rng.choice(others) if others else None

    def _ids(self, branch: Branch) -> list[int]:
        """Its snapshots that are there, without a gap up to the newest."""
        table = self._open(branch)
        there = table.context.snapshots.ids()
        return [number for i, number in enumerate(there) if there[-1] - number == len(there) - 1 - i]

    def _stamp(self, branch: Branch, number: int) -> str | None:
        found = self._open(branch).context.snapshots.find(number)
        return None if found is None else found.stamp

    def _own(self, branch: str, number: int) -> Mark:
        while (fork := self.forks.get(branch)) is not None and number <= fork[1]:
            branch = fork[0]
        return (branch, number)

    def _at(self, branch: Branch, number: int) -> dict[int, Mark]:
        return self.content.get(self._own(branch.uuid, number), {})


def _version(table: Table, number: int) -> str:
    """A snapshot by its number, which after a replacement of main may have been two."""
    return f"main.snapshot.{number}" if table.context.main_generation else f"snapshot.{number}"
