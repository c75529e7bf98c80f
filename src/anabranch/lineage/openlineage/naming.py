"""Dataset names in OpenLineage, chosen so that they match those of other producers.

The conventions are OpenLineage's: a dataset is named by its store (the namespace) and its path there. A table in a
warehouse is the folder it lies in, and its usual name is a symlink. A topic is in its cluster, files in their store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from anabranch.catalog.folders import Identifier
from anabranch.errors import InvalidNameError
from anabranch.format.records.layout import Layout
from anabranch.lineage.commit import Line
from anabranch.lineage.model import SourceInput, TableInput
from anabranch.lineage.store import names_of

UNKNOWN = "unknown"
"""Namespace of sources whose location is unknown."""

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasb": "wasbs", "abfs": "abfss"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Name:
    """Name of a dataset."""

    namespace: str
    name: str
    alias: Name | None = None
    """The name people use."""


@dataclass(frozen=True)
class Naming:
    """Dataset names of one warehouse."""

    warehouse: str
    """Its URL."""
    lines: Mapping[str, Line]
    """Known branches, by identity."""
    kafka: str = "kafka"
    """Namespace of topics: ``kafka://host:port``. Topic positions do not say which cluster they belong to."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """URLs of the warehouses of branches that lie in another one, by branch identity."""

    def of_branch(self, branch_uuid: str, otherwise: str = "") -> Name:
        """Return the name of a table's branch; `otherwise` is its title if the branch is not known."""
        line = self.lines.get(branch_uuid)
        if line is None:
            return self.of_title(otherwise)
        folder = None if line.branch is None or line.is_main else line.branch
        warehouse = self.elsewhere.get(branch_uuid, self.warehouse)
        return _located(warehouse, line.table, folder, line.title)

    def of_title(self, title: str) -> Name:
        """Return the name of a table by its title, ``db.t`` or ``db.t$branch_fix``."""
        try:
            found = Identifier.parse(title)
        except InvalidNameError:
            return Name(UNKNOWN, title or UNKNOWN)
        return _located(self.warehouse, found.full_name, found.branch, title)

    def of_table(self, read: TableInput) -> Name:
        """Return the name of a table that was read."""
        return self.of_branch(read.branch_uuid, read.name)

    def of_source(self, read: SourceInput, job: str) -> tuple[Name, ...]:
        """Return the names of a source other than a table: one for each topic, a folder, or whatever is known."""
        names = names_of(read, job)
        if read.kind == "kafka":
            return tuple(Name(self.kafka, topic) for topic in names)
        return tuple(of_location(name) if read.kind == "files" else Name(UNKNOWN, name) for name in names)


def of_location(url: str) -> Name:
    """Return the name of something in a store, by URL or path: ``s3://bucket/a/b`` is ``a/b`` in ``s3://bucket``."""
    if not _URL.match(url):
        return Name("file", url or "/")
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = unquote(parts.path)
    if scheme == "file":
        return Name("file" if parts.netloc in ("", "localhost") else f"file://{parts.netloc}", path or "/")
    if not parts.netloc:
        return Name(scheme, path or "/")
    return Name(f"{scheme}://{parts.netloc}", path.strip("/") or "/")


def _located(warehouse: str, table: str, folder: str | None, title: str) -> Name:
    inner = f"{Identifier.parse(table).path}/{Layout(folder).branch_root}".rstrip("/")
    own = of_location(f"{warehouse.rstrip('/')}/{inner}")
    at = of_location(warehouse)
    if "://" in at.namespace:
        known = f"{at.namespace}/{at.name.strip('/')}".rstrip("/")
    else:
        known = f"{at.namespace}:{at.name}"
    return Name(own.namespace, own.name, Name(known, title))
