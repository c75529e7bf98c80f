"""A streaming lakehouse for PySpark: append-only tables in the open Apache Paimon format."""

from typing import TYPE_CHECKING

from anabranch.errors import *  # noqa: F403 - the whole tree is public
from anabranch.errors import __all__ as _errors
from anabranch.lazy import lazy_names
from anabranch.version import __version__

if TYPE_CHECKING:
    from anabranch.audit.run import Verdict
    from anabranch.compare import Diff
    from anabranch.duck import duckdb
    from anabranch.expr import col
    from anabranch.format.records.refs import Tag
    from anabranch.format.records.savepoint import Savepoint
    from anabranch.format.records.snapshot import Snapshot
    from anabranch.format.schema.table_schema import TableSchema
    from anabranch.jobs import Job, Source, files, job, sql_job, static, stream, topic
    from anabranch.kernel.branches.branch_info import BranchInfo
    from anabranch.kernel.log.moment import Moment
    from anabranch.kernel.merge.result import MergeResult
    from anabranch.kernel.replacement.result import ReplaceResult
    from anabranch.lake import Lake, connect
    from anabranch.long_work import progress
    from anabranch.scan.scan import Scan
    from anabranch.storage.requests import requests
    from anabranch.table import Table
    from anabranch.table.savepoint_manager import SavepointManager

__all__ = [  # noqa: PLE0604 - the errors are named once, in their own module
    "BranchInfo",
    "Diff",
    "Job",
    "Lake",
    "MergeResult",
    "Moment",
    "ReplaceResult",
    "Savepoint",
    "SavepointManager",
    "Scan",
    "Snapshot",
    "Source",
    "Table",
    "TableSchema",
    "Tag",
    "Verdict",
    "__version__",
    "col",
    "connect",
    "duckdb",
    "files",
    "job",
    "progress",
    "requests",
    "sql_job",
    "static",
    "stream",
    "topic",
    *_errors,
]

_HOMES = {
    **dict.fromkeys(
        ("Job", "Source", "files", "job", "sql_job", "static", "stream", "topic"), "anabranch.jobs"
    ),
    "BranchInfo": "anabranch.kernel.branches.branch_info",
    "Diff": "anabranch.compare",
    "Lake": "anabranch.lake",
    "MergeResult": "anabranch.kernel.merge.result",
    "Moment": "anabranch.kernel.log.moment",
    "ReplaceResult": "anabranch.kernel.replacement.result",
    "Savepoint": "anabranch.format.records.savepoint",
    "SavepointManager": "anabranch.table.savepoint_manager",
    "Scan": "anabranch.scan.scan",
    "Snapshot": "anabranch.format.records.snapshot",
    "Table": "anabranch.table",
    "TableSchema": "anabranch.format.schema.table_schema",
    "Tag": "anabranch.format.records.refs",
    "Verdict": "anabranch.audit.run",
    "col": "anabranch.expr",
    "connect": "anabranch.lake",
    "duckdb": "anabranch.duck",
    "progress": "anabranch.long_work",
    "requests": "anabranch.storage.requests",
}


if not TYPE_CHECKING:  # to which it would mean that there is every name
    __getattr__ = lazy_names(__name__, _HOMES, packages=("spark",))
