"""Sets of snapshot ids as ranges: few if history is contiguous, however long it is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from anabranch.lineage.trace import Range


class Ids:
    """Ascending ranges that do not touch, each inclusive at both ends."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        """Take the union of ranges, in any order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(ranges):
            self.add(first, last)

    @classmethod
    def of(cls, ids: Iterable[int]) -> Ids:
        """Make a set of single ids, in any order."""
        return cls((number, number) for number in ids)

    def __repr__(self) -> str:
        return f"<Ids {', '.join(f'{a}..{b}' for a, b in self)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """Number of ranges."""
        return len(self._firsts)

    def __contains__(self, number: int) -> bool:
        return self.meets(number, number)

    @property
    def count(self) -> int:
        """Number of ids."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    @property
    def hull(self) -> Range:
        """The range from the smallest to the largest id; there must be one."""
        return self._firsts[0], self._lasts[-1]

    def meets(self, first: int, last: int) -> bool:
        """Whether any id of a range is in the set."""
        at = bisect_right(self._firsts, last) - 1
        return at >= 0 and first <= last and self._lasts[at] >= first

    def add(self, first: int, last: int) -> None:
        """Add a range; an empty one, which ends before it begins, changes nothing."""
        if first > last:
            return
        firsts, lasts = self._firsts, self._lasts
        # The usual cases: ids are found in ascending order.
        if not firsts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return
        if first == lasts[-1] + 1:
            lasts[-1] = last
            return
        start = bisect_left(lasts, first - 1)
        end = bisect_right(firsts, last + 1)
        if start < end:
            first, last = min(first, firsts[start]), max(last, lasts[end - 1])
        firsts[start:end] = [first]
        lasts[start:end] = [last]

    def update(self, other: Iterable[Range]) -> None:
        """Add ranges."""
        for first, last in other:
            self.add(first, last)

    def within(self, first: int, last: int) -> Iterator[Range]:
        """Yield the parts of this set within a range."""
        at = bisect_left(self._lasts, first)
        while at < len(self._firsts) and self._firsts[at] <= last:
            yield max(first, self._firsts[at]), min(last, self._lasts[at])
            at += 1

    def without(self, other: Ids) -> Ids:
        """Return the ids that are only in this set."""
        left = Ids()
        for first, last in self:
            at = first
            for begin, end in other.within(first, last):
                left.add(at, begin - 1)
                at = end + 1
            left.add(at, last)
        return left

    def covers(self, first: int, last: int) -> bool:
        """Whether all ids of a range are in the set; an empty range is covered."""
        at = bisect_right(self._firsts, first) - 1
        return first > last or (at >= 0 and self._lasts[at] >= last)

    def joined_over(self, gaps: Ids) -> tuple[Range, ...]:
        """Return the ranges, joined where only ids of `gaps` lie between two of them."""
        joined: list[Range] = []
        for first, last in self:
            if joined and gaps.covers(joined[-1][1] + 1, first - 1):
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        return tuple(joined)
