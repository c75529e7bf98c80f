"""Paths of a table's objects, as pure functions from ids and names to paths and back.

Paths are relative to the table's folder, with ``/`` between segments and none at the start. Metadata of a
branch lies in the branch's own folder; manifests, data, index and statistics files of all branches lie in
the table's. The text of a partition's folder is made in `anabranch.format.rows.partition_path`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from anabranch.errors import CorruptTableError
from anabranch.format.text.record import JsonRecord, Stored

MAIN_BRANCH = "main"
"""The name of the branch in the table's own folder; never the name of a folder below ``branch/``."""

BRANCH_FOLDER = "branch"
HISTORY_FOLDER = "lineage"
MANIFEST_FOLDER = "manifest"
LIST_PREFIX = "manifest-list-"
INDEX_FOLDER = "index"
STATISTICS_FOLDER = "statistics"
ORPHANS_FOLDER = ".orphans"
"""Where the cleaning of orphan files moves them, in a folder for each run."""
_DELETED = ".deleted"

_MAX_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Part(JsonRecord):
    """A part of main's past that lies in the folder of a branch that was main before."""

    WHAT: ClassVar = "part of a history"

    below: Annotated[int, Stored(minimum=1)]
    """The snapshots of lower numbers lie there, down to those of the next part."""
    branch: Annotated[str | None, Stored(always=True)]
    """The branch; None for the table's own folder."""
    tags: Annotated[int | None, Stored(minimum=1, seldom=True)] = None
    """Of the newest part: the number of the replacement whose ``TAGS-<g>`` has the tags of all of this past; None without such."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one branch of a table; `branch` None (or ``"main"``) is the table's own folder."""

    branch: str | None = None
    past: tuple[Part, ...] = ()
    """Where main's history goes on below what lies in its branch's folder, newest part first; see `past_below`."""

    @property
    def branch_root(self) -> str:
        """Folder of the branch's metadata, ``""`` for main."""
        return "" if self.branch in (None, MAIN_BRANCH) else f"{BRANCH_FOLDER}/branch-{self.branch}"

    # Metadata of the branch

    @property
    def snapshot_folder(self) -> str:
        return self._own("snapshot")

    @property
    def schema_folder(self) -> str:
        return self._own("schema")

    @property
    def tag_folder(self) -> str:
        return self._own("tag")

    @property
    def consumer_folder(self) -> str:
        return self._own("consumer")

    @property
    def changelog_folder(self) -> str:
        return self._own("changelog")

    def snapshot_path(self, snapshot_id: int) -> str:
        return f"{self._folder_of(snapshot_id)}/snapshot-{snapshot_id}"

    def holds(self, path: str) -> bool:
        """Whether a path is that of a snapshot of this history."""
        number = snapshot_id_of(path)
        return number is not None and self.snapshot_path(number) == path

    @property
    def snapshot_folders(self) -> tuple[str, ...]:
        """The folders in which snapshots of this history may lie, the branch's own first."""
        return tuple(
            dict.fromkeys(
                (self.snapshot_folder, *(Layout(part.branch).snapshot_folder for part in self.past))
            )
        )

    @property
    def first_own(self) -> int:
        """The lowest number of a snapshot that lies in the branch's own folder, if it is there."""
        return self.past[0].below if self.past else 1

    def past_below(self, snapshot_id: int) -> tuple[Part, ...]:
        """Return the parts that hold this history's snapshots of lower numbers: the past of a branch that began there."""
        return tuple(
            Part(min(part.below, snapshot_id), part.branch)
            for part, floor in self._parts()
            if floor < snapshot_id
        )

    def shared_up_to(self, other: Layout) -> int:
        """Return the highest number of a snapshot that two histories have in the same place; 0 if there is none."""
        common = (
            min(mine.below, theirs.below) - 1
            for mine, my_floor in self._parts()
            for theirs, their_floor in other._parts()
            if mine.branch == theirs.branch and max(my_floor, their_floor) < min(mine.below, theirs.below)
        )
        return max(common, default=0)

    def home_of(self, snapshot_id: int) -> str | None:
        """Return the branch in whose folder a snapshot of this history lies; None for the table's own."""
        home = self.branch
        for part in self.past:
            if snapshot_id >= part.below:
                break
            home = part.branch
        return home

    @property
    def latest_hint_path(self) -> str:
        return f"{self.snapshot_folder}/LATEST"

    @property
    def earliest_hint_path(self) -> str:
        return f"{self.snapshot_folder}/EARLIEST"

    def schema_path(self, schema_id: int) -> str:
        return f"{self.schema_folder}/schema-{schema_id}"

    def tag_path(self, name: str) -> str:
        return f"{self.tag_folder}/tag-{name}"

    def consumer_path(self, consumer_id: str) -> str:
        return f"{self.consumer_folder}/consumer-{consumer_id}"

    def branch_file_path(self, name: str) -> str:
        """A file directly in the branch's folder, such as FORK."""
        return self._own(name)

    # What all branches share

    def manifest_path(self, name: str) -> str:
        """A manifest, manifest list or index manifest."""
        return f"{MANIFEST_FOLDER}/{name}"

    @property
    def savepoint_folder(self) -> str:
        """Savepoints of all branches lie together: their ids are the table's."""
        return "savepoint"

    def savepoint_path(self, savepoint_id: int) -> str:
        return f"{self.savepoint_folder}/savepoint-{savepoint_id}"

    def deleted_savepoint_path(self, savepoint_id: int) -> str:
        """The empty file that remains of a deleted savepoint, so that its id is not given out again."""
        return f"{self.savepoint_path(savepoint_id)}{_DELETED}"

    def history_path(self, name: str) -> str:
        """A file about snapshots that are gone; those of all branches lie together, so that they outlive them."""
        return f"{HISTORY_FOLDER}/{name}"

    def index_path(self, name: str) -> str:
        return f"{INDEX_FOLDER}/{name}"

    def statistics_path(self, name: str) -> str:
        return f"{STATISTICS_FOLDER}/{name}"

    def bucket_path(self, partition: str, bucket: int) -> str:
        """Folder of a bucket; `partition` is the partition's folder, ``""`` without partitions."""
        return f"{partition}/bucket-{bucket}" if partition else f"bucket-{bucket}"

    def data_path(self, partition: str, bucket: int, file_name: str) -> str:
        """A data file or one of its extra files; `partition` as in `bucket_path`."""
        return f"{self.bucket_path(partition, bucket)}/{file_name}"

    def branches_file_path(self, name: str) -> str:
        """A file beside the branches' folders, such as the pointer to main."""
        return f"{BRANCH_FOLDER}/{name}"

    def _parts(self) -> list[tuple[Part, int]]:
        """All parts of the history, newest first, each with the number at which it begins."""
        floors = [*(part.below for part in self.past), 0]
        return [*zip([Part(_MAX_ID, self.branch), *self.past], floors, strict=True)]

    def _folder_of(self, snapshot_id: int) -> str:
        if not self.past:
            return self.snapshot_folder
        return Layout(self.home_of(snapshot_id)).snapshot_folder

    def _own(self, name: str) -> str:
        root = self.branch_root
        return f"{root}/{name}" if root else name


