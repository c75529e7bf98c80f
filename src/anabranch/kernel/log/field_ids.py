"""Field ids that never collide between columns added on different branches at the same time.

Field ids are cut into blocks. Block 0 belongs to the branch in the table's own folder; a new branch
reserves another one for itself by a file ``branch/FIELD-IDS-<k>``, write-once. Engines number a new column after
`highestFieldId` of the newest schema, so a branch begins with a schema in which that is the last number before its
block: every engine then stays inside. We reserve another block before counting past the end of one.
"""

from __future__ import annotations

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import BRANCH_FOLDER, numbered_id
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.kernel.log.context import TableContext

BLOCK_SIZE = 4096
_PREFIX = "FIELD-IDS-"
_VERSION = 1


def reserve_block(context: TableContext, owner: str) -> int:
    """Reserve a block of field ids for `owner` and return its number; its ids are above all used so far.

    Args:
        context: the table, on main or on the owner's branch.
        owner: uuid of the branch. A block reserved by an attempt that died leaves a harmless gap.
    """
    taken = [
        number
        for info in context.storage.list(BRANCH_FOLDER)
        if (number := numbered_id(info.path.rpartition("/")[2], _PREFIX)) is not None
    ]
    newest = context.schemas.latest()
    # Tables of very many columns use further blocks without having reserved them.
    in_use = 0 if newest is None else max(newest.highest_field_id, 0) // BLOCK_SIZE
    number = max(taken, default=0)
    number = max(number, in_use) + 1
    while not _claim(context, number, owner):
        number += 1
    return number


def reserved_blocks(context: TableContext, owner: str) -> list[int]:
    """Return the blocks that a branch reserved, ascending; unreadable reservations are skipped."""
    found = []
    for info in context.storage.list(BRANCH_FOLDER):
        number = numbered_id(info.path.rpartition("/")[2], _PREFIX)
        try:
            if number is not None and _owner(context, number) == owner:
                found.append(number)
        except CorruptTableError:
            continue
    return sorted(found)


def block_path(block: int) -> str:
    """Return the path of a reservation."""
    return f"{BRANCH_FOLDER}/{_PREFIX}{block}"


def last_id_before(block: int) -> int:
    """Return the `highestFieldId` with which the next new column gets the first id of the block."""
    return block * BLOCK_SIZE - 1


def begins_block(before: TableSchema, after: TableSchema) -> bool:
    """Whether a version takes in columns that were numbered elsewhere, so that its own numbers go on in a fresh block."""
    highest = after.highest_field_id
    return highest > before.highest_field_id and (highest + 1) % BLOCK_SIZE == 0


def room_after(context: TableContext, highest: int, count: int) -> int:
    """Return the id after which to number the next `count` fields: `highest`, or the last one before a block.

    Args:
        highest: `highestFieldId` of its newest schema.
        count: how many fields are added.

    Raises `CorruptTableError`: a reservation cannot be read.
    """
    while count:
        blocks = range((highest + 1) // BLOCK_SIZE, (highest + count) // BLOCK_SIZE + 1)
        if all(_is_own(context, block) for block in blocks):
            break
        highest = last_id_before(reserve_block(context, context.branch_uuid))
    return highest


def _is_own(context: TableContext, block: int) -> bool:
    """Whether the branch may use the field ids of a block; reserves the block if it is free."""
    if block == 0:
        return context.branch_uuid == context.table_uuid
    owner = _owner(context, block)
    if owner is None:
        return _claim(context, block, context.branch_uuid)
    return owner == context.branch_uuid


def _owner(context: TableContext, block: int) -> str | None:
    path = block_path(block)
    try:
        return block_owner(context.storage.get(path), path)
    except NotFoundError:
        return None


def block_owner(data: bytes, path: str) -> str:
    """Return the branch that a reservation is for. Raises `CorruptTableError`; `UnsupportedFeatureError` if it is newer."""
    content = JsonObject.parse(data, path=path)
    content.version(_VERSION, first=_VERSION)
    return content.text("branchUuid")


def _claim(context: TableContext, block: int, owner: str) -> bool:
    content = {"version": _VERSION, "branchUuid": owner, "createdMillis": context.runtime.clock.now_millis()}
    return context.storage.put_if_absent(block_path(block), to_bytes(content))
