"""The parts of events: facets of OpenLineage, and two of our own."""

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
"""Who says it: a URI."""

_DEFINITIONS = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs"
_GIT_COMMIT = 40
"""Hexadecimal digits of one."""


@attr.define
class CommitsRunFacet(RunFacet):
    """Ours, ``anabranch_commits``: which commits the event tells."""

    commits: int
    sinks: list[dict[str, object]]

    @staticmethod
    def _get_schema() -> str:
        return f"{_DEFINITIONS}/RunFacet"


@attr.define
class RangesInputFacet(InputDatasetFacet):
    """Ours, ``anabranch_ranges``: what went in, snapshots of a table or offsets of another source."""

    ranges: list[dict[str, object]]
    """Each with ``after`` (exclusive; the beginning if absent) and ``through`` (inclusive)."""

    @staticmethod
    def _get_schema() -> str:
        return f"{_DEFINITIONS}/InputDatasetFacet"


def job_facets(entry: LineageEntry) -> dict[str, JobFacet]:
    """What kind of job it is, and the version of its code; a git commit has an address everywhere."""
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
    """What people call a dataset, if that is not what it is named by."""
    if name.alias is None:
        return {}
    alias = symlinks_dataset.Identifier(name.alias.namespace, name.alias.name, "TABLE")
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet([alias], producer=PRODUCER)}


def version_facet(snapshot: int, stamp: str | None) -> DatasetFacet:
    """A version of a table: a number alone is used again after a rollback; with the stamp it is one version for ever."""
    text = str(snapshot) if stamp is None else f"{snapshot}-{stamp}"
    return dataset_version_dataset.DatasetVersionDatasetFacet(text, producer=PRODUCER)


def schema_facet(columns: Sequence[Field]) -> DatasetFacet:
    """Columns in their order, with their types as SQL spells them."""
    return schema_dataset.SchemaDatasetFacet(
        [
            schema_dataset.SchemaDatasetFacetFields(
                column.name, str(column.type), description=column.description, ordinal_position=place
            )
            for place, column in enumerate(columns, 1)
        ],
        producer=PRODUCER,
    )
