"""OpenLineage facets, the parts of events, including two of our own."""

from __future__ import annotations

from collections.abc import Sequence

import attr
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

from anabranch.format.types.data_types import Field
from anabranch.lineage.model import LineageEntry
from anabranch.lineage.openlineage.naming import Name
from anabranch.version import __version__

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
