"""Walks through histories that tables do not have every day: gaps, clocks that differ, and very long ones."""

from itertools import count

import pytest

from anabranch.errors import NotFoundError
from anabranch.lineage.commit import Commit, CommitRef, Line
from anabranch.lineage.content import Contents, Segment
from anabranch.lineage.memory import MemoryStore
from anabranch.lineage.model import Engine, LineageEntry, TableInput
from anabranch.lineage.questions.asked import AskedCommits, whole
from anabranch.lineage.questions.downstream import downstream
from anabranch.lineage.questions.order import components, longest_ways, topological, without_ways_back
from anabranch.lineage.questions.upstream import upstream
from anabranch.lineage.ranges import Ids
from anabranch.streaming.offsets import BEGINNING, Position
from tests.lineage.chains import numbered


def line(name, fork=None):
    table = name.partition("$")[0]
    return Line(table, name, f"db.{table}", name.partition("$")[2] or None, fork, "$" not in name)


def made(
    name, snapshot, *reads, base="before", kind="APPEND", time=None, merges=None, added=1, restores=False
):
    """A commit. Reads are (source, after, through), or (source, through) for a state."""
    if base == "before":
        base = CommitRef(name, snapshot - 1) if snapshot > 1 else None
    inputs = tuple(taken(*read) for read in reads)
    merged = None if merges is None else taken(*merges)
    entry = LineageEntry(f"job-{name}", None, None, Engine("test"), inputs, taken=merged)
    time = snapshot if time is None else time
    return Commit(
        name.partition("$")[0], name, snapshot, "", kind, time, 0, added, base, entry, restores=restores
    )


def taken(source, *ids):
    start = Position(ids[0], None) if len(ids) == 2 else BEGINNING
    return TableInput(
        source, source.partition("$")[0], source, start, Position(ids[-1], None, full=len(ids) == 1)
    )


def found(trace):
    return {dataset.name: dataset.snapshots for dataset in trace.datasets}


def down(store, name, text, **how):
    return found(downstream(store, numbered(store, name, text), **how))


def up(store, name, text, **how):
    return found(upstream(store, numbered(store, name, text), **how))


class TestGaps:
    """Snapshots 1 to 3 were removed by another engine before lineage saw them."""

    store = MemoryStore(
        [line("a"), line("b"), line("a$fix", CommitRef("a", 4))],
        [
            *(made("a", number) for number in (4, 5, 6)),
            made("a$fix", 7),
            made("b", 1, ("a", 5)),
            made("b", 2, ("a", 3, 4)),
            made("b", 3, ("a$fix", 7)),
            made("b", 4, ("a", 2)),
            made("b", 5, ("a", 9)),
        ],
    )

    def test_what_is_not_known_is_not_named(self):
        assert up(self.store, "b", "1") == {"db.a": ((4, 5),), "db.b": ((1, 1),)}
        assert up(self.store, "b", "4") == {"db.b": ((4, 4),)}
        assert up(self.store, "b", "5") == {"db.a": ((4, 6),), "db.b": ((5, 5),)}
        assert up(self.store, "b", "3") == {
            "db.a": ((4, 4),),
            "db.a$branch_fix": ((7, 7),),
            "db.b": ((3, 3),),
        }

    def test_what_is_asked_for_and_not_known_is_told(self):
        trace = downstream(self.store, numbered(self.store, "a", "2.."))
        assert found(trace) == {"db.a": ((4, 6),), "db.b": ((1, 3), (5, 5))}
        assert trace.problems == ("db.a, snapshots 2..3 had expired before lineage saw them",)
        with pytest.raises(NotFoundError, match="knows no snapshot 2 of 'db.a'"):
            numbered(self.store, "a", "2")

    def test_a_table_that_was_never_seen_is_named_as_its_readers_call_it(self):
        store = MemoryStore([line("b")], [made("b", 1, ("gone", 3, 7))])
        assert up(store, "b", "1") == {"gone": ((4, 7),), "db.b": ((1, 1),)}


