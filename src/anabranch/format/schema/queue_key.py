"""The bucket-key of a queue of one bucket whose user named none.

All rows of such a queue are in one bucket, so nothing has to decide between buckets. Engines of Paimon's 0.9
line nevertheless refuse to read or write a queue without a ``bucket-key``. Therefore the first column that can
be one is written down as the key when the table is created, and an option of ours remembers that nobody asked
for it: it orders nothing, follows when its column is dropped, and has to be chosen by a person before the queue
gets more buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.errors import OptionError
from anabranch.format.schema.rules import split_names
from anabranch.format.types.data_types import Field, is_atomic
from anabranch.options import BUCKET, BUCKET_KEY, BUCKET_KEY_ASSIGNED

_OPTIONS = frozenset({BUCKET_KEY.key, BUCKET_KEY_ASSIGNED.key})


def is_assigned(options: Mapping[str, str]) -> bool:
    """Whether the key in these options is there for other engines only."""
    return BUCKET_KEY_ASSIGNED.of(options) and BUCKET.of(options) == 1


def with_assigned_key(
    options: Mapping[str, str], fields: Sequence[Field], partition_keys: Sequence[str]
) -> dict[str, str]:
    """The options of a queue of one bucket, completed by a key if they have none and a column can be one."""
    if BUCKET.of(options) != 1 or BUCKET_KEY.key in options:
        return dict(options)
    for f in fields:
        if f.name not in partition_keys and is_atomic(f.type) and split_names(f.name) == (f.name,):
            return {**options, BUCKET_KEY.key: f.name, BUCKET_KEY_ASSIGNED.key: "true"}
    return dict(options)


def without_key(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with no key and no memory of one."""
    return {key: value for key, value in options.items() if key not in _OPTIONS}


def check_assigned(options: Mapping[str, str]) -> None:
    """Refuse more buckets by a key that nobody chose. Raises `OptionError`."""
    if not BUCKET_KEY_ASSIGNED.of(options) or is_assigned(options):
        return
    raise OptionError(
        f"a table with bucket = {BUCKET.of(options)} needs a 'bucket-key'; '{options.get(BUCKET_KEY.key)}' was "
        "only put there because some engines ask for one, and decides nothing while there is one bucket",
        hint=f"set 'bucket-key' as well, to the columns whose rows keep their order; "
        f"'{BUCKET_KEY_ASSIGNED.key}' is not for setting.",
    )
