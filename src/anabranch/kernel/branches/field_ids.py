"""Which numbers columns get that are added on different branches at the same time: never the same.

The numbers of fields are cut into blocks. Block 0 is main's; a new branch reserves another one for itself by a file
``branch/FIELD-IDS-<k>``, write-once. Engines number a new column after `highestFieldId` of the newest schema, so a
branch begins with a schema in which that is the last number before its block: every engine then stays inside.
"""

from __future__ import annotations

from anabranch.kernel.context import TableContext
from anabranch.spec.json_object import to_bytes
from anabranch.spec.layout import BRANCH_FOLDER, numbered_id

BLOCK_SIZE = 4096
_PREFIX = "FIELD-IDS-"


def reserve_block(context: TableContext, owner: str) -> int:
    """The number of a block that nobody else has, from now on the owner's.

    Args:
        context: the table, on any branch.
        owner: uuid of the branch. One that reserved a block before, and died, leaves a gap, which does no harm.
    """
    taken = [
        number
        for info in context.storage.list(BRANCH_FOLDER)
        if (number := numbered_id(info.path.rpartition("/")[2], _PREFIX)) is not None
    ]
    number = max(taken, default=0) + 1
    content = to_bytes(
        {"version": 1, "branchUuid": owner, "createdMillis": context.runtime.clock.now_millis()}
    )
    while not context.storage.put_if_absent(context.layout.branches_file_path(f"{_PREFIX}{number}"), content):
        number += 1
    return number


def last_id_before(block: int) -> int:
    """`highestFieldId` of a schema whose next new column gets the first number of the block."""
    return block * BLOCK_SIZE - 1
