"""Reads every record file once to find damaged ones, and what depends on each.

Snapshots, tags, savepoints and schemas are read elsewhere, with what they refer to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from anabranch.errors import CorruptTableError, NotFoundError, UnsupportedFeatureError
from anabranch.format.records.fork import AuditRecord, operations_from_json
from anabranch.format.records.history_segment import HistorySegment
from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, consumer_id_of
from anabranch.format.records.main_pointer import MainPointer, Release, Seal
from anabranch.format.text.json_object import check_version
from anabranch.kernel.log.branch_log import BranchState, state_of
from anabranch.kernel.log.consumers import find_consumer
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.field_ids import block_owner
from anabranch.kernel.log.ledger import page_content
from anabranch.kernel.log.merge_log import missing
from anabranch.kernel.log.merge_record import MergeFile, record_of
from anabranch.kernel.log.parallel import each
from anabranch.kernel.log.removals import REMOVAL_VERSION
from anabranch.kernel.provenance.carry import carried_of
from anabranch.kernel.repair.found import Kind, Problem

_SET_ASIDE: Final = "put it aside, in `.orphans`"
_NUMBER: Final = "([1-9][0-9]{0,17})"
_MOST_MISSING: Final = 1_000
"""Number of missing records that are told: a name may claim any number."""


@dataclass(frozen=True, slots=True)
class _Sort:
    """A type of record file."""

    name: re.Pattern[str]
    read: Callable[[bytes, str], object]
    depends: str
    """What depends on it."""
    repair: str | None = None
    hint: str | None = None
    severity: str = "error"

    def problem(self, context: TableContext, path: str, what: str) -> Problem:
        """Return the problem with a file of it: `what` says where and how."""
        return Problem(
            Kind.RECORD,
            f"{what}: {self.depends}",
            path,
            context.branch,
            repair=self.repair,
            hint=self.hint,
            severity=self.severity,
        )


def _number(path: str) -> int:
    return int(re.findall(r"[0-9]+", path.rpartition("/")[2])[0])


def _removal(data: bytes, path: str) -> object:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTableError("is no readable JSON", path=path) from error
    if not isinstance(found, dict):
        raise CorruptTableError("is no record of removed snapshots", path=path)
    check_version(found.get("version"), REMOVAL_VERSION, path=path)
    return found


_AUDIT: Final = _Sort(
    re.compile(f"AUDIT-{_NUMBER}"),
    lambda data, path: AuditRecord.from_json(data, path=path),
    "merging and replacing that want an audit, and the log of branches, stop at it",
    repair=f"{_SET_ASIDE}; audit the branch again",
)
_BESIDE_BRANCHES: Final = (
    _Sort(
        re.compile(f"MAIN-{_NUMBER}"),
        lambda data, path: MainPointer.from_json(data, generation=_number(path), path=path),
        "it says which branch is main, which is read from the copy of it; without that nothing can be read or written",
        repair="make it again from its copy",
        hint="put the file back from a copy of the table's folder; its branches can be opened by their names.",
    ),
    _Sort(
        re.compile(f"SEAL-{_NUMBER}"),
        lambda data, path: Seal.from_json(data, path=path),
        "who replaces main, or commits while that is done, stops at it",
        repair="decide that main stays what it is, if that replacement is not decided",
    ),
    _Sort(
        re.compile(f"RELEASE-{_NUMBER}"),
        lambda data, path: Release.from_json(data, path=path),
        "whether a replaced main was dropped is not known, so expiry stops at it",
        repair="decide again: dropped if nothing of its history is left, else kept",
    ),
    _Sort(
        re.compile(f"FIELD-IDS-{_NUMBER}"),
        block_owner,
        "which branch numbers its columns so is not known, so that adding one may be refused",
        repair="make it again from the schemas of the branches",
        severity="warning",
    ),
    _Sort(
        re.compile("DELETED-.+"),
        lambda data, path: operations_from_json(data, path=path),
        "the log of branches stops at it; no rows depend on it",
        repair=f"{_SET_ASIDE}; what was done with a branch that is gone is not known any more",
    ),
    _AUDIT,
)
_OF_BRANCH: Final = (
    _Sort(
        re.compile(f"MERGE-{_NUMBER}"),
        record_of,
        "merging and compacting the branch stop at it, unless the summary of merges has it",
        repair="make it again from the summary, or from the tag that holds what was merged",
        hint="read the branch and append what main lacks; then `delete-branch`.",
    ),
    _Sort(
        re.compile(rf"MERGE-{_NUMBER}\.done"),
        record_of,
        "merging and compacting the branch stop at it, unless the summary of merges has it",
        repair="make it again from the summary, or from the snapshot that the merge made",
        hint="read the branch and append what main lacks; then `delete-branch`.",
    ),
    _Sort(
        re.compile(f"carry-(own-)?{_NUMBER}-{_NUMBER}"),
        carried_of,
        "expiry and merging stop at it",
        repair=f"{_SET_ASIDE}; merging goes by the files that are live, as after the expiry of another engine",
    ),
    _AUDIT,
)
_LEDGER: Final = (
    _Sort(
        re.compile(f"expired-{_NUMBER}-{_NUMBER}"),
        lambda data, path: page_content(path, data),
        "a stream that asks whether its last batch is among these snapshots is refused",
        repair="make it again from the archive, if that has all of the snapshots",
        hint="start streams that are refused with a new checkpoint, after comparing their last rows.",
    ),
)
_HISTORY: Final = (
    _Sort(
        re.compile(f"main-{_NUMBER}"),
        lambda data, path: MainPointer.from_json(data, generation=_number(path), path=path),
        "it is the copy of the record that says which branch is main",
        repair="make it again from that record",
        severity="warning",
    ),
    _Sort(
        re.compile("history-.+"),
        lambda data, path: HistorySegment.from_bytes(data, path=path),
        "what these snapshots said (who wrote when, from which sources) is lost; no rows depend on it",
        repair=_SET_ASIDE,
        severity="warning",
    ),
    _Sort(
        re.compile("removed-.+"),
        _removal,
        "a snapshot that a paused writer puts on one that a rollback removed may not be told from others",
        repair=_SET_ASIDE,
        severity="warning",
    ),
)


def damaged_records(main: TableContext, contexts: Sequence[TableContext]) -> Iterator[Problem]:
    """Yield a problem for each unreadable record file of the whole table.

    Args:
        contexts: all branches, that in the table's own folder included.
    """
    root = main.on_branch(None)
    yield from _damaged(root, BRANCH_FOLDER, _BESIDE_BRANCHES)
    yield from _damaged(root, HISTORY_FOLDER, _HISTORY)
    for context in contexts:
        if context.branch is not None:
            yield from _damaged(context, context.layout.branch_root, _OF_BRANCH)
            yield from _missing_merges(context)
        yield from _damaged(context, context.layout.branch_file_path("ledger"), _LEDGER)
        yield from _consumers(context)


def _damaged(context: TableContext, folder: str, sorts: Sequence[_Sort]) -> Iterator[Problem]:
    found = [
        (info.path, sort)
        for info in context.storage.list(folder)
        for sort in sorts
        if sort.name.fullmatch(info.path.rpartition("/")[2])
    ]
    for problem in each(lambda one: _problem(context, *one), found):
        if problem is not None:
            yield problem


def _missing_merges(context: TableContext) -> Iterator[Problem]:
    """Yield a problem for each record of a merge that is gone."""
    infos = context.storage.list(context.layout.branch_root)
    there = {file for info in infos if (file := MergeFile.parse(info.path.rpartition("/")[2])) is not None}
    for file in islice(missing(context, there), _MOST_MISSING):
        path = context.layout.branch_file_path(file.name)
        if context.storage.exists(path) or state_of(context) is not BranchState.READY:
            continue
        sort = next(sort for sort in _OF_BRANCH if sort.name.fullmatch(file.name))
        if file.is_end:
            told = "how the merge ended is told by main, as long as that has its snapshot"
            sort = replace(sort, depends=told, severity="warning")
        yield sort.problem(context, path, f"{path}: is gone")


def _problem(context: TableContext, path: str, sort: _Sort) -> Problem | None:
    try:
        sort.read(context.storage.get(path), path)
    except NotFoundError:
        return None  # it was joined with another meanwhile
    except UnsupportedFeatureError as error:
        return Problem(Kind.RECORD, error.message, path, context.branch, hint=error.hint)
    except CorruptTableError as error:
        return sort.problem(context, path, error.message)
    return None


def _consumers(context: TableContext) -> Iterator[Problem]:
    for info in context.storage.list(context.layout.consumer_folder):
        name = consumer_id_of(info.path)
        try:
            found = None if name is None else find_consumer(context, name)
        except CorruptTableError as error:
            yield Problem(
                Kind.RECORD,
                f"{error.message}: expiry stops at it, for it is not known what consumer '{name}' has not read",
                info.path,
                context.branch,
                hint=f"`consumers --reset {name} --to N` says what it reads next, `--delete {name}` lets go of it.",
            )
        else:
            assert found is None or found.next_snapshot >= 0, "read, to know whether it can be"
