"""A streaming lakehouse for PySpark: append-only tables in the open Apache Paimon format."""

from typing import TYPE_CHECKING

from anabranch.errors import *  # noqa: F403 - the whole tree is public
from anabranch.errors import __all__ as _errors
from anabranch.lazy import lazy_names
from anabranch.version import __version__

if TYPE_CHECKING:
    from anabranch.audit.verdict import Verdict
    from anabranch.compare import Diff
    from anabranch.duck import duckdb
    from anabranch.expr import col
    from anabranch.jobs import Job, Source, files, job, sql_job, static, stream, topic
    from anabranch.kernel.branches.branch_info import BranchInfo
    from anabranch.kernel.merge.result import MergeResult
    from anabranch.kernel.refs.moment import Moment
    from anabranch.kernel.replacement.result import ReplaceResult
    from anabranch.lake import Lake, connect
    from anabranch.savepoint_manager import SavepointManager
    from anabranch.scan import Scan
    from anabranch.spec.refs import Tag
    from anabranch.spec.savepoint import Savepoint
    from anabranch.spec.schema import TableSchema
    from anabranch.spec.snapshot import Snapshot
    from anabranch.table import Table

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
    "Moment": "anabranch.kernel.refs.moment",
    "ReplaceResult": "anabranch.kernel.replacement.result",
    "Savepoint": "anabranch.spec.savepoint",
    "SavepointManager": "anabranch.savepoint_manager",
    "Scan": "anabranch.scan",
    "Snapshot": "anabranch.spec.snapshot",
    "Table": "anabranch.table",
    "TableSchema": "anabranch.spec.schema",
    "Tag": "anabranch.spec.refs",
    "Verdict": "anabranch.audit.verdict",
    "col": "anabranch.expr",
    "connect": "anabranch.lake",
    "duckdb": "anabranch.duck",
}


__getattr__ = lazy_names(__name__, _HOMES, packages=("spark",))
