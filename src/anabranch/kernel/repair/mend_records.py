"""Repairs unreadable records from redundant information, and a single flipped bit of a snapshot or tag by its checksum.

Records that cannot be rebuilt, and that no rows depend on, are moved to ``.orphans``. Everything else stays, and is
reported with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.fork import FORK_FILE
from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.layout import snapshot_id_of
from anabranch.format.records.main_pointer import Release, former_main_name
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import Snapshot, SnapshotRef
from anabranch.format.text.json_object import to_bytes
from anabranch.kernel.branches.lost_fork import readable_branch, recovered_fork
from anabranch.kernel.log.archive import archived
from anabranch.kernel.log.branch_log import branch_names
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.ledger import page_again
from anabranch.kernel.log.main_pointer import find_copy, find_pointer
from anabranch.kernel.log.merge_log import from_summaries
from anabranch.kernel.log.merge_pins import branch_pin
from anabranch.kernel.log.merge_record import MergeEnd, MergeFile, MergeRecord, MergeRequest, content_of
from anabranch.kernel.log.properties import (
    BRANCH_PROPERTY,
    MERGE_PROPERTY,
    MERGE_USER,
    PARENT_PROPERTY,
    MergeFacts,
    merge_facts,
)
from anabranch.kernel.log.seals import stay
from anabranch.kernel.log.tag_log import find_tag
from anabranch.kernel.repair.found import (
    Act,
    Kind,
    Problem,
    RefState,
    RepairStep,
    is_of_later_version,
    put_again,
    put_aside,
)

_POINTER: Final = re.compile(r"(MAIN|main)-([0-9]+)")
_ASIDE: Final = re.compile(r"(AUDIT-|DELETED-|carry-|history-|removed-).+")


def plan_forks(main: TableContext, problems: Sequence[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to rebuild fork records."""
    for problem in problems:
        if (
            problem.kind is not Kind.BRANCH
            or not problem.path.endswith(f"/{FORK_FILE}")
            or not problem.repair
        ):
            continue
        if is_of_later_version(main, problem.path):
            continue
        fork = recovered_fork(main, main.on_branch(problem.branch))
        if fork is not None:
            what = f"make {problem.path} again from the branch's pin and its schemas"
            yield RepairStep(Kind.BRANCH, what, problem.path), put_again(main, problem.path, fork.to_json())


