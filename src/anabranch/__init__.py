"""A streaming lakehouse for PySpark: append-only tables in the open Apache Paimon format."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.errors import *  # noqa: F403 - the whole tree is public
from anabranch.errors import __all__ as _errors
from anabranch.version import __version__

if TYPE_CHECKING:
    from anabranch.expr import col
    from anabranch.kernel.refs.moment import Moment
    from anabranch.lake import Lake, connect
    from anabranch.savepoint_manager import SavepointManager
    from anabranch.scan import Scan
    from anabranch.spec.refs import Tag
    from anabranch.spec.savepoint import Savepoint
    from anabranch.spec.schema import TableSchema
    from anabranch.spec.snapshot import Snapshot
    from anabranch.table import Table

__all__ = [  # noqa: PLE0604 - the errors are named once, in their own module
    "Lake",
    "Moment",
    "Savepoint",
    "SavepointManager",
    "Scan",
    "Snapshot",
    "Table",
    "TableSchema",
    "Tag",
    "__version__",
    "col",
    "connect",
    *_errors,
]

_HOMES = {
    "Lake": "anabranch.lake",
    "Moment": "anabranch.kernel.refs.moment",
    "Savepoint": "anabranch.spec.savepoint",
    "SavepointManager": "anabranch.savepoint_manager",
    "Scan": "anabranch.scan",
    "Snapshot": "anabranch.spec.snapshot",
    "Table": "anabranch.table",
    "TableSchema": "anabranch.spec.schema",
    "Tag": "anabranch.spec.refs",
    "col": "anabranch.expr",
    "connect": "anabranch.lake",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that the command line answers --help without loading Arrow.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "spark":
        return import_module("anabranch.spark")
    raise AttributeError(f"module 'anabranch' has no attribute '{name}'")
