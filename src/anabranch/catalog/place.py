"""Checks whether a location can be a warehouse; done only if none of its databases is found, so it is cheap."""

from __future__ import annotations

from pathlib import Path

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.records.layout import Layout
from anabranch.storage.open import local_folder
from anabranch.storage.protocol import Storage

DATABASE_SUFFIX = ".db"
MARKER = ".database"
"""Object that represents an empty database in stores without folders."""


def check_place(storage: Storage, *, may_be_new: bool) -> None:
    """Raise an error that says what a location without databases is, unless it is an empty warehouse.

    Args:
        storage: rooted at the place.
        may_be_new: whether something is about to be written, so that it need not be there yet.

    Raises:
        InvalidInputError: it is a file, a table or a database, and not a warehouse.
        NotFoundError: nothing is there. Object stores have no folders, so there it may also be empty.
    """
    local = local_folder(storage.url)
    folder = None if local is None else Path(local)
    url = storage.url.rstrip("/") if local is None else local
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InvalidInputError(
            f"{url} is a file, not a warehouse", hint="a warehouse is a folder of databases."
        )
    if folder is not None and not folder.exists():
        if may_be_new:
            return
        raise NotFoundError(
            f"there is no warehouse at {url}",
            hint="check the path; a new warehouse is made by the first table that is created in it, or on the command "
            "line by `--create`.",
        )
    if storage.exists(Layout().schema_path(0)):
        above = url.rpartition("/")[0].rpartition("/")[0]
        raise InvalidInputError(f"{url} is a table, not a warehouse", hint=f"its warehouse is {above}.")
    if _is_database(storage, url):
        raise InvalidInputError(
            f"{url} is a database, not a warehouse", hint=f"its warehouse is {url.rpartition('/')[0]}."
        )


def _is_database(storage: Storage, url: str) -> bool:
    if storage.exists(MARKER):
        return True
    return url.endswith(DATABASE_SUFFIX) and any(
        storage.exists(f"{table}/{Layout().schema_path(0)}") for table in storage.list_folders()
    )
