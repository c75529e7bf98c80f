"""Opens a store from a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from anabranch.errors import OptionError, UnsupportedFeatureError
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.protocol import Storage

OBJECT_STORE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")


def open_storage(
    url: str | os.PathLike[str], options: Mapping[str, str] | None = None, *, runtime: Runtime = SYSTEM
) -> Storage:
    """The store at a URL or at a path of this machine. Nothing is asked of it yet, and nothing created.

    Args:
        url: a path (``~`` is the home folder), ``file:///folder`` (percent-encoded), ``memory://name``,
            ``s3://bucket/folder``, ``gs://bucket/folder``, ``az://container/folder`` or
            ``abfss://container@account.dfs.core.windows.net/folder`` (these are taken as spelled).
        options: settings of object stores such as ``s3.endpoint``; keys that are not the store's are
            not looked at.
        runtime: time, chance and waiting.

    Raises:
        OptionError: the scheme is unknown or lacks its slashes, or an option is unknown.
        InvalidNameError: the folder is no acceptable name.
    """
    place = os.fspath(url)
    _refuse_keys(place)
    match = _SCHEME.match(place)
    if match is None:
        if not place:
            raise OptionError("the place of the store is empty", hint="Give a path or a URL.")
        short = _WITHOUT_SLASHES.match(place)
        if short is not None:
            raise OptionError(
                f"{place} is no URL of a store: the two slashes are missing",
                hint=f"Write {short[1]}://{short[2]}; or ./{place} for a folder of that name.",
            )
        return LocalStorage(os.path.expanduser(place), runtime=runtime)  # noqa: PTH111 - no Path here
    scheme, rest = match[1].lower(), place[match.end() :]
    if scheme == "file":
        return LocalStorage(_local_path(place, rest), runtime=runtime)
    if scheme == "memory":
        name, _, folder = rest.removeprefix("//").rstrip("/").partition("/")
        if not name:
            raise OptionError(f"{place} names no store", hint="Write it like memory://name.")
        return MemoryStorage(name, runtime=runtime).scoped(folder)
    if scheme in OBJECT_STORE_SCHEMES:
        from anabranch.storage.objects import ObjectStorage  # takes long to load

        return ObjectStorage.open(place, options, runtime=runtime)
    known = ", ".join(("file", "memory", *OBJECT_STORE_SCHEMES))
    raise OptionError(f"{place} is in no known kind of store", hint=f"Known schemes are {known}.")


def settings_of(storage: Storage) -> Mapping[str, str]:
    """The options with which `open_storage` opens this store by its URL in another process; they hold credentials.

    Raises `UnsupportedFeatureError` for a store that only this process can open.
    """
    if isinstance(storage, LocalStorage):
        return {}
    if storage.url.partition("://")[0].lower() in OBJECT_STORE_SCHEMES:
        from anabranch.storage.objects import ObjectStorage  # takes long to load

        if isinstance(storage, ObjectStorage) and storage.settings is not None:
            return storage.settings
    raise UnsupportedFeatureError(
        f"{storage.url} cannot be opened by another process",
        feature="storage-of-one-process",
        hint="keep the table under a folder or in an object store, and open that by its URL.",
    )


def local_folder(url: str) -> str | None:
    """The folder of this machine that a path or URL names; None for a store of another kind. Raises `OptionError`."""
    match = _SCHEME.match(url)
    if match is None:
        return os.path.expanduser(url)  # noqa: PTH111 - no Path here
    return _local_path(url, url[match.end() :]) if match[1].lower() == "file" else None


def _refuse_keys(place: str) -> None:
    """Refuse keys in the place of a bucket's name: a URL is shown in messages, plans and logs."""
    match = _OBJECT_PLACE.match(place)
    if match is None:
        return
    scheme, bucket = match[1].lower(), match[2]
    if ":" in bucket or ("@" in bucket and scheme not in _WITH_HOST):
        raise OptionError(
            f"the URL {match[1]}://... has something other than a bucket in front of its first slash, as keys are written "
            "there for other tools",
            hint="Give keys as options, such as s3.access-key and s3.secret-key, or in the environment; a URL is shown.",
        )


# file:/folder is what Hadoop writes; of all other schemes a URL has two slashes.
_SCHEME: Final = re.compile(r"(file(?=:)|[a-z][a-z0-9+.-]*(?=://)):", re.IGNORECASE)

_OBJECT_PLACE: Final = re.compile(rf"({'|'.join(OBJECT_STORE_SCHEMES)}):/*([^/]*)", re.IGNORECASE)
_WITH_HOST: Final = ("az", "azure", "abfs", "abfss")
"""Schemes whose URLs may name a container and a host: ``container@host``."""

_WITHOUT_SLASHES: Final = re.compile(
    rf"({'|'.join(('memory', *OBJECT_STORE_SCHEMES))}):/?(.*)", re.IGNORECASE
)


def _local_path(url: str, rest: str) -> str:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            raise OptionError(
                f"{url} names the host {host!r}",
                hint="Files are local: write file:///folder with three slashes.",
            )
        rest = slash + path
    decoded = unquote(rest, errors="surrogateescape")
    if not decoded.startswith("/") or "\0" in decoded:
        raise OptionError(f"{url} names no folder", hint="Write it like file:///folder.")
    return decoded
