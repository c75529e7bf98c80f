"""OpenLineage facets, the parts of events, including two of our own; and the facts about a commit that fill them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import attr
import polars as pl
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    RunFacet,
    dataset_version_dataset,
    job_type_job,
    schema_dataset,
    source_code_location_job,
    symlinks_dataset,
    tags_job,
)

from anabranch.catalog.filesystem import FilesystemCatalog
from anabranch.catalog.folders import Identifier
from anabranch.errors import AnabranchError, InvalidNameError
from anabranch.format.records.data_file import FileKind
from anabranch.format.records.layout import Layout
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.lineage.commit import Commit, Line
from anabranch.lineage.model import LineageEntry, SourceInput, TableInput
from anabranch.lineage.store import names_of
from anabranch.version import __version__

# Dataset names in OpenLineage, chosen so that they match those of other producers.
#
# The conventions are OpenLineage's: a dataset is named by its store (the namespace) and its path there. A table in a
# warehouse is the folder it lies in, and its usual name is a symlink. A topic is in its cluster, files in their store.

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


PRODUCER = f"urn:anabranch:openlineage:{__version__}"
"""URI of the producer of the events."""

_DEFINITIONS = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs"
_GIT_COMMIT = 40
"""Hexadecimal digits of a git commit."""


@attr.define
class CommitsRunFacet(RunFacet):
    """Our facet ``anabranch_commits``: the commits that the event reports."""

    commits: int
    sinks: list[dict[str, object]]

    @staticmethod
    def _get_schema() -> str:
        return f"{_DEFINITIONS}/RunFacet"


@attr.define
class RangesInputFacet(InputDatasetFacet):
    """Our facet ``anabranch_ranges``: what was read, snapshots of a table or offsets of another source."""

    ranges: list[dict[str, object]]
    """Each with ``after`` (exclusive; the beginning if absent) and ``through`` (inclusive)."""

    @staticmethod
    def _get_schema() -> str:
        return f"{_DEFINITIONS}/InputDatasetFacet"


def job_facets(entry: LineageEntry) -> dict[str, JobFacet]:
    """Return the job's type and the version of its code; a git commit gets a URL everywhere."""
    is_stream = entry.engine.query is not None
    facets: dict[str, JobFacet] = {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if is_stream else "BATCH",
            integration=entry.engine.name.upper() or "ANABRANCH",
            jobType="MERGE" if entry.taken is not None else "JOB",
            producer=PRODUCER,
        )
    }
    code = entry.code
    if code is not None:
        facets["tags"] = tags_job.TagsJobFacet(
            [tags_job.TagsJobFacetFields("code-version", code, "anabranch")], producer=PRODUCER
        )
        if len(code) == _GIT_COMMIT and not code.strip("0123456789abcdef"):
            facets["sourceCodeLocation"] = source_code_location_job.SourceCodeLocationJobFacet(
                "git", f"swh:1:rev:{code}", version=code, producer=PRODUCER
            )
    return facets


def place_facets(name: Name) -> dict[str, DatasetFacet]:
    """Return a symlink facet with the name people use for a dataset, if it differs from its own."""
    if name.alias is None:
        return {}
    alias = symlinks_dataset.Identifier(name.alias.namespace, name.alias.name, "TABLE")
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet([alias], producer=PRODUCER)}


def version_facet(snapshot: int, stamp: str | None) -> DatasetFacet:
    """Return a table version: ids can be reused after a rollback; with the stamp a version is unique."""
    text = str(snapshot) if stamp is None else f"{snapshot}-{stamp}"
    return dataset_version_dataset.DatasetVersionDatasetFacet(text, producer=PRODUCER)


def schema_facet(columns: Sequence[Field]) -> DatasetFacet:
    """Return the columns in order, with their SQL types."""
    return schema_dataset.SchemaDatasetFacet(
        [
            schema_dataset.SchemaDatasetFacetFields(
                column.name, str(column.type), description=column.description, ordinal_position=place
            )
            for place, column in enumerate(columns, 1)
        ],
        producer=PRODUCER,
    )


# Facts about a commit read from its table: its columns, and how much it wrote.
#
# Both are optional parts of an event. What cannot be read, because the snapshot has expired or the branch is gone, is
# left out; nothing here raises for it.


@dataclass(frozen=True, slots=True)
class Written:
    """Rows, bytes and files added by commits."""

    rows: int
    bytes: int | None = None
    """None if not known of all commits."""
    files: int | None = None

    def plus(self, other: Written) -> Written:
        """Return the sum of both."""
        whole = None not in (self.bytes, other.bytes, self.files, other.files)
        return Written(
            self.rows + other.rows,
            (self.bytes or 0) + (other.bytes or 0) if whole else None,
            (self.files or 0) + (other.files or 0) if whole else None,
        )


@dataclass
class Facts:
    """Reads facts from the tables of a warehouse."""

    catalog: FilesystemCatalog
    lines: Mapping[str, Line]
    """Known branches, by identity."""
    _open: dict[str, TableContext | None] = field(default_factory=dict)
    _columns: dict[tuple[str, int], tuple[Field, ...] | None] = field(default_factory=dict)

    def columns(self, commit: Commit) -> tuple[Field, ...] | None:
        """Return the columns of the table as of the commit; None if no longer known."""
        key = (commit.branch_uuid, commit.schema_id)
        if key not in self._columns:
            self._columns[key] = self._read_columns(commit)
        return self._columns[key]

    def written(self, commit: Commit) -> Written | None:
        """Return what the commit added; only rows if its snapshot has expired, None if not even these are known."""
        context = self._context(commit.branch_uuid)
        try:
            snapshot = None if context is None else context.snapshots.find(commit.snapshot)
            if context is not None and snapshot is not None and snapshot.stamp == commit.stamp:
                metas = context.manifests.read_list(snapshot.delta_manifest_list)
                entries = context.manifests.entries(metas, only=("kind", "file_size", "row_count")).df
                added = entries.filter(pl.col("kind") == int(FileKind.ADD))
                return Written(int(added["row_count"].sum()), int(added["file_size"].sum()), added.height)
        except AnabranchError:  # it expires while it is read
            pass
        return Written(commit.added) if commit.kind == "APPEND" and commit.added >= 0 else None

    def _read_columns(self, commit: Commit) -> tuple[Field, ...] | None:
        context = self._context(commit.branch_uuid)
        try:
            schema = None if context is None else context.schemas.find(commit.schema_id)
        except AnabranchError:
            return None
        return None if schema is None else tuple(schema.fields)

    def _context(self, branch_uuid: str) -> TableContext | None:
        """Return the branch, if the one under its name is still the same."""
        if branch_uuid not in self._open:
            line = self.lines.get(branch_uuid)
            try:
                context = None if line is None else self._opened(line)
            except AnabranchError:
                context = None
            found = context is not None and context.branch_uuid == branch_uuid
            self._open[branch_uuid] = context if found else None
        return self._open[branch_uuid]

    def _opened(self, line: Line) -> TableContext:
        table = self.catalog.open(Identifier.parse(line.table))
        return table if table.branch_uuid == line.branch_uuid else table.on_branch(line.branch)
