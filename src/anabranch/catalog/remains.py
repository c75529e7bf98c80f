"""Removal of tables, and what an interrupted one leaves behind.

Dropping a table renames its folder at once. Object stores cannot do that: there the schemas are deleted
first, so that the table stops existing, and the snapshots last, so that nobody creates another one in its
place before the drop is done. An interrupted drop is completed by the next one.
"""

from __future__ import annotations

from anabranch.catalog.identifier import Identifier
from anabranch.catalog.place import DATABASE_SUFFIX
from anabranch.errors import UnsupportedFeatureError
from anabranch.format.records.layout import HISTORY_FOLDER, Layout
from anabranch.storage.protocol import Storage

_DROPPED = ".dropped-"
"""Prefix of the folder names of dropped tables."""
_METADATA = frozenset({
    "schema", "snapshot", "tag", "branch", "consumer", "savepoint", "changelog", "ledger", HISTORY_FOLDER
})  # fmt: skip
"""Folders that would affect a new table in the same place; names of data files and manifests are unique."""


def remove_table(warehouse: Storage, identifier: Identifier, unique: str) -> None:
    """Remove the folder of a table; `unique` names it while that goes on."""
    database = f"{identifier.database}{DATABASE_SUFFIX}"
    try:
        warehouse.rename_folder(identifier.path, f"{database}/{_DROPPED}{unique}")
    except UnsupportedFeatureError:
        _remove_in_order(warehouse, identifier.path)
        return
    for folder in warehouse.list_folders(database):
        if folder.rpartition("/")[2].startswith(_DROPPED):
            warehouse.delete_folder(folder)


def has_remains(warehouse: Storage, path: str) -> bool:
    """Whether metadata is left in the folder of a table that no longer exists."""
    found = [f for f in warehouse.list_folders(path) if f.rpartition("/")[2] in _METADATA]
    return any(True for folder in found for _ in warehouse.list(folder, recursive=True))


def remove_empty(warehouse: Storage, folder: str) -> None:
    """Remove a folder and those inside of it, as far as nothing is in them."""
    for inner in warehouse.list_folders(folder):
        remove_empty(warehouse, inner)
    warehouse.delete_empty_folder(folder)


def _remove_in_order(warehouse: Storage, path: str) -> None:
    schemas, snapshots = f"{path}/{Layout().schema_folder}", f"{path}/{Layout().snapshot_folder}"
    others = [f for f in warehouse.list_folders(path) if f not in (schemas, snapshots)]
    warehouse.delete_folder(schemas)
    for folder in others:
        warehouse.delete_folder(folder)
    loose = [info.path for info in warehouse.list(path, include_temporary=True)]
    if loose:
        warehouse.delete_many(loose)
    warehouse.delete_folder(snapshots)
