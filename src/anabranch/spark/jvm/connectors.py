"""Hadoop connectors that Spark needs to read object stores. PySpark comes without them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Connector:
    """A Hadoop connector."""

    name: str
    group: str
    """Maven group."""
    has_hadoops_version: bool = True

    def coordinates(self, hadoop: str | None) -> str:
        """Maven coordinates, for ``spark.jars.packages``.

        Args:
            hadoop: version of Spark's Hadoop, if it is known.
        """
        version = hadoop if self.has_hadoops_version and hadoop is not None else "VERSION"
        return f"{self.group}:{self.name}:{version}"


_AWS = Connector("hadoop-aws", "org.apache.hadoop")
_AZURE = Connector("hadoop-azure", "org.apache.hadoop")
_GOOGLE = Connector("gcs-connector", "com.google.cloud.bigdataoss", has_hadoops_version=False)
CONNECTORS: Mapping[str, Connector] = {
    **dict.fromkeys(("s3", "s3a"), _AWS),
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _AZURE),
    "gs": _GOOGLE,
}
"""Connectors by URL scheme."""


def connector_for(url: str) -> Connector | None:
    """Return the connector that a location needs; None for a folder."""
    return CONNECTORS.get(url.partition(":")[0].lower()) if "://" in url else None


def jars_of_spark() -> Path | None:
    """The folder of Spark's jars; None if it is not installed."""
    home = os.environ.get("SPARK_HOME")
    spec = None if home else util.find_spec("pyspark")
    places = [home] if home else [] if spec is None else list(spec.submodule_search_locations or ())
    found = (Path(place, "jars") for place in places)
    return next((jars for jars in found if jars.is_dir()), None)


def hadoop_version(jars: Path) -> str | None:
    """The version of Hadoop among the jars."""
    found = (jar.stem.removeprefix("hadoop-client-api-") for jar in jars.glob("hadoop-client-api-*.jar"))
    return next(found, None)
