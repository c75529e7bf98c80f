"""Which numbers columns get that are added on different branches at the same time: never the same.

The numbers of fields are cut into blocks. Block 0 belongs to the branch in the table's own folder; a new branch
reserves another one for itself by a file ``branch/FIELD-IDS-<k>``, write-once. Engines number a new column after
`highestFieldId` of the newest schema, so a branch begins with a schema in which that is the last number before its
block: every engine then stays inside. We reserve another block before we count beyond the end of one.
"""

from __future__ import annotations

from anabranch.errors import CorruptTableError, NotFoundError
from anabranch.format.records.layout import BRANCH_FOLDER, numbered_id
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.kernel.log.context import TableContext

BLOCK_SIZE = 4096
_PREFIX = "FIELD-IDS-"


def reserve_block(context: TableContext, owner: str) -> int:
    """The number of a block that nobody else has, from now on the owner's; its numbers are larger than all so far.

    Args:
        context: the table, on main or on the owner's branch.
        owner: uuid of the branch. One that reserved a block before, and died, leaves a gap, which does no harm.
    """
    taken = [
        number
        for info in context.storage.list(BRANCH_FOLDER)
        if (number := numbered_id(info.path.rpartition("/")[2], _PREFIX)) is not None
    ]
    newest = context.schemas.latest()
    # Tables of very many columns are in further blocks without having reserved them.
    in_use = 0 if newest is None else max(newest.highest_field_id, 0) // BLOCK_SIZE
    number = max(taken, default=0)
    number = max(number, in_use) + 1
    while not _claim(context, number, owner):
        number += 1
    return number


def reserved_blocks(context: TableContext, owner: str) -> list[int]:
    """The blocks that a branch reserved, ascending; reservations that cannot be read are left out."""
    found = []
    for info in context.storage.list(BRANCH_FOLDER):
        number = numbered_id(info.path.rpartition("/")[2], _PREFIX)
        try:
            if number is not None and _owner(context, number) == owner:
                found.append(number)
        except CorruptTableError:
            continue
    return sorted(found)


def last_id_before(block: int) -> int:
    """`highestFieldId` of a schema whose next new column gets the first number of the block."""
    return block * BLOCK_SIZE - 1


def room_after(context: TableContext, highest: int, count: int) -> int:
    """The number after which the branch numbers its next `count` fields: `highest`, or one at the start of a block.

    Args:
        context: the branch.
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
    """Whether the branch may number fields in a block; takes it if nobody has."""
    if block == 0:
        return context.branch_uuid == context.table_uuid
    owner = _owner(context, block)
    if owner is None:
        return _claim(context, block, context.branch_uuid)
    return owner == context.branch_uuid


def _owner(context: TableContext, block: int) -> str | None:
    path = context.layout.branches_file_path(f"{_PREFIX}{block}")
    try:
        return JsonObject.parse(context.storage.get(path), path=path).text("branchUuid")
    except NotFoundError:
        return None


def _claim(context: TableContext, block: int, owner: str) -> bool:
    content = {"version": 1, "branchUuid": owner, "createdMillis": context.runtime.clock.now_millis()}
    return context.storage.put_if_absent(
        context.layout.branches_file_path(f"{_PREFIX}{block}"), to_bytes(content)
    )
