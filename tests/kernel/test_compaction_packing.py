"""Packing sizes into tasks: what is packed pays off, comes to an end, and never reorders a queue."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import OptionError
from anabranch.kernel.compaction.packing import (
    LEFT_OUT,
    OPEN_COST,
    PackingLimits,
    Queue,
    pack,
    pack_queue,
    pack_queue_end,
    pack_queue_fully,
    pack_rest,
)

MB = 1 << 20
LIMITS = PackingLimits(target=100 * MB, min_files=5, max_files=20)
SMALL = st.integers(0, 70 * MB - 1)
ANY = st.one_of(SMALL, st.integers(70 * MB, 300 * MB))


def queue_of(sizes, *, rows=1, kinds=()):
    firsts = [i * rows for i in range(len(sizes))]
    return Queue(sizes, firsts, [rows] * len(sizes), kinds)


def kinds_of(draw, count):
    return draw(st.lists(st.sampled_from([0, 0, 0, 1, LEFT_OUT]), min_size=count, max_size=count))


@st.composite
def queues(draw):
    sizes = draw(st.lists(ANY, max_size=80))
    rows = draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    firsts, reached = [], 0
    for count in rows:
        # Sometimes a writer gives out too few numbers, sometimes a rollback leaves a gap.
        firsts.append(reached)
        reached += draw(st.sampled_from([count, count, count, 0, 1, count + 3]))
    return Queue(sizes, firsts, rows, kinds_of(draw, len(sizes)))


def test_options_say_when_files_are_worth_a_task():
    limits = PackingLimits.of({"target-file-size": "10 mb", "compaction.min.file-num": "3"})
    assert (limits.target, limits.small, limits.min_files, limits.max_files) == (10 * MB, 7 * MB, 3, 50)
    assert PackingLimits.of({}).target == 256 * MB
    with pytest.raises(OptionError, match=r"compaction\.max\.file-num"):
        PackingLimits.of({"compaction.max.file-num": "0"})


def test_one_file_is_never_a_task():
    limits = PackingLimits.of({"compaction.min.file-num": "1", "compaction.max.file-num": "1"})
    assert pack([MB], limits) == []
    assert pack([MB, MB], limits) == [(0, 2)]


def test_files_that_reach_the_target_are_a_task_if_they_are_enough():
    assert pack([25 * MB] * 4, LIMITS) == []
    assert pack([25 * MB] * 5, LIMITS) == [(0, 5)]
    assert pack([20 * MB] * 4, LIMITS) == []


def test_so_many_files_are_a_task_whatever_their_size():
    assert pack([1] * 19, LIMITS) == []
    assert pack([1] * 41, LIMITS) == [(0, 20), (20, 40)]


def test_a_heavy_file_is_not_rewritten_for_a_few_light_ones():
    assert pack([1] * 19 + [30 * MB], LIMITS) == []
    assert pack([1] * 20 + [30 * MB], LIMITS) == [(0, 20)]
    assert pack([2 * MB] * 19 + [30 * MB], LIMITS) == [(0, 20)]
    assert pack([1] * 19 + [OPEN_COST], LIMITS) == [(0, 20)], "files that cost as much to open as to read"


@given(st.lists(SMALL, max_size=200).map(sorted))
def test_what_is_packed_is_worth_it_and_what_is_not_waits_for_more(sizes):
    runs = pack(sizes, LIMITS)
    for run in runs:
        part = sizes[slice(*run)]
        assert (sum(part) >= LIMITS.target and len(part) >= LIMITS.min_files) or (
            len(part) >= LIMITS.max_files
        )
        assert sum(part[:-1]) < LIMITS.target or len(part) == LIMITS.min_files
    assert all(one.end == other.start for one, other in pairwise(runs)), "one after the other"
    rest = sizes[runs[-1].end if runs else 0 :]
    assert sum(rest) < LIMITS.target or len(rest) < LIMITS.min_files
    # So many light files always go; heavy ones that wait double in weight each, so they are few.
    assert len(rest) < LIMITS.max_files + 12


def test_a_queue_joins_files_that_follow_each_other():
    big = 90 * MB
    assert pack_queue(queue_of([big] + [22 * MB] * 4), LIMITS) == []
    assert pack_queue(queue_of([big] + [22 * MB] * 5), LIMITS) == [(1, 6)]
    assert pack_queue(queue_of([1] * 4 + [big] + [1] * 4), LIMITS) == []
    assert pack_queue(queue_of([1] * 5 + [big] + [1] * 9), LIMITS) == [(0, 5)], "nothing is added before big"
    assert pack_queue(queue_of([1] * 25), LIMITS) == [(0, 20)]


def test_almost_full_files_of_a_queue_are_left_alone():
    assert pack_queue(queue_of([60 * MB] * 10), LIMITS) == []
    assert pack_queue(queue_of([60 * MB] * 2 + [22 * MB] * 5), LIMITS) == [(2, 7)]


def test_the_heavy_file_in_front_is_not_rewritten_for_a_few_light_ones():
    assert pack_queue(queue_of([30 * MB] + [1] * 19), LIMITS) == []
    assert pack_queue(queue_of([30 * MB] + [1] * 20), LIMITS) == [(1, 21)]
    assert pack_queue(queue_of([30 * MB] + [1] * 8 + [90 * MB]), LIMITS) == [(1, 9)]


def test_a_run_whose_numbers_do_not_fit_goes_on_to_the_end_of_the_bucket():
    alike = Queue([1] * 25, [1] * 25, [3] * 25)
    assert pack_queue(alike, LIMITS) == [(0, 25)]
    big = Queue([1] * 25 + [90 * MB], [1] * 26, [3] * 26)
    assert pack_queue(big, LIMITS) == [], "no large file is rewritten for that"
    assert pack_queue_fully(big, LIMITS) == [(0, 26)]
    mostly_big = Queue([1, 1] + [90 * MB] * 3, [1] * 5, [3] * 5)
    assert pack_queue_fully(mostly_big, LIMITS) == []


def test_full_packing_takes_in_large_files_among_more_small_ones():
    big = 90 * MB
    assert pack_queue_fully(queue_of([big, big, 1, 1]), LIMITS) == [(2, 4)]
    assert pack_queue_fully(queue_of([big, 1, big, 1]), LIMITS) == [(1, 4)]
    assert pack_queue_fully(queue_of([1, big, big, 1]), LIMITS) == []
    assert pack_queue_fully(queue_of([1, 1, big, big, 1]), LIMITS) == [(0, 5)]
    assert pack_queue_fully(queue_of([1]), LIMITS) == []
    assert pack_queue_fully(queue_of([60 * MB] * 2), LIMITS) == [], "two files would be two again"


def test_a_long_run_is_cut_into_tasks_of_several_files():
    runs = pack_queue_fully(queue_of([10 * MB] * 500), LIMITS)
    assert runs[0].start == 0
    assert runs[-1].end == 500
    assert all(one.end == other.start for one, other in pairwise(runs))
    assert all(4 * LIMITS.target <= 10 * MB * (run.end - run.start) <= 16 * LIMITS.target for run in runs)


@pytest.mark.parametrize("packed", [pack, lambda sizes, limits: pack_queue(queue_of(sizes), limits)])
def test_a_stream_of_small_files_is_rewritten_a_few_times_only(packed):
    """A row of a small file is rewritten once for each doubling of the file it is in, not once a round."""
    limits = PackingLimits.of({})
    sizes, written, rewritten, most = [], 0, 0, 0
    for number in range(4000):
        sizes.append(MB // 8 if number % 3 else MB // 4)
        written += sizes[-1]
        sizes = sorted(sizes) if packed is pack else sizes
        for run in reversed(packed([s for s in sizes if packed is not pack or s < limits.small], limits)):
            rewritten += sum(sizes[slice(*run)])
            sizes[slice(*run)] = [sum(sizes[slice(*run)])]
        most = max(most, sum(size < limits.small for size in sizes))
    assert rewritten < 5 * written
    assert most < limits.max_files + 10


def test_what_remains_goes_without_what_is_too_heavy_for_it():
    assert pack_rest([1, 1], LIMITS) == [(0, 2)]
    assert pack_rest([1], LIMITS) == []
    assert pack_rest([], LIMITS) == []
    assert pack_rest([MB, MB, 50 * MB], LIMITS) == [(0, 2)]
    assert pack_rest([MB, 50 * MB], LIMITS) == []
    assert pack_rest([30 * MB, 50 * MB], LIMITS) == []
    assert pack_rest([60 * MB] * 2, LIMITS) == []
    assert pack_queue_end(queue_of([50 * MB, MB, MB]), LIMITS) == [(1, 3)]
    assert pack_queue_end(queue_of([50 * MB, MB]), LIMITS) == []


def test_the_end_of_a_bucket():
    big = 90 * MB
    assert pack_queue_end(queue_of([1, 1, big, 1, 1, 1]), LIMITS) == [(3, 6)]
    assert pack_queue_end(queue_of([1, 1, big]), LIMITS) == []
    assert pack_queue_end(queue_of([1, big, 1]), LIMITS) == []
    assert pack_queue_end(queue_of([]), LIMITS) == []


@given(queues())
def test_runs_of_a_queue_keep_its_order(queue):
    for packed in (pack_queue, pack_queue_fully, pack_queue_end):
        runs = packed(queue, LIMITS)
        assert all(one.end <= other.start for one, other in pairwise(runs))
        for run in runs:
            assert run.end - run.start >= 2
            assert len({queue.kind(i) for i in range(*run)}) == 1
            assert queue.kind(run.start) != LEFT_OUT
            assert queue.can_replace(run)
            if packed is not pack_queue_fully:
                assert max(queue.sizes[slice(*run)]) < LIMITS.small


@given(st.lists(ANY, max_size=80))
def test_full_packing_leaves_no_two_small_files_together_that_would_be_one(sizes):
    queue = queue_of(sizes)
    in_runs = {i for run in pack_queue_fully(queue, LIMITS) for i in range(*run)}
    for i, (one, other) in enumerate(pairwise(sizes)):
        if one + other <= LIMITS.target // 8:
            assert {i, i + 1} <= in_runs or _is_without_gain(sizes, i)


def _is_without_gain(sizes, i):
    """Whether the stretch around a pair would be as many files again."""
    start, end = i, i + 2
    while start and sizes[start - 1] < LIMITS.small:
        start -= 1
    while end < len(sizes) and sizes[end] < LIMITS.small:
        end += 1
    return not LIMITS.gains(end - start, sum(sizes[start:end]))