def plan_records(
    main: TableContext, states: Sequence[RefState], problems: Sequence[Problem]
) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to rebuild other records, or to move them aside."""
    for problem in problems:
        if problem.kind is not Kind.RECORD or is_of_later_version(main, problem.path):
            continue
        name = problem.path.rpartition("/")[2]
        if _ASIDE.fullmatch(name):
            yield _step(problem, f"put {problem.path} aside"), put_aside(main, problem.path)
            continue
        if name.startswith("SEAL-"):
            yield (
                _step(problem, f"see that it is decided what main is, and put {problem.path} aside"),
                _settle(main, problem.path),
            )
            continue
        try:
            found = _again(main, states, problem, name)
        except AnabranchError:
            continue  # what it would be made of is damaged too
        if found is not None:
            source, content = found
            step = _step(problem, f"make {problem.path} again from {source}")
            yield step, put_again(main, problem.path, content)


def _step(problem: Problem, what: str) -> RepairStep:
    return RepairStep(Kind.RECORD, what, problem.path)


def _settle(main: TableContext, path: str) -> Act:
    aside = put_aside(main, path)

    def act() -> bool:
        generation = int(path.rpartition("-")[2])
        if find_pointer(main, generation) is None:
            stay(main, generation, "anabranch repair")
        return aside()

    return act


def _again(
    main: TableContext, states: Sequence[RefState], problem: Problem, name: str
) -> tuple[str, bytes] | None:
    """Return the source and content of a rebuilt record; None if nothing is known."""
    merge = MergeFile.parse(name)
    if merge is not None and problem.branch is not None:
        branch = readable_branch(main, problem.branch)
        copied = from_summaries(branch, merge.number)
        if copied is not None:
            return "the summary of merges", content_of(branch, copied[merge.is_end])
        return (_merge_end if merge.is_end else _merge_record)(main, branch, states, merge.number)
    if (pointer := _POINTER.fullmatch(name)) is not None:
        generation = int(pointer[2])
        is_copy = pointer[1] == "main"
        decided = find_pointer(main, generation) if is_copy else find_copy(main, generation)
        other = "the record itself" if is_copy else "its copy"
        return None if decided is None else (other, decided.to_json())
    if name.startswith("RELEASE-"):
        return _release(main, int(name.rpartition("-")[2]))
    if name.startswith("expired-"):
        context = main if problem.branch == main.branch else main.on_branch(None)
        if problem.branch not in (None, main.branch):
            context = readable_branch(main, problem.branch)
        known = {past.id: past for past in archived(context, context.branch_uuid)}
        page = page_again(problem.path, known)
        return None if page is None else ("the archive", page)
    if name.startswith("FIELD-IDS-"):
        block = int(name.rpartition("-")[2])
        for other in branch_names(main):
            fork = readable_branch(main, other).fork
            if fork is not None and fork.field_id_block == block:
                # The form in which a reservation is written.
                content = to_bytes(
                    {"version": 1, "branchUuid": fork.branch_uuid, "createdMillis": fork.created_millis}
                )
                return f"how branch '{other}' began", content
    return None


def _release(main: TableContext, generation: int) -> tuple[str, bytes] | None:
    """Rebuild a release record: dropped if nothing of its history is left; else kept, which is harmless."""
    pointer = find_pointer(main, generation)
    if pointer is None or pointer.replaced is None:
        return None
    old = main.on_branch(pointer.replaced.old.name)
    is_gone = all(number > pointer.replaced.head.id for number in old.snapshots.ids())
    token, now = main.runtime.ids.uuid(), main.runtime.clock.now_millis()
    source = f"what is left of '{former_main_name(generation)}', which is {'dropped' if is_gone else 'kept'}"
    return source, Release("drop" if is_gone else "back", now, token).to_json()


def _merge_end(
    main: TableContext, branch: TableContext, states: Sequence[RefState], number: int
) -> tuple[str, bytes] | None:
    made = _made(main, branch, states, number)
    if made is None:
        return None
    found, facts = made
    ref = SnapshotRef(found.properties.get(BRANCH_PROPERTY, main.branch_uuid), found.id, found.stamp)
    end = (
        MergeEnd.abandoned(number) if facts.is_ended else MergeEnd(number, ref, facts.replaced, facts.theirs)
    )
    return f"snapshot {found.id} of main, which the merge made", content_of(branch, end)


def _merge_record(
    main: TableContext, branch: TableContext, states: Sequence[RefState], number: int
) -> tuple[str, bytes] | None:
    tag, fork, schema = find_tag(branch, branch_pin(number)), branch.fork, branch.schemas.latest()
    if tag is None or fork is None or schema is None:
        return None
    made = _made(main, branch, states, number)
    before, created = fork.snapshot, branch.storage.info(branch.layout.tag_path(tag.name)).modified_millis
    if made is not None:
        found, _ = made
        made_on = found.properties.get(BRANCH_PROPERTY, main.branch_uuid)
        before = SnapshotRef(made_on, found.id - 1, found.properties.get(PARENT_PROPERTY, ""))
        created = found.time_millis
    record = MergeRecord(number, tag.snapshot, schema.id, before, MergeRequest(), created)
    return "the tag that holds what was merged", content_of(branch, record)


def _made(
    main: TableContext, branch: TableContext, states: Sequence[RefState], number: int
) -> tuple[Snapshot | PastSnapshot, MergeFacts] | None:
    """Return the snapshot that a merge made, or that marks it as given up; None if it is gone."""
    wanted = (f"{MERGE_USER}{branch.branch_uuid}", number)
    there: list[Snapshot | PastSnapshot] = [state.snapshot for state in states]
    past = [
        one for uuid in dict.fromkeys((main.branch_uuid, main.table_uuid)) for one in archived(main, uuid)
    ]
    for found in [*there, *past]:
        if (found.commit_user, found.commit_identifier) == wanted and MERGE_PROPERTY in found.properties:
            return found, merge_facts(found)
    return None


_LONGEST = 64 * 1024
"""Largest file size in bytes that is tried, at eight attempts per byte."""


def plan_bits(context: TableContext, problems: Sequence[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to flip back changed bits, where a single one explains the damage."""
    for path in dict.fromkeys(p.path for p in problems if p.kind in (Kind.SNAPSHOT, Kind.REF) and p.path):
        try:
            data = context.storage.get(path)
        except AnabranchError:
            continue
        whole = _before(context, data, _reader(path))
        if whole is not None:

            def act(path: str = path, data: bytes = data, whole: bytes = whole) -> bool:
                if context.storage.get(path) != data:
                    return False
                context.storage.put(path, whole)
                return True

            yield RepairStep(Kind.SNAPSHOT, f"put back the one bit that changed in {path}", path), act


def _reader(path: str) -> Callable[[bytes], Snapshot | Tag]:
    """Return the parser of a file; `to_json` of its result reproduces an intact one byte by byte."""
    if snapshot_id_of(path) is not None:
        return lambda data: Snapshot.from_json(data, path=path)
    name = path.rpartition("/tag-")[2]
    return lambda data: Tag.from_json(data, name=name, path=path)


def _before(context: TableContext, data: bytes, read: Callable[[bytes], Snapshot | Tag]) -> bytes | None:
    """Return the content before one bit changed; None if no bit explains the damage, or several do.

    The checksum does not cover everything: the sizes of lists are checked by the lists, and a UUID or the mark of a tag, both made by
    chance, cannot be checked; whatever differs in these alone is as good.
    """
    found: list[tuple[Snapshot | Tag, bytes]] = []
    for place in range(8 * len(data) if len(data) <= _LONGEST else 0):
        tried = bytearray(data)
        tried[place >> 3] ^= 1 << (place & 7)
        try:
            said = read(bytes(tried))
        except AnabranchError:
            continue
        if said.to_json() == tried:
            found.append((said, bytes(tried)))
    if len(found) > 1:
        found = [(said, whole) for said, whole in found if _has_sizes_of_lists(context, _snapshot(said))]
    return found[0][1] if len({_without_chance(said) for said, _ in found}) == 1 else None


def _snapshot(said: Snapshot | Tag) -> Snapshot:
    return said.snapshot if isinstance(said, Tag) else said


def _without_chance(said: Snapshot | Tag) -> bytes:
    if isinstance(said, Tag):
        return replace(said, snapshot=replace(said.snapshot, uuid=None), mark=None).to_json()
    return replace(said, uuid=None).to_json()


def _has_sizes_of_lists(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the list sizes in a snapshot are those of its lists, as far as these exist."""
    lists = {
        snapshot.base_manifest_list: snapshot.base_manifest_list_size,
        snapshot.delta_manifest_list: snapshot.delta_manifest_list_size,
    }
    for name, size in lists.items():
        try:
            if size not in (None, context.storage.info(context.layout.manifest_path(name)).size):
                return False
        except NotFoundError:
            continue
    return True
