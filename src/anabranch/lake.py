"""The entry point: a warehouse of databases and tables."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.catalog import FilesystemCatalog, Identifier
from anabranch.catalog.connectors import Connectors
from anabranch.engine import Engine, LocalEngine, WrittenRows
from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import name_list
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.replacement.request import ExpectedMain
from anabranch.kernel.replacement.result import GroupInfo, GroupResult, group_infos
from anabranch.kernel.replacement.undo_group import group_to_undo, members_of, undo_group
from anabranch.lineage.code_version import git_commit
from anabranch.lineage.recording import JobRun, running
from anabranch.runtime import SYSTEM, Runtime
from anabranch.schemas import to_columns
from anabranch.storage.open import open_storage
from anabranch.storage.protocol import Storage
from anabranch.system_tables import lake_table_of, read_lake_table
from anabranch.table import Table
from anabranch.table.creating import Creation
from anabranch.table.grouping import pinned_together, replace_together
from anabranch.table.lake_lineage import LakeLineage
from anabranch.tabular import Glance

if TYPE_CHECKING:
    from anabranch.cascade import CascadePlan, CascadeResult


class Lake:
    """A warehouse. Get one from `anabranch.connect`.

    Example:
        >>> lake.tables("db")
        ['copy', 'orders']
        >>> made = lake.create_table("db.daily", data=[{"day": "2026-01-01", "orders": 2}])
        >>> lake.sql("SELECT day, orders FROM db.daily").collect()
        [{'day': '2026-01-01', 'orders': 2}]
        >>> lake.drop_table("db.daily")
    """

    def __init__(
        self,
        storage: Storage,
        *,
        spark: Any = None,
        options: Mapping[str, str] | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Make a lake; use `connect` to open one.

        Args:
            storage: rooted at the warehouse.
            spark: a session that knows the warehouse.
            options: credentials and endpoint of the store, for Spark's processes.
            runtime: source of times and names.

        Raises:
            InvalidInputError: a path in place of the storage.
        """
        if isinstance(storage, (str, os.PathLike)):
            path = os.fspath(storage)
            raise InvalidInputError(
                f"Lake({path!r}) cannot open a warehouse", hint=f"open it with anabranch.connect({path!r})."
            )
        self._options = dict(options or {})
        self._runtime = runtime
        self.catalog = FilesystemCatalog(storage, runtime=runtime)
        """Where databases and tables lie; its `storage` is rooted at the warehouse."""
        self._spark = spark
        self._engine = _engine(spark)
        self._lineage = LakeLineage(self.catalog, self._options)
        self._statements: Any = None

    def __repr__(self) -> str:
        return f"<Lake {self.url}>"

    def _repr_html_(self) -> str:
        """Show databases and their tables in a notebook."""
        try:
            rows = [(name, ", ".join(self.tables(name))) for name in self.databases()]
        except AnabranchError as error:
            return f"<pre>{html.escape(f'{self!r}: {error.message}')}</pre>"
        return Glance(f"Lake {self.url}", (), ("database", "tables"), rows).html()

    @property
    def url(self) -> str:
        """Location of the warehouse."""
        return self.catalog.storage.url

    @property
    def storage_options(self) -> dict[str, str]:
        """Credentials and endpoint of the store, as they were given to `connect`."""
        return dict(self._options)

    @property
    def spark(self) -> Any:
        """The SparkSession given to `connect`, or None."""
        return self._spark

    @property
    def lineage(self) -> LakeLineage:
        """Which jobs read and write which tables. For the origin of a table's rows use ``lake.table(name).lineage``."""
        return self._lineage

    def databases(self) -> list[str]:
        """Return names of all databases, sorted.

        Raises `NotFoundError` if the warehouse does not exist, `InvalidInputError` if it is a table, database or file.
        """
        found = self.catalog.databases()
        self.catalog.check_there(found)
        return found

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database. Raises `AlreadyExistsError`, `InvalidNameError`."""
        self.catalog.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Remove a database; one with tables only if `cascade`."""
        self.catalog.drop_database(name, cascade=cascade)

    def tables(self, database: str) -> list[str]:
        """Return names of all tables of a database, sorted. Raises `NotFoundError`."""
        return self.catalog.tables(database)

    def create_table(
        self,
        name: str,
        schema: Any = None,
        *,
        data: Any = None,
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Create a table, and its database if needed; with `data`, a table of these rows.

        Args:
            name: ``database.table``.
            schema: a `pyarrow.Schema`, a Spark StructType, fields, or DDL text such as
                ``id BIGINT NOT NULL, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND``. With `data` it may
                be left out: the columns are those of the data.
            data: rows, as `Table.append` takes them. They are written first and the table is made when they are
                complete, so that nothing is left if they are bad; for a Spark DataFrame the table is made first.
            partition_by: names of the partition columns; text is one column.
            options: table options; see the options page.
            comment: text for people.
            if_not_exists: return the existing table, whatever its schema and rows; `data` is not appended to it.

        Raises:
            AlreadyExistsError, SchemaError, OptionError, InvalidNameError, UnsupportedFeatureError: and
            nothing was written.
        """
        identifier = Identifier.parse(name)
        keys = name_list(partition_by, "partition columns")
        if data is not None:
            creation = Creation(
                self.catalog,
                self._engine,
                self._runtime,
                self._opened_table,
                identifier,
                keys,
                options,
                comment,
                if_not_exists,
            )
            return creation.create(data, None if schema is None else to_columns(schema))
        if schema is None:
            raise InvalidInputError(
                f"nothing says what the columns of '{name}' are",
                hint="give the schema, 'id BIGINT NOT NULL, v STRING', or the rows: create_table(name, data=frame).",
            )
        columns = to_columns(schema)
        context = self.catalog.create_table(
            identifier,
            columns.fields,
            partition_by=keys,
            options=columns.options(options),
            comment=comment,
            if_not_exists=if_not_exists,
        )
        return self._opened_table(context)

    def _opened_table(self, context: TableContext) -> Table:
        return Table(context, engine=self._engine, lineage=self._lineage)

    def table(self, name: str) -> Table:
        """Return the table of that name, or a branch of it for ``db.t$branch_<name>``. Raises `NotFoundError`."""
        of_lake = lake_table_of(name)
        if of_lake is not None:
            raise InvalidInputError(
                f"'{name}' names a system table of the warehouse, not a table",
                hint="Python reads it with `lake.system`, the command line with `anabranch read`.",
            )
        identifier = Identifier.parse(name)
        if identifier.system is not None:
            raise InvalidInputError(
                f"'{name}' names the system table '{identifier.system}' of '{identifier.full_name}', not a table",
                hint="Python reads it with `table.system`, the command line with `anabranch read`.",
            )
        return self._opened_table(self.catalog.open_as_far_as_known(identifier))

    def system(self, name: str) -> pa.Table:
        """Read a system table of the warehouse: ``tables``, ``jobs``, ``table_lineage`` or ``snapshot_lineage``.

        Raises `NotFoundError`.
        """
        self.catalog.check_there()
        return read_lake_table(self.catalog, name, self._options)

    def read_stream(self, name: str, *, late_rows: str | None = None, **options: str | int | bool) -> Any:
        """Read a table as a Spark stream in event time: Spark's watermark is the one the table records.

        See `anabranch.spark.read_stream` for the arguments and for tables without a watermark definition.

        Returns:
            A streaming `pyspark.sql.DataFrame`.

        Raises:
            InvalidInputError: the lake has no Spark session.
            NotFoundError: there is no such table.
            OptionError: an option is unknown or is not understood.
        """
        if self._spark is None:
            raise InvalidInputError(
                f"a stream of '{name}' needs Spark, and the lake was opened without",
                hint="open it with anabranch.connect(warehouse, spark=spark), or follow the table with "
                "lake.table(name).tail().",
            )
        from anabranch.spark.streams.read_stream import read_stream

        here = {**self._options, "warehouse": self.url}
        return read_stream(self._spark, name, late_rows=late_rows, **{**here, **options})

    def correct(
        self,
        table: str,
        *,
        from_tag: str,
        jobs: str | os.PathLike[str] | Sequence[Any],
        checks: str | os.PathLike[str] | None = None,
        run: bool = False,
        name: str | None = None,
        checkpoint: str | None = None,
        checkpoints: str | None = None,
    ) -> CascadePlan | CascadeResult:
        """Correct a table from a tag, and everything made from it, and publish all of it together.

        Args:
            table: the wrong table.
            from_tag: a tag of it, up to which it is correct.
            jobs: a file that declares the corrected jobs, or the jobs: those that write the table, and those downstream.
            checks: file of checks that the corrected table must pass before anything is published.
            run: do it, which needs a Spark session; else only the plan is made, and nothing is changed.
            name: of the branches; derived from table and tag if None. Another name begins the same correction anew.
            checkpoint: folder of the checkpoint of main's job, if a single one with a stream among its sources is to run.
            checkpoints: folder with the checkpoints of all jobs, by their names and branches; of the warehouse if None.

        Returns:
            The plan, or with `run` the result. A job that fails raises nothing: its `is_published` says whether the mains are
            corrected, its `failed` and `waiting` why not. Called again after a failure it continues where it was.

        Raises:
            NotFoundError: there is no such table or tag.
            InvalidInputError: the tag is not in the history of main, the lake has no Spark session, or one checkpoint is named
                for several jobs.
            CommitConflictError: an audit failed, or the mains cannot be replaced; all mains are as they were.
            JobTakenError: another process carries it out.
        """
        from anabranch.cascade import CascadeOptions, plan_correction, run_correction
        from anabranch.jobs.load import load

        declared = load(jobs).jobs if isinstance(jobs, str | os.PathLike) else tuple(jobs)
        if not run:
            return plan_correction(
                *(self, table, from_tag, declared), name=name, checkpoint=checkpoint, checkpoints=checkpoints
            )
        if self._spark is None:
            raise InvalidInputError(
                f"correcting '{table}' runs jobs, which needs Spark, and the lake was opened without",
                hint="open it with anabranch.connect(warehouse, spark=spark).",
            )
        how = CascadeOptions(checkpoint=checkpoint, checkpoints=checkpoints)
        return run_correction(self, table, from_tag, declared, how, name=name, checks=checks)

    def sql(self, statement: str) -> Any:
        """Run a SQL statement, with the lake as the current catalog and ``default`` as its first database.

        Supports Spark's SQL, and the syntax of the proposals: CREATE TABLE with WATERMARK FOR and WITH,
        ``/*+ OPTIONS(...) */``, windows by ``TABLE(TUMBLE(...))``, and topics as tables. The current catalog of the
        session stays as it is. Sessions are classic or of Spark Connect.

        Args:
            statement: one statement.

        Without Spark, statements that only read are answered by DuckDB, in its own SQL with ``VERSION AS OF`` and
        ``TIMESTAMP AS OF``: see `anabranch.duck`.

        Returns:
            A `pyspark.sql.DataFrame`; `anabranch.duck.SqlRows` without Spark. It is without rows for a statement that has no answer. A `StreamingQuery`, which
            runs, for INSERT of rows that come from a stream.

        Raises:
            UnsupportedFeatureError: the lake has no Spark session, and only Spark could do that, or DuckDB is not installed.
            AnabranchError: what the lake refuses. What Spark refuses is raised as PySpark does.
        """
        if self._spark is None:
            from anabranch.duck import sql

            return sql(self, statement)
        if self._statements is None:
            from anabranch.spark.sql import Statements

            self._statements = Statements(self._spark, {**self._options, "warehouse": self.url})
        return self._statements.run(statement)

    def topics(self) -> list[str]:
        """Return names of the tables that are defined as topics, which Spark reads; sorted."""
        connectors = Connectors(self.catalog.storage)
        return sorted(
            f"{base}.{name}" for base in self.catalog.databases() for name in connectors.names(base)
        )

    def job(self, name: str, *, code: str | None = None) -> AbstractContextManager[JobRun]:
        """Name the producer of everything written inside: ``with lake.job("clean-orders") as job:``.

        Every commit of rows made in the block, to any table, then records which job made it and what the job
        had read: the tables, their snapshots, and other sources that were named with ``job.read_from``. See
        `anabranch.lineage.recording` for which reads a commit names. A job is identified by its name over all its runs;
        without a job, commits of this process do not record their origin.

        The block belongs to this thread, or task. Others take part with ``with job.joined():``.

        Args:
            name: of the job.
            code: version of its code; if None, the git commit of the caller's file, if there is one.

        Raises when it begins:
            InvalidNameError: the name is invalid.
            InvalidInputError: another job is running here.
        """
        caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001 - there is no public way that is as cheap
        return running(name, code=code or git_commit(caller), runtime=self._runtime, mark=self._mark())

    def replace_group(
        self,
        branches: Mapping[str, str],
        *,
        expect_main: Mapping[str, ExpectedMain] | None = None,
        wait: str | bool | None = None,
        force: bool = False,
        require_audit: str | bool | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> GroupResult:
        """Make a branch the main of its table in several tables at once, by one write.

        At every moment all tables have their old mains, or all have their new ones. What `Table.replace_main_branch`
        checks and promises holds for each of them, and an obstacle in one blocks all. Repeating
        it after a failure finishes it; while it is under way writers of all the tables wait, at most for the longest
        `branch.seal.timeout` among them.

        Args:
            branches: by the names of the tables, the branches that are to be main.
            expect_main: by the names of tables, main's newest snapshot, as `Table.replace_main_branch` takes it.
            wait: as for `Table.replace_main_branch`, for all branches together.
            force: go on although a check found something.
            require_audit: refuse unless each branch passed an audit as it is: of this name, or any if True.
            by: who does it, for people.
            reason: why, for people.
            dry_run: check everything, and only return what would be done.

        Raises:
            NotFoundError: there is no such table or branch.
            InvalidInputError: a branch is main already, but was not made main together with the others.
            CommitConflictError: checks found something (``conflicts``, of all tables); all mains are as they were.
            CommitError: see `anabranch.errors`.
        """
        return replace_together(
            [(self.table(name), branch) for name, branch in branches.items()],
            expect_main=expect_main,
            wait=wait,
            force=force,
            require_audit=require_audit,
            by=by,
            reason=reason,
            dry_run=dry_run,
        )

    def undo_group(
        self, number: int | None = None, *, by: str | None = None, reason: str | None = None
    ) -> GroupResult:
        """Undo what `replace_group` did, in all of its tables at once. Repeating it changes nothing.

        Args:
            number: of the group; if None the last one that was not taken back. If the last thing that was done is to
                take one back nothing is left to do, and to go back further the number is to be given.
            by: who does it, for people.
            reason: why, for people.

        Raises:
            NotFoundError: there is no such group, or one of its tables, or what it replaced in one, has been dropped.
            InvalidInputError: main of one of its tables was replaced since, or the group was taken back before that.
        """
        found = group_to_undo(self.catalog.groups, number)
        tables = self._members(found)
        return undo_group([table.context for table in tables], found, by=by, reason=reason)

    def groups(self, unread: Callable[[str, AnabranchError], None] | None = None) -> list[GroupInfo]:
        """Return replacements in several tables at once, oldest first, including unfinished ones.

        Args:
            unread: called with the name of each damaged record and its error; such groups are left out. If None they
                raise `CorruptTableError`.
        """
        return group_infos(self.catalog.groups, unread)

    def together(self, *names: str) -> tuple[Table, ...]:
        """Return several tables, each pinned to its newest snapshot, with all their mains taken at the same moment.

        Opened one after the other, a replacement of all of them could happen in between.

        Raises `NotFoundError`: there is no such table, or it was never written.
        """
        return pinned_together([self.table(name) for name in names])

    def _members(self, group: int) -> list[Table]:
        """Return the tables of a group, under their current names. Raises `NotFoundError`: one was dropped."""
        members = members_of(self.catalog.groups, group)
        found = dict(self._opened([member.table for member in members], but=NotFoundError))
        if any(member.table_uuid not in found for member in members):
            every = (f"{database}.{name}" for database in self.databases() for name in self.tables(database))
            found |= dict(self._opened(every, but=AnabranchError))
        gone = sorted(member.table for member in members if member.table_uuid not in found)
        left = [found[member.table_uuid] for member in members if member.table_uuid in found]
        if gone:
            raise NotFoundError(
                f"group {group} cannot be taken back in all of its tables: {', '.join(gone)} {'was' if len(gone) == 1 else 'were'} "
                "dropped since",
                hint="take it back in each of the others by itself, with `undo-replace --alone`: "
                f"{', '.join(sorted(table.context.name for table in left))}."
                if left
                else "nothing of it is left to take back.",
            )
        return left

    def _opened(self, names: Iterable[str], *, but: type[AnabranchError]) -> Iterator[tuple[str, Table]]:
        """Yield tables with their identities, leaving out those that cannot be opened for that reason."""
        for name in names:
            with suppress(but):
                table = self.table(name)
                yield table.table_uuid, table

    def _mark(self) -> Callable[[JobRun], AbstractContextManager[None]] | None:
        """Return a function that makes a job known to the session."""
        if self._spark is None:
            return None
        from anabranch.spark.lineage.job_marks import marked

        spark = self._spark
        return lambda run: marked(spark, run)

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a table with all its data. Raises `NotFoundError`."""
        self.catalog.drop_table(_whole(name), if_exists=if_exists)

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table atomically; refused on object stores."""
        self.catalog.rename_table(_whole(name), _whole(new_name))


def connect(warehouse: str, *, spark: Any = None, options: Mapping[str, str] | None = None) -> Lake:
    """Open a warehouse; it need not exist yet.

    Args:
        warehouse: a path, or a URL of a local folder (``file:``), S3 (``s3:``), Google (``gs:``), Azure
            (``az:``) or of memory (``memory:``).
        spark: a SparkSession that shall know the warehouse: ``format("anabranch")`` then reads and writes its
            tables by name. The tables of the lake itself read and write without Spark; what rewrites or deletes
            many files, as compaction does, is done by its tasks, and so is the writing of a Spark DataFrame.
        options: credentials and endpoint of the store; see the storage page.

    Example:
        >>> lake = anabranch.connect("memory://demo")
        >>> made = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING")
        >>> made.append([{"id": 1, "v": "a"}]).id
        1
    """
    if spark is not None:
        from anabranch.spark.sessions import attach

        attach(spark, warehouse, options=options)
    return Lake(open_storage(warehouse, options), spark=spark, options=options)


def _whole(name: str) -> Identifier:
    """Parse the name of a table. Raises `InvalidInputError` for its branch main, which is not the whole table."""
    identifier = Identifier.parse(name)
    if "$" in name and identifier.branch is None and identifier.system is None:
        raise InvalidInputError(
            f"'{name}' names a branch, not a table", hint=f"name the table itself: '{identifier.full_name}'."
        )
    return identifier


def _engine(spark: Any) -> Engine:
    """Return the engine for work on many files of the lake's tables."""
    if spark is None:
        return _Embedded()
    from anabranch.spark.tasks.engine import SparkEngine

    return SparkEngine(spark)


class _Embedded(LocalEngine):
    """The engine of a lake without a session. A Spark DataFrame is written by its own session's engine."""

    def columns(self, frame: Any) -> Sequence[Field] | None:
        """See `anabranch.engine.WritesFrames`."""
        if not type(frame).__module__.startswith("pyspark.sql."):
            return None
        from anabranch.spark.types.columns import frame_columns

        return frame_columns(frame)

    def write(self, frame: Any, table: Table, schema: TableSchema | None = None) -> WrittenRows | None:
        """See `anabranch.engine.WritesFrames`."""
        if not type(frame).__module__.startswith("pyspark.sql."):
            return None
        from anabranch.spark.tasks.frame_writer import write_frame

        return write_frame(frame, table, schema)