def test_a_read_of_commits_without_rows_is_no_flow():
    store = MemoryStore(
        [line("a"), line("b")],
        [
            made("a", 1),
            made("a", 2, kind="COMPACT"),
            made("a", 3, added=0),
            made("b", 1, ("a", 0, 1)),
            made("b", 2, ("a", 1, 2)),
            made("b", 3, ("a", 2, 3)),
            made("b", 4, ("a", 0, 3), added=0),
        ],
    )
    for trace in (upstream(store, whole(store, "b")), downstream(store, whole(store, "a"))):
        assert trace.snapshots("db.a") == ((1, 1),)
        assert [(flow.source, flow.sink, flow.commits) for flow in trace.flows] == [("a", "b", 1)]
    assert found(downstream(store, whole(store, "a"))) == {"db.a": ((1, 1),), "db.b": ((1, 1),)}


class TestCycles:
    def ping_pong(self, times):
        """``a`` and ``b`` each take the newest commit of the other, one after the other."""
        own = [made("a", 1, time=0)]
        for number in range(1, 41):
            own.append(made("b", number, ("a", number - 1, number), time=next(times)))
            own.append(made("a", number + 1, ("b", number - 1, number), time=next(times)))
        return MemoryStore([line("a"), line("b")], own)

    @pytest.mark.parametrize("step", [1, 0, -1])
    def test_commits_are_found_whatever_clocks_say(self, step):
        store = self.ping_pong(count(1000, step))
        assert down(store, "a", "7") == {"db.a": ((7, 41),), "db.b": ((7, 40),)}
        assert up(store, "a", "7") == {"db.a": ((1, 7),), "db.b": ((1, 6),)}
        assert down(store, "a", "7", depth=3) == {"db.a": ((7, 8),), "db.b": ((7, 8),)}
        assert up(store, "a", "7", depth=3) == {"db.a": ((6, 7),), "db.b": ((5, 6),)}

    def test_places_in_a_cycle_are_those_of_the_first_mention(self):
        trace = downstream(self.ping_pong(count(1000)), numbered(self.ping_pong(count(1000)), "a", "7"))
        assert [(dataset.name, dataset.depth) for dataset in trace.datasets] == [("db.a", 0), ("db.b", 1)]
        assert [(flow.source, flow.sink, flow.commits) for flow in trace.flows] == [
            ("b", "a", 34),
            ("a", "b", 34),
        ]

    def test_a_step_ends_where_the_next_begins(self):
        """A merge brings to main what is asked about of the branch; who reads that is one step further."""
        store = MemoryStore(
            [line("a"), line("a$fix", CommitRef("a", 2)), line("b")],
            [
                *(made("a", number) for number in (1, 2)),
                made("a$fix", 3, base=CommitRef("a", 2)),
                made("a", 3, merges=("a$fix", 2, 3)),
                made("b", 1, ("a", 2, 3)),
            ],
        )
        near = {"db.a": ((2, 3),), "db.a$branch_fix": ((3, 3),)}
        assert down(store, "a$fix", "2..3", depth=1) == near
        assert down(store, "a$fix", "2..3", depth=2) == {**near, "db.b": ((1, 1),)}
        store = MemoryStore(
            [line("a"), line("a$fix", CommitRef("a", 2)), line("b")],
            [
                made("b", 1),
                made("a", 1, ("b", 0, 1)),
                made("a", 2),
                made("a$fix", 3, ("a", 0, 1), base=CommitRef("a", 2)),
            ],
        )
        near = {"db.a": ((1, 2),), "db.a$branch_fix": ((3, 3),)}
        assert up(store, "a$fix", "2..3", depth=1) == near
        assert up(store, "a$fix", "2..3", depth=2) == {**near, "db.b": ((1, 1),)}

    def test_a_merge_of_a_branch_that_was_rolled_back_before_its_fork(self):
        """The branch goes back to what main had, takes that in new again, and main reads of it."""
        fork = CommitRef("a", 3)
        store = MemoryStore(
            [line("a"), line("a$fix", fork), line("b")],
            [
                *(made("a", number) for number in (1, 2, 3)),
                made("a$fix", 4, base=None, kind="OVERWRITE"),
                made("a$fix", 5, base=CommitRef("a", 2), kind="OVERWRITE", restores=True),
                made("a", 4, base=None, kind="OVERWRITE"),
                made("a", 5, merges=("a$fix", 4, 5)),
                made("b", 1, ("a", 4, 5)),
            ],
        )
        assert up(store, "b", "1") == {"db.a": ((1, 2), (5, 5)), "db.b": ((1, 1),)}
        assert down(store, "a", "1") == {"db.a": ((1, 1), (5, 5)), "db.b": ((1, 1),)}


