"""Creates a branch from a tag of main: metadata only, so the cost does not depend on the number of rows.

1. A tag on main, `fork_pins`, holds the fork snapshot; then that is checked to still exist.
2. A block of field ids for its columns is reserved (`field_ids`).
3. ``FORK`` is put if absent: the name is taken, and the branch is fully described.
4. Schemas, tag and, last, the snapshot are copied: with that the branch exists.
5. It is checked that the branch was not deleted meanwhile.

A creation that died before 3 leaves a pin, which `fork_pins.tend_fork_pins` removes; after 3 it is finished by
creating the same branch again, or undone by deleting it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from anabranch.errors import (
    AlreadyExistsError,
    AnabranchError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    StorageError,
)
from anabranch.format.records.fork import DELETING_FILE, FORK_FILE, Fork
from anabranch.format.records.layout import Layout
from anabranch.format.records.main_pointer import BranchRef
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.schema.table_schema import NEWEST_VERSION
from anabranch.format.text.names import check_branch_name
from anabranch.kernel.log.branch_log import BranchState, branch_names, state_of
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.field_ids import last_id_before, reserve_block
from anabranch.kernel.log.fork_pins import fork_pin, fork_snapshot, pin_fork, unpin_fork
from anabranch.kernel.log.moment import Moment, check_there, of_tag
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.schema_log import SchemaLog
from anabranch.kernel.log.shared_past import is_named
from anabranch.kernel.log.tag_log import find_tag, get_tag, is_internal
from anabranch.kernel.refs.tags import create_tag


def create_branch(
    main: TableContext,
    name: str,
    tag: str,
    *,
    moment: Moment | None = None,
    created_by: str | None = None,
    retained: int | None = None,
) -> TableContext:
    """Create a branch from a tag of main, or finish an interrupted creation with the same name and tag.

    See `Table.create_branch`.

    Args:
        main: the main branch; others are only created from its tags.
        moment: the moment to create the tag at, if the tag does not exist.
        retained: milliseconds after which `maintain` may delete the branch.
    """
    check_branch_name(name)
    if main.branch is not None and main.main_generation is None:
        raise InvalidInputError(
            f"branch '{name}' of '{main.name}' can only be created from a tag of main, not from branch '{main.branch}'",
            hint="merge the branch into main first, or create the new one from a tag of main.",
        )
    if is_internal(tag):
        raise InvalidNameError(
            f"the tag '{tag}' belongs to the table itself",
            hint="name a tag of your own, or the savepoint or snapshot to begin with.",
        )
    branch = main.on_branch(name)
    state = state_of(branch)
    if state is BranchState.READY:
        and_is_main, or_delete = (
            (", and is main", "") if main.branch == name else ("", ", or delete it with `delete_branch`")
        )
        raise AlreadyExistsError(
            f"branch '{name}' exists already in '{main.name}'{and_is_main}",
            hint=f"choose another name{or_delete}.",
        )
    if is_named(main, name):
        raise AlreadyExistsError(
            f"branch '{name}' was main of '{main.name}' once, and main's past may still be looked for under that name",
            hint="choose another name.",
        )
    if state in (BranchState.DELETING, BranchState.LEFT_OVER):
        raise AlreadyExistsError(
            f"what is left of another branch '{name}' of '{main.name}' is in the way",
            hint="`delete_branch` removes it.",
        )
    if state is BranchState.BEGUN and branch.fork is not None:
        fork, begun = _begun(main, branch, branch.fork, tag, moment)
    else:
        begun = get_tag_of_main(main, tag) if moment is None else _tagged(main, tag, moment)
        fork = _claim(main, branch, begun, created_by, retained)
    branch = main.on_branch(name)
    _copy(main, branch, fork, begun)
    _check_not_deleted(branch, fork)
    return branch


def get_tag_of_main(main: TableContext, tag: str) -> Tag:
    """Return a tag of main. Raises `NotFoundError`, which mentions other branches that have it."""
    try:
        return get_tag(main, tag)
    except NotFoundError as error:
        having = [name for name in branch_names(main) if find_tag(main.on_branch(name), tag) is not None]
        if not having or find_tag(main, tag) is not None:
            raise
        raise NotFoundError(
            f"tag '{tag}' is of branch '{having[0]}', not of main: branches of '{main.name}' are created from tags of main",
            hint=f"merge '{having[0]}' into main first. {error.hint or ''}".strip(),
        ) from error


def _tagged(main: TableContext, tag: str, moment: Moment) -> Tag:
    """Return the tag of the moment, creating it if missing."""
    existing = find_tag(main, tag)
    if existing is None:
        return create_tag(main, tag, moment)
    if existing.snapshot.stamp != moment.snapshot.stamp:
        raise AlreadyExistsError(
            f"tag '{tag}' of '{main.name}' names snapshot {existing.snapshot.id}, not {moment.snapshot.id}",
            hint="give the tag that the branch is to begin with another name.",
        )
    return existing


def _begun(
    main: TableContext, branch: TableContext, fork: Fork, tag: str, moment: Moment | None
) -> tuple[Fork, Tag]:
    """Return fork and tag of an interrupted creation. Raises `AlreadyExistsError` if it differs from this one."""
    named = moment.snapshot if moment is not None else _snapshot_of(find_tag(main, tag))
    if fork.tag != tag or (named is not None and named.stamp != fork.snapshot.stamp):
        raise AlreadyExistsError(
            f"branch '{branch.branch}' is being created from tag '{fork.tag}' of '{main.name}', which named snapshot "
            f"{fork.snapshot.id}",
            hint="create it from that to finish it, or remove what is there with `delete_branch`.",
        )
    snapshot = fork_snapshot(branch, main) or named
    if snapshot is None:
        raise NotFoundError(
            f"snapshot {fork.snapshot.id}, with which branch '{branch.branch}' of '{main.name}' was to begin, is gone",
            hint="remove what is there with `delete_branch`.",
        )
    return fork, find_tag(main, tag) or Tag(tag, snapshot)


def _snapshot_of(tag: Tag | None) -> Snapshot | None:
    return None if tag is None else tag.snapshot


def _claim(
    main: TableContext, branch: TableContext, begun: Tag, created_by: str | None, retained: int | None
) -> Fork:
    """Hold on to what the branch begins with, then take its name."""
    main.schemas.get(begun.snapshot.schema_id)  # a tag may name one that never was
    uuid = main.runtime.ids.uuid()
    pin_fork(main, uuid, begun.snapshot)
    try:
        check_there(main, of_tag(begun))
        fork = Fork(
            branch_uuid=uuid,
            name=branch.branch or "",
            tag=begun.name,
            snapshot=SnapshotRef(main.branch_uuid, begun.snapshot.id, begun.snapshot.stamp),
            schema_id=begun.snapshot.schema_id,
            field_id_block=reserve_block(main, uuid),
            created_millis=main.runtime.clock.now_millis(),
            created_by=created_by,
            time_retained=retained,
            properties=begun.snapshot.properties,
        )
        won = main.storage.put_if_absent(branch.layout.branch_file_path(FORK_FILE), fork.to_json())
    except AnabranchError as error:
        if not (isinstance(error, StorageError) and error.outcome_unknown):
            with suppress(StorageError):
                unpin_fork(main, uuid)
        raise
    if not won:
        unpin_fork(main, uuid)
        raise AlreadyExistsError(f"somebody else created branch '{branch.branch}' of '{main.name}' meanwhile")
    if not main.storage.exists(main.layout.tag_path(fork_pin(uuid))):
        # We were paused for so long that the pin was taken for one of a killed creation. From now on it is not.
        pin_fork(main, uuid, begun.snapshot)
        try:
            check_there(main, of_tag(begun))
        except NotFoundError:
            main.storage.delete(branch.layout.branch_file_path(FORK_FILE))
            unpin_fork(main, uuid)
            raise
        there = branch.read_fork()
        if there is None or there.branch_uuid != uuid:  # it is gone because somebody has deleted the branch
            unpin_fork(main, uuid)
    return fork


def fork_again(
    old: TableContext, branch: BranchRef, begun: SnapshotRef, schema_id: int, properties: Mapping[str, str]
) -> Fork:
    """Build the fork record for recreating a branch that was removed by other means than ours.

    Args:
        schema_id: schema id of the fork snapshot.
        properties: properties of the fork snapshot, as far as known.
    """
    return Fork(
        branch_uuid=branch.uuid,
        name=branch.name or "",
        tag=fork_pin(branch.uuid),
        snapshot=begun,
        schema_id=schema_id,
        field_id_block=0,
        created_millis=old.runtime.clock.now_millis(),
        created_by="anabranch repair",
        properties=properties,
    )


def recreate_branch(old: TableContext, fork: Fork, begun: Snapshot | None, newest: int) -> TableContext:
    """Recreate a branch under its identity, without its commits, which the caller restores.

    Args:
        old: the parent branch, which has its schemas.
        begun: the fork snapshot, if history is to begin there.
        newest: the number of the newest snapshot that will be restored. The hint is set to it before any exists, so
            that a crash in between leaves a branch that is known to lack them.
    """
    branch = old.on_branch(fork.name)
    numbered = replace(fork, field_id_block=reserve_block(old, fork.branch_uuid))
    old.storage.put_if_absent(branch.layout.branch_file_path(FORK_FILE), numbered.to_json())
    branch = old.on_branch(fork.name)
    assert branch.fork is not None, "it was put just now"
    _copy_schemas(old, branch, branch.fork)
    branch.snapshots.write_hint(newest)
    if begun is not None:
        _put_beginning(old, branch, branch.fork, Tag(fork_pin(fork.branch_uuid), begun))
    return branch


def _copy(main: TableContext, branch: TableContext, fork: Fork, begun: Tag) -> None:
    """Copy schemas, tag and, last, the snapshot, with which the branch exists."""
    _copy_schemas(main, branch, fork)
    _put_beginning(main, branch, fork, begun)
    branch.snapshots.write_hint(begun.snapshot.id)


def _copy_schemas(main: TableContext, branch: TableContext, fork: Fork) -> None:
    newest = main.schemas.get(fork.schema_id)
    # The existing ones rather than all ids up to the fork's: that id comes from a file.
    known = {*main.schemas.ids(), fork.schema_id}
    if main.layout != Layout():
        known |= {*SchemaLog(main.storage, Layout()).ids()}
    each(
        lambda schema_id: _copy_schema(main, branch, schema_id),
        sorted(i for i in known if i <= fork.schema_id),
    )
    own = replace(
        newest,
        id=fork.schema_id + 1,
        highest_field_id=max(newest.highest_field_id, last_id_before(fork.field_id_block)),
        time_millis=fork.created_millis,
        version=NEWEST_VERSION,
    )
    if not branch.schemas.add(own):
        raise _written_into(main, fork, "a creation of")


def _put_beginning(main: TableContext, branch: TableContext, fork: Fork, begun: Tag) -> None:
    storage, layout, snapshot = branch.storage, branch.layout, begun.snapshot
    storage.put_if_absent(layout.tag_path(begun.name), begun.to_json())
    pin_fork(branch, fork.branch_uuid, snapshot)
    if not storage.put_if_absent(layout.snapshot_path(snapshot.id), snapshot.to_json()):
        there = branch.snapshots.find(snapshot.id)
        if there is None or there.stamp != snapshot.stamp:
            raise _written_into(main, fork, "a writer to")


def _written_into(main: TableContext, fork: Fork, who: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{who} another branch '{fork.name}' of '{main.name}', deleted since, wrote into this one",
        hint="delete it with `delete_branch`, and create it again.",
    )


def _copy_schema(main: TableContext, branch: TableContext, schema_id: int) -> None:
    """Copy one schema version byte by byte; those that main itself never had are skipped."""
    for layout in (main.layout, Layout()):
        try:
            data = main.storage.get(layout.schema_path(schema_id))
        except NotFoundError:
            continue
        branch.storage.put_if_absent(branch.layout.schema_path(schema_id), data)
        return


def _check_not_deleted(branch: TableContext, fork: Fork) -> None:
    """Remove what was made if the branch was deleted meanwhile. Raises `NotFoundError`."""
    now = branch.read_fork()
    if (
        now is not None
        and now.branch_uuid == fork.branch_uuid
        and not branch.storage.exists(branch.layout.branch_file_path(DELETING_FILE))
    ):
        return
    if now is None:
        branch.storage.delete_folder(branch.layout.branch_root)
    raise NotFoundError(
        f"branch '{branch.branch}' of '{branch.name}' was deleted while it was created",
        hint="create it again if it is still wanted.",
    )
