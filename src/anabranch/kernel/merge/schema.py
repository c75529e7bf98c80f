"""Three-way merge of a branch's schema into main's, by field id: what one side changed is taken.

| change since the base      | merged                                                             |
|----------------------------|--------------------------------------------------------------------|
| added on one side          | taken in; NOT NULL is a conflict NOT_NULL_CLASH                     |
| dropped on one side        | dropped; if the other changed it, a conflict DROP_VS_CHANGE         |
| renamed on one side        | the new name; two new names are a conflict RENAME_CLASH             |
| retyped on one or both     | the wider type; if neither is, a conflict TYPE_CLASH                |
| nulls allowed on one side  | allowed; nulls forbidden on one side, a conflict NOT_NULL_CLASH     |
| two fields of one name     | conflict NAME_CLASH                                                |
| two fields of one id       | conflict FIELD_ID_CLASH; only branches of other engines have these  |
| another order of columns   | main's if main changed it, else the branch's                       |
| option, watermark          | the new value; two new values are a conflict OPTION_CLASH          |
| comment                    | the new one, main's if there are two: nothing depends on it        |
| partition keys, buckets    | must be the same: conflicts PARTITION_CLASH, BUCKET_CLASH          |

All conflicts are found at once. Nothing is read or written here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.errors import InvalidInputError, UnsupportedFeatureError
from anabranch.format.schema.diff import changes_between
from anabranch.format.schema.option_change import differing_placement
from anabranch.format.schema.rules import check_bounds, check_buckets, check_fields, check_partition_keys
from anabranch.format.schema.support import check_writable
from anabranch.format.schema.table_schema import NEWEST_VERSION, TableSchema
from anabranch.format.schema.watermark import check_watermark
from anabranch.format.types.data_types import walk_fields
from anabranch.kernel.log.field_ids import last_id_before
from anabranch.kernel.merge.columns import merge_columns, three_way
from anabranch.kernel.merge.conflict import MergeConflict
from anabranch.kernel.merge.options import merge_options
from anabranch.options import BUCKET


@dataclass(frozen=True)
class MergedSchema:
    """Result of merging a branch's schema into main's."""

    ours: TableSchema
    """Main's newest schema before."""
    schema: TableSchema
    """The next version; `ours` itself if the merge changes nothing. To be put as `numbered` returns it."""

    @property
    def changes(self) -> list[str]:
        """Changes of main's schema, in words; empty if none."""
        return changes_between(self.ours, self.schema)

    @property
    def needs_block(self) -> bool:
        """Whether main takes in ids of the branch's block, and so must continue in a block of its own."""
        return self.schema is not self.ours and self.schema.highest_field_id > self.ours.highest_field_id

    def numbered(self, block: int | None, *, time_millis: int) -> TableSchema:
        """Return the version to put.

        Args:
            block: one freshly reserved for main if `needs_block`, else None.
            time_millis: now, in milliseconds since the epoch.
        """
        assert (block is not None) == self.needs_block, "a block is reserved exactly if it is needed"
        highest = self.ours.highest_field_id if block is None else last_id_before(block)
        return replace(self.schema, highest_field_id=highest, time_millis=time_millis)


def merge_schemas(
    base: TableSchema, ours: TableSchema, theirs: TableSchema
) -> MergedSchema | list[MergeConflict]:
    """Merge a branch's schema into main's; return the result or all conflicts.

    Args:
        base: the common base: the schema of the fork, or of the branch head that main merged last.
        ours: main's newest schema.
        theirs: the branch's newest schema.
    """
    found: list[MergeConflict] = []
    _check_keys(ours, theirs, found)
    fields = merge_columns(base.fields, ours.fields, theirs.fields, found)
    options = merge_options(base, ours, theirs, fields, found)
    if found:
        return found
    comment = three_way(base.comment, ours.comment, theirs.comment, clash=ours.comment)
    names = {f.id: f.name for f in fields}
    merged = replace(
        ours,
        id=ours.id + 1,
        fields=fields,
        partition_keys=tuple(names.get(f.id, f.name) for f in ours.partition_fields),
        options=options,
        comment=comment,
        highest_field_id=max(ours.highest_field_id, *(f.id for f in walk_fields(fields))),
        version=NEWEST_VERSION,
    )
    if (fields, options, comment) == (ours.fields, dict(ours.options), ours.comment):
        return MergedSchema(ours, ours)
    _check_whole(merged, found)
    return found or MergedSchema(ours, merged)


def _check_keys(ours: TableSchema, theirs: TableSchema, found: list[MergeConflict]) -> None:
    """Check that files of both sides lie where one schema says."""
    mine, other = ([f.id for f in side.partition_fields] for side in (ours, theirs))
    if mine != other or ours.primary_keys != theirs.primary_keys:
        found.append(
            MergeConflict(
                "PARTITION_CLASH",
                f"main is partitioned by ({', '.join(ours.partition_keys)}), the branch by "
                f"({', '.join(theirs.partition_keys)})",
                "tables that are partitioned differently cannot be merged: copy the branch's rows.",
            )
        )
    differing = BUCKET.key if ours.bucket != theirs.bucket else differing_placement(ours, theirs)
    if differing is not None:
        found.append(
            MergeConflict(
                "BUCKET_CLASH",
                f"option '{differing}' is '{ours.options.get(differing)}' on main and "
                f"'{theirs.options.get(differing)}' on the branch: files of one do not lie where the other looks",
                "give both the same value, and overwrite the partitions that were written with another.",
            )
        )


def _check_whole(merged: TableSchema, found: list[MergeConflict]) -> None:
    """Check the merged schema as a whole: what each side allows alone may not go together."""
    try:
        check_fields(merged.fields)
        check_partition_keys(merged.fields, merged.partition_keys)
        check_buckets(merged.fields, merged.partition_keys, merged.options)
        check_bounds(merged.options)
        check_watermark(merged.fields, merged.options)
        check_writable(merged, path=None)
    except (InvalidInputError, UnsupportedFeatureError) as error:
        found.append(
            MergeConflict(
                "SCHEMA_CLASH",
                f"what main and the branch changed does not go together: {error.message}",
                error.hint or "change the schema of one of them.",
            )
        )