class TestLongHistories:
    def test_many_ranges_are_asked_for_at_once_and_stay_apart(self):
        """``b`` takes every commit of ``a``, and ``c`` every third of ``b``; ``d`` takes all of ``b``."""
        store = MemoryStore(
            [line("a"), line("b"), line("c"), line("d")],
            [
                *(made("a", number) for number in range(1, 301)),
                *(made("b", number, ("a", number - 1, number)) for number in range(1, 301)),
                *(made("c", number, ("b", 3 * number - 1, 3 * number)) for number in range(1, 101)),
                *(made("d", number, ("b", number - 1, number)) for number in range(1, 301)),
            ],
        )
        apart = tuple((number, number) for number in range(3, 301, 3))
        assert up(store, "c", "1..") == {"db.a": apart, "db.b": apart, "db.c": ((1, 100),)}
        thirds = AskedCommits("a", tuple(Segment("a", *one) for one in apart), "every third")
        assert found(downstream(store, thirds)) == {
            "db.a": apart,
            "db.b": apart,
            "db.c": ((1, 100),),
            "db.d": apart,
        }

    def test_a_short_question_does_not_look_at_a_long_history(self):
        asked = []

        class Watched(MemoryStore):
            def reads(self, sink, first, last):
                for read in super().reads(sink, first, last):
                    asked.append(read)
                    yield read

            def readers(self, source, first, last):
                for read in super().readers(source, first, last):
                    asked.append(read)
                    yield read

        store = Watched(
            [line("a"), line("b"), line("c")],
            [
                *(made("a", number) for number in range(1, 2001)),
                *(made("b", number, ("a", number - 1, number)) for number in range(1, 2001)),
                *(made("c", number, ("b", number - 1, number)) for number in range(1, 2001)),
            ],
        )
        assert down(store, "a", "1000..1004")["db.c"] == ((1000, 1004),)
        assert up(store, "c", "1000..1004")["db.a"] == ((1000, 1004),)
        assert len(asked) == 20

    def test_a_job_that_reads_all_it_wrote_does_not_look_again_and_again(self):
        looked = []

        class Watched(Contents):
            def taken(self, read):
                looked.append(read)
                return super().taken(read)

        size = 400
        store = MemoryStore(
            [line("a")], [made("a", number, ("a", number - 1)) for number in range(1, size + 1)]
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("anabranch.lineage.questions.walk.Contents", Watched)
            assert up(store, "a", str(size)) == {"db.a": ((1, size),)}
            assert down(store, "a", "1") == {"db.a": ((1, size),)}
        assert len(looked) < 5 * size


class TestContents:
    def test_chains(self):
        store = MemoryStore(
            [line("a"), line("a$fix", CommitRef("a", 2)), line("a$more", CommitRef("a$fix", 4))],
            [
                *(made("a", number) for number in (1, 2, 3)),
                made("a", 4, base=CommitRef("a$fix", 4), kind="OVERWRITE", restores=True),
                made("a", 5),
                made("a$fix", 3, base=CommitRef("a", 2)),
                made("a$fix", 4),
                made("a$more", 5, base=CommitRef("a$fix", 4)),
                made("a$more", 6, base=None, kind="OVERWRITE"),
            ],
        )
        contents = Contents(store)
        fix = [Segment("a$fix", 3, 4), Segment("a", 1, 2)]
        assert contents.content(CommitRef("a", 5)) == (Segment("a", 4, 5), *fix)
        assert contents.content(CommitRef("a$more", 5)) == (Segment("a$more", 5, 5), *fix)
        assert contents.content(CommitRef("a$more", 6)) == (Segment("a$more", 6, 6),)
        assert contents.content(CommitRef("a$more", 3)) == (Segment("a$fix", 3, 3), Segment("a", 1, 2))
        assert contents.content(CommitRef("a$more", 1)) == (Segment("a", 1, 1),)
        assert contents.content(CommitRef("a", 0)) == ()
        assert contents.history("a$more", 2, 5) == (
            Segment("a$more", 5, 5),
            Segment("a$fix", 3, 4),
            Segment("a", 2, 2),
        )
        assert contents.own(CommitRef("a$more", 2)) == CommitRef("a", 2)
        assert contents.reach("a") == {"a", "a$fix"}
        assert contents.reach("a$more") == {"a", "a$fix", "a$more"}

    def test_a_chain_that_leads_back_to_itself_ends(self):
        """Nobody makes such a history; a damaged one must not hang whoever asks."""
        ref = CommitRef("a", 3)
        store = MemoryStore(
            [line("a")],
            [made("a", number, base=ref, kind="OVERWRITE", restores=True) for number in (1, 2, 3)],
        )
        assert Contents(store).content(CommitRef("a", 2))


class TestIds:
    def test_they_are_joined_and_split_as_sets_are(self):
        ids = Ids([(5, 7), (1, 2), (3, 3), (10, 9)])
        assert list(ids) == [(1, 3), (5, 7)]
        ids.add(4, 4)
        assert list(ids) == [(1, 7)]
        ids.add(9, 9)
        ids.add(12, 15)
        ids.add(8, 13)
        assert list(ids) == [(1, 15)]
        assert ids.count == 15
        without = ids.without(Ids([(0, 1), (4, 5), (15, 20)]))
        assert list(without) == [(2, 3), (6, 14)]
        assert list(without.within(3, 7)) == [(3, 3), (6, 7)]
        assert [number for number in range(17) if number in without] == [2, 3, *range(6, 15)]
        assert without.meets(4, 6)
        assert not without.meets(4, 5)
        assert not without.meets(6, 5)
        assert without.covers(6, 14)
        assert not without.covers(3, 6)
        assert without.covers(9, 8)
        assert without.joined_over(Ids([(4, 5)])) == ((2, 14),)
        assert without.joined_over(Ids([(4, 4)])) == ((2, 3), (6, 14))
        assert Ids.of([3, 1, 2]) == Ids([(1, 3)])
        assert Ids.of([1]) != Ids.of([2])


class TestOrder:
    def test_components_come_before_what_they_reach(self):
        edges = {1: [2], 2: [3, 4], 3: [2, 5], 4: [5], 5: [5], 6: [1]}
        assert [sorted(group) for group in components([1], edges)] == [[1], [2, 3], [4], [5]]

    def test_longest_ways_without_ways_back(self):
        edges = {"a": ["b", "d"], "b": ["c"], "c": ["a", "d"], "d": []}
        kept = without_ways_back(["a"], edges)
        assert kept == {"a": ["b", "d"], "b": ["c"], "c": ["d"], "d": []}
        order = topological(kept, lambda node: (node,))
        assert order == ["a", "b", "c", "d"]
        assert longest_ways(order, kept) == {"a": 0, "b": 1, "c": 2, "d": 3}

    def test_ties_are_decided_by_name(self):
        assert topological({"z": ["b"], "a": [], "b": []}, lambda node: (node,)) == ["a", "z", "b"]


def test_whole_branches_have_what_they_began_with():
    store = MemoryStore([line("a"), line("a$fix", CommitRef("a", 2))], [made("a", i) for i in (1, 2, 3)])
    assert whole(store, "a$fix").segments == (Segment("a", 1, 2),)
