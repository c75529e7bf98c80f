"""Effects of schema changes on the options of a table, and which options may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.errors import OptionError, SchemaError
from anabranch.format.schema.rules import (
    check_assigned,
    check_bounds,
    check_buckets,
    check_format,
    check_option_texts,
    is_assigned,
    refuse_primary_keys,
    split_names,
    with_assigned_key,
    with_own_full_compaction,
    without_key,
)
from anabranch.format.schema.watermark import (
    WATERMARK_PREFIX,
    check_watermark,
    watermark_renamed,
    watermark_settled,
)
from anabranch.options import (
    BUCKET,
    BUCKET_KEY,
    BUCKET_KEY_ASSIGNED,
    PARTITION_DEFAULT_NAME,
    PARTITION_LEGACY_NAME,
    TABLE_UUID,
    check_options,
)

if TYPE_CHECKING:
    from anabranch.format.schema.table_schema import TableSchema

_FIXED_BY_SNAPSHOTS = frozenset({
    BUCKET_KEY.key, "bucket-function.type", "data-file.path-directory", "type", "row-tracking.enabled",
    "data-evolution.enabled",
    # The folders of files are derived from these two; another value would look for the files elsewhere.
    PARTITION_DEFAULT_NAME.key, PARTITION_LEGACY_NAME.key,
})  # fmt: skip


def option_set(options: Mapping[str, str], key: str, value: str) -> dict[str, str]:
    """The options with one more; a bucket-key that somebody gives is no assigned one any more."""
    return {**(without_key(options) if key == BUCKET_KEY.key else options), key: value}


def options_renamed(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options, those about the column `old` made to be about `new`. Raises `SchemaError`."""
    prefix = f"fields.{old}."
    renamed = {
        f"fields.{new}.{key.removeprefix(prefix)}" if key.startswith(prefix) else key: value
        for key, value in watermark_renamed(options, old, new).items()
    }
    keys = split_names(options.get(BUCKET_KEY.key))
    if old not in keys:
        return renamed
    if split_names(new) != (new,):
        raise SchemaError(
            f"'{new}' cannot name a bucket key: the option bucket-key separates names by commas and blanks around them"
        )
    return {**renamed, BUCKET_KEY.key: ",".join(new if key == old else key for key in keys)}


def options_settled(old: TableSchema, new: TableSchema) -> dict[str, str]:
    """The options after all changes, with the key that a queue of one bucket has for other engines."""
    options = dict(new.options)
    if BUCKET_KEY.key not in options:
        options.pop(BUCKET_KEY_ASSIGNED.key, None)
    if BUCKET_KEY.key in old.options or old.bucket != 1:
        # A key that others left out is not added to what they made.
        options = with_assigned_key(options, new.fields, new.partition_keys)
    options = with_own_full_compaction(options)
    return watermark_settled(new.fields, options, before=old.options)


def check_changed_options(old: TableSchema, new: TableSchema, *, has_snapshots: bool) -> None:
    """Check what differs between the options of two versions; what others set is not judged.

    Raises:
        OptionError: an option cannot have that value, or cannot change any more.
        UnsupportedFeatureError: an option would need what this version does not implement.
    """
    changed = {key for key in {*old.options, *new.options} if old.options.get(key) != new.options.get(key)}
    given = {key: new.options[key] for key in changed if key in new.options}
    check_option_texts(given)
    check_options(given)
    check_format(given)
    refuse_primary_keys((), new.options)
    if changed & {BUCKET.key, BUCKET_KEY.key}:
        check_assigned(new.options)
    check_buckets(new.fields, new.partition_keys, new.options)
    check_bounds(new.options)
    if any(key.startswith(WATERMARK_PREFIX) for key in changed):
        check_watermark(new.fields, new.options)
    _refuse_ours(new, changed)
    fixed = differing_placement(old, new) if has_snapshots else None
    if fixed is not None:
        raise OptionError(
            f"option '{fixed}' is '{old.options.get(fixed)}' and cannot become '{new.options.get(fixed)}': the "
            "table has snapshots, and where their rows lie follows from it",
            hint="copy the rows into a new table that has the other value.",
        )


def differing_placement(old: TableSchema, new: TableSchema) -> str | None:
    """An option that says where rows lie and differs between two versions; None if files of both go together.

    The number of buckets may differ, because every file says how many there were.
    """
    if (old.bucket == -1) != (new.bucket == -1):
        return BUCKET.key
    changed = {key for key in _FIXED_BY_SNAPSHOTS if old.options.get(key) != new.options.get(key)}
    if is_assigned(old.options) or _key_ids(old) == _key_ids(new):
        changed.discard(BUCKET_KEY.key)  # it decided nothing, or renamed columns are the same columns
    return min(changed, default=None)


def _refuse_ours(new: TableSchema, changed: set[str]) -> None:
    if TABLE_UUID.key in changed:
        raise OptionError(f"option '{TABLE_UUID.key}' is the identity of the table and never changes")
    if changed & {BUCKET_KEY.key, BUCKET_KEY_ASSIGNED.key} == {BUCKET_KEY_ASSIGNED.key} and is_assigned(
        new.options
    ):
        raise OptionError(
            f"option '{BUCKET_KEY_ASSIGNED.key}' is written where a key is needed that nobody asked for",
            hint=f"set '{BUCKET_KEY.key}' instead.",
        )


def _key_ids(schema: TableSchema) -> list[int]:
    return [f.id for name in schema.bucket_keys for f in schema.fields if f.name == name]