def data_file_name(uuid: str, number: int, file_format: str) -> str:
    """Name of a writer's data file; `uuid` is the writer's, `number` counts its files from 0."""
    return f"data-{uuid}-{number}.{file_format}"


def manifest_name(uuid: str, number: int) -> str:
    """Name of a commit's manifest; `uuid` is the commit's, `number` counts its manifests from 0."""
    return f"manifest-{uuid}-{number}"


def manifest_list_name(uuid: str, number: int) -> str:
    """Name of a commit's manifest list, counted apart from its manifests."""
    return f"{LIST_PREFIX}{uuid}-{number}"


def file_format_of(file_name: str) -> str:
    """The format of a data file: the last extension of its name, ``""`` if it has none."""
    return file_name.rpartition(".")[2] if "." in file_name else ""


# Names back to ids. Each takes a name or a path, and returns None for whatever is not exactly such a name:
# folders of a table also hold hints, unfinished writes and files of other programs.


def snapshot_id_of(name: str) -> int | None:
    """12 for ``snapshot-12``."""
    return numbered_id(name, "snapshot-")


def schema_id_of(name: str) -> int | None:
    """3 for ``schema-3``."""
    return numbered_id(name, "schema-")


def savepoint_id_of(name: str) -> int | None:
    """4 for ``savepoint-4``."""
    return numbered_id(name, "savepoint-")


def deleted_savepoint_id_of(name: str) -> int | None:
    """4 for ``savepoint-4.deleted``."""
    return savepoint_id_of(name.removesuffix(_DELETED)) if name.endswith(_DELETED) else None


def bucket_of_folder(name: str) -> int | None:
    """2 for ``bucket-2``; ``bucket-postpone`` and negative buckets are not buckets of append tables."""
    return numbered_id(name, "bucket-")


def tag_name_of(name: str) -> str | None:
    """``good`` for ``tag-good``."""
    return _suffix(name, "tag-")


def consumer_id_of(name: str) -> str | None:
    """``etl`` for ``consumer-etl``."""
    return _suffix(name, "consumer-")


def branch_name_of(name: str) -> str | None:
    """``fix`` for ``branch-fix``."""
    return _suffix(name, "branch-")


def numbered_id(name: str, prefix: str) -> int | None:
    """The id in `prefix` + id, which must be written in the shortest way and fit 63 bits."""
    digits = _suffix(name, prefix)
    if digits is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    number = int(digits)
    return number if number <= _MAX_ID and str(number) == digits else None


def check_file_name(name: str, *, path: str) -> None:
    """Refuse a file name, found in the file `path` of the table, that is not one plain name.

    Raises:
        CorruptTableError: the name is empty, ``.`` or ``..``, or has a separator or a control character.
    """
    if name in ("", ".", "..") or "/" in name or "\\" in name or _UNPRINTABLE.search(name):
        raise CorruptTableError(
            f"names the file {name!r}; expected a plain file name without separators",
            path=path,
            hint="The metadata is damaged or was not written by a table engine; nothing was read or changed.",
        )


def check_file_names(file_names: Sequence[str], *, path: str) -> None:
    """Refuse file names as `check_file_name` does; thousands of good ones are looked at together."""
    joined = "".join(file_names)
    plain = joined.isascii() and joined.isprintable()  # the search is slow
    is_plain = not ("/" in joined or "\\" in joined) and (plain or not _UNPRINTABLE.search(joined))
    if not is_plain or not {"", ".", ".."}.isdisjoint(file_names):
        for name in file_names:
            check_file_name(name, path=path)


_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def _suffix(name: str, prefix: str) -> str | None:
    base = name.rpartition("/")[2]
    return base[len(prefix) :] if base.startswith(prefix) and len(base) > len(prefix) else None
