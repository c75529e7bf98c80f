"""One finding of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from anabranch.spark.jvm.connectors import Connector

Status = Literal["ok", "missing", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One finding: ``ok``, ``missing`` (an optional part), ``warning`` (works with limits) or ``failed``."""

    name: str
    status: Status
    found: str
    remedy: str | None = None
    """The next step."""


def connector_check(connector: Connector, found: str | None, hadoop: str | None) -> MachineCheck:
    """Check whether Spark has the Hadoop connector through which it would read the warehouse.

    Args:
        connector: the one that the warehouse needs.
        found: the version of it that Spark has, if any.
        hadoop: version of Spark's Hadoop, if known.
    """
    if found is not None:
        return MachineCheck("Hadoop's connector", "ok", found)
    return MachineCheck(
        "Hadoop's connector",
        "missing",
        f"Spark has no {connector.name}: Python reads the tables, and not Spark's own Parquet reader; checkpoints lie on "
        "the driver's disk, with copies of state in the warehouse",
        f"all works without it; to have it: --conf spark.jars.packages={connector.coordinates(hadoop)}",
    )
