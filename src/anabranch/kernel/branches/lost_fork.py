"""Recovers the fork of a branch whose record ``FORK`` is damaged or gone.

The branch's own pin names its identity and holds the fork snapshot; its first own schema says when it
was made and which field ids its columns get. Its creator and retention are recorded nowhere else.
"""

from __future__ import annotations

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.fork import Fork
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.field_ids import BLOCK_SIZE, reserved_blocks
from anabranch.kernel.log.fork_pins import fork_pin, is_fork_pin, pinned_branch_of
from anabranch.kernel.log.main_pointer import replacements
from anabranch.kernel.log.properties import BRANCH_PROPERTY
from anabranch.kernel.log.tag_log import find_tag, is_internal, tag_names, tag_times


def readable_branch(main: TableContext, name: str) -> TableContext:
    """Open a branch by name; if its fork record is damaged, with what can be recovered, or without a fork."""
    branch = main.on_branch(name)
    try:
        assert branch.fork is None or branch.fork.name, "read, to know whether it can be"
    except CorruptTableError:
        return branch.with_fork(recovered_fork(main, branch))
    return branch


def is_fork_gone(main: TableContext, branch: TableContext) -> bool:
    """Whether a branch without fork record is one of ours: it has a fork pin that no other branch has."""
    pins = [name for name in tag_names(branch) if is_fork_pin(name)]
    if branch.fork is not None or len(pins) != 1:
        return False
    uuid = pinned_branch_of(pins[0])
    return bool(reserved_blocks(main, uuid)) and uuid not in _others(main, branch)


def recovered_fork(main: TableContext, branch: TableContext) -> Fork | None:
    """Rebuild the fork record as far as it follows from elsewhere; None if not even the identity is known.

    Args:
        branch: the branch with the unreadable record.
    """
    uuid = _identity(main, branch)
    begun = None if uuid is None else _begun(main, branch, uuid)
    if uuid is None or begun is None:
        return None
    try:
        own = branch.schemas.get(begun.schema_id + 1)
    except AnabranchError:
        return None
    blocks = reserved_blocks(main, uuid)
    return Fork(
        branch_uuid=uuid,
        name=branch.branch or "",
        tag=_tag(branch, begun) or fork_pin(uuid),
        snapshot=SnapshotRef(_main_then(main, own.time_millis), begun.id, begun.stamp),
        schema_id=begun.schema_id,
        field_id_block=blocks[0] if blocks else (own.highest_field_id + 1) // BLOCK_SIZE,
        created_millis=own.time_millis,
        created_by="anabranch repair",
        properties=begun.properties,
    )


def _identity(main: TableContext, branch: TableContext) -> str | None:
    own = {pinned_branch_of(name) for name in tag_names(branch) if is_fork_pin(name)}
    candidates = own or {pinned_branch_of(name) for name in tag_names(main) if is_fork_pin(name)}
    candidates -= _others(main, branch)
    if len(candidates) == 1 and own:
        return candidates.pop()
    for number in reversed(branch.snapshots.ids()):
        try:
            found = branch.snapshots.find(number)
        except AnabranchError:
            continue
        made_on = None if found is None else found.properties.get(BRANCH_PROPERTY)
        if made_on in candidates:
            return made_on
    return None


def _others(main: TableContext, branch: TableContext) -> set[str]:
    """Return the identities of all other branches whose records can be read."""
    found = {main.table_uuid}
    for name in branch_names(main):
        try:
            fork = None if name == branch.branch else main.on_branch(name).fork
        except AnabranchError:
            continue
        if fork is not None:
            found.add(fork.branch_uuid)
    return found


def _begun(main: TableContext, branch: TableContext, uuid: str) -> Snapshot | None:
    """Return the fork snapshot from a pin."""
    for place in (branch, main, main.on_branch(None)):
        try:
            tag = find_tag(place, fork_pin(uuid))
        except AnabranchError:
            continue
        if tag is not None:
            return tag.snapshot
    return _below_own(branch, uuid)


def _below_own(branch: TableContext, uuid: str) -> Snapshot | None:
    """Return the parent of its first own snapshot, or the newest snapshot if it has none of its own."""
    try:
        found = [s for number in branch.snapshots.ids() if (s := branch.snapshots.find(number)) is not None]
    except AnabranchError:
        return None
    own = next((n for n, s in enumerate(found) if s.properties.get(BRANCH_PROPERTY) == uuid), len(found))
    if own == 0 or (own < len(found) and not branch.snapshots.follows(found[own - 1], found[own])):
        return None
    return found[own - 1]


def _tag(branch: TableContext, begun: Snapshot) -> str | None:
    """Return the oldest tag of the branch that names its fork snapshot: it was copied from main."""
    for name, _ in sorted(tag_times(branch).items(), key=lambda found: found[1]):
        if is_internal(name):
            continue
        try:
            tag = find_tag(branch, name)
        except AnabranchError:
            continue
        if tag is not None and tag.snapshot.stamp == begun.stamp:
            return name
    return None


def _main_then(main: TableContext, millis: int) -> str:
    """Return the identity of the branch that was main at a time."""
    uuid = main.table_uuid
    for pointer in replacements(main):
        if pointer.made_millis <= millis:
            uuid = pointer.main.uuid
    return uuid
