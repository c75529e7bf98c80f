"""Making a branch from a tag of main: metadata only, so it costs the same however many rows there are."""

from __future__ import annotations

from dataclasses import replace

from anabranch.errors import AlreadyExistsError, AnabranchError, InvalidInputError
from anabranch.kernel.branches.field_ids import last_id_before, reserve_block
from anabranch.kernel.context import TableContext
from anabranch.kernel.refs.moment import check_there, of_tag
from anabranch.kernel.refs.tag_log import get_tag
from anabranch.spec.fork import FORK_FILE, Fork
from anabranch.spec.names import RESERVED_TAG_PREFIX, check_branch_name
from anabranch.spec.refs import Tag
from anabranch.spec.snapshot_ref import SnapshotRef

FORK_PIN_PREFIX = f"{RESERVED_TAG_PREFIX}fork-"
"""Tags of main that hold what branches began with, each followed by the branch's uuid."""


def create_branch(
    main: TableContext,
    name: str,
    tag: str,
    *,
    created_by: str | None = None,
    retained: int | None = None,
) -> TableContext:
    """A new branch that begins as the tag is. A creation that died is finished by the next of the same name and tag.

    Args:
        main: the main branch; others are only created from its tags.
        name: of the new branch.
        tag: a tag of main.
        created_by: who makes it, for people.
        retained: milliseconds after which `maintain` may delete the branch.

    Raises:
        InvalidNameError: a branch must not be called so.
        InvalidInputError: `main` is not the main branch.
        AlreadyExistsError: there is such a branch.
        NotFoundError: main has no such tag, or it was removed meanwhile.
    """
    check_branch_name(name)
    if main.branch is not None and main.main_generation is None:
        raise InvalidInputError(
            f"a branch can only be created from a tag of main, not of branch '{main.branch}'",
            hint="merge the branch into main first, or create the new branch from a tag of main.",
        )
    branch = main.on_branch(name)
    # Ours are there with their first snapshot; those of other engines may have none.
    if branch.schemas.ids() and (branch.fork is None or branch.snapshots.ids()):
        raise AlreadyExistsError(f"branch '{name}' exists already in '{main.name}'")
    begun = get_tag(main, tag)
    fork = branch.fork or _claim(main, branch, begun, created_by, retained)
    if (fork.tag, fork.snapshot.stamp) != (tag, begun.snapshot.stamp):
        raise AlreadyExistsError(
            f"branch '{name}' is being created from tag '{fork.tag}' of '{main.name}'",
            hint=f"create it from '{fork.tag}' to finish that, or delete the branch first.",
        )
    _copy(main, main.on_branch(name), fork, begun)
    return main.on_branch(name)


def _claim(
    main: TableContext, branch: TableContext, begun: Tag, created_by: str | None, retained: int | None
) -> Fork:
    """Hold on to what the branch begins with, then take its name."""
    uuid = main.runtime.ids.uuid()
    pin = main.layout.tag_path(f"{FORK_PIN_PREFIX}{uuid}")
    main.storage.put(pin, Tag(f"{FORK_PIN_PREFIX}{uuid}", begun.snapshot).to_json())
    try:
        check_there(main, of_tag(begun))
    except AnabranchError:
        main.storage.delete(pin)
        raise
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
    if not main.storage.put_if_absent(branch.layout.branch_file_path(FORK_FILE), fork.to_json()):
        main.storage.delete(pin)
        raise AlreadyExistsError(
            f"branch '{branch.branch}' of '{main.name}' was created by somebody else meanwhile"
        )
    return fork


def _copy(main: TableContext, branch: TableContext, fork: Fork, begun: Tag) -> None:
    """Schemas, tag, snapshot; the snapshot last: with it the branch is there."""
    for schema_id in range(fork.schema_id + 1):
        schema = main.schemas.find(schema_id)
        if schema is not None:
            branch.schemas.add(schema)
    newest = main.schemas.get(fork.schema_id)
    own = replace(
        newest,
        id=fork.schema_id + 1,
        highest_field_id=max(newest.highest_field_id, last_id_before(fork.field_id_block)),
        time_millis=fork.created_millis,
    )
    branch.schemas.add(own)
    branch.storage.put_if_absent(branch.layout.tag_path(begun.name), begun.to_json())
    branch.storage.put_if_absent(branch.layout.snapshot_path(begun.snapshot.id), begun.snapshot.to_json())
    branch.snapshots.write_hint(begun.snapshot.id)
