"""What a correction took out of a table: the commits that its replacements of main left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.cascade.naming import branch_name
from anabranch.errors import NotFoundError
from anabranch.kernel.context import TableContext
from anabranch.kernel.replacement.main import main_of
from anabranch.kernel.replacement.pointer import replacements
from anabranch.lineage.content import Contents, Segment, Segments, union, without
from anabranch.lineage.store import CommitStore
from anabranch.spec.main_pointer import former_main_name


@dataclass(frozen=True, slots=True)
class Correction:
    """A table whose main was replaced."""

    table: str
    main: TableContext
    """As it is now."""
    number: int
    """Of its last replacement."""
    taken_out: Segments
    """All commits that were in a main of the table and are in none any more."""
    former: Mapping[str, str]
    """What the mains that have them are called now, such as ``main@1``, by the identity of the branch."""

    @property
    def name(self) -> str:
        """What the branches of its cascade are called."""
        return branch_name(self.table, self.number)


def correction_of(context: TableContext, store: CommitStore) -> Correction:
    """What the replacements of a table's main took out. Raises `NotFoundError`: its main was never replaced.

    Where a table was corrected more than once, all of it is meant: what was derived from what the first one took out need
    not have been corrected since. What was taken back as main is in main.
    """
    main = main_of(context)
    known = replacements(main)
    if not known:
        raise NotFoundError(
            f"main of '{main.name}' was not replaced, so nothing was taken out that other tables may be made from",
            hint="correct it on a branch first, and put that in the place of main: replace-main-branch.",
        )
    contents = Contents(store)
    left: list[Segment] = []
    former: dict[str, str] = {}
    for pointer in known:
        replaced = pointer.replaced
        assert replaced is not None, "those that came to nothing are left out"
        segments = contents.history(replaced.old.uuid, replaced.fork.id + 1, replaced.head.id)
        former |= {segment.branch: former_main_name(pointer.generation) for segment in segments}
        left += segments
    head = main.snapshots.head()
    here = contents.history(main.branch_uuid, 1, 0 if head is None else head.id)
    return Correction(
        main.name,
        main,
        known[-1].generation,
        without(union(left), here),
        former,
    )
