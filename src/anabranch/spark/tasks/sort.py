"""Sorting of one large partition of a table with many Spark tasks.

Tasks read pieces of the partition and send each row to the task that sorts its range of keys; that one writes the
files of its range. On the way rows are record batches of Arrow's IPC format, as values of one binary column: Spark
shuffles them without looking inside, so they arrive as they were, of whatever types.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.arrow.reader import ReadContext, read_batches
from anabranch.arrow.rewrite import ReplacementWriter, check_row_count, split_of
from anabranch.arrow.row_buffer import Measured, RowBuffer
from anabranch.arrow.sort_key import Keys
from anabranch.arrow.sorting import RangeSorter, SortPlan, range_of, sample, sample_share, split_by_range
from anabranch.errors import AnabranchError
from anabranch.format.records.data_file import DataFileMeta
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.kernel.commit.commit_message import CompactionTask, Rewrite
from anabranch.kernel.scan.split import Split
from anabranch.maintenance.rewrites import discard
from anabranch.maintenance.sort import SortJob
from anabranch.options import TARGET_FILE_SIZE

if TYPE_CHECKING:
    from anabranch.spark.tasks.task_engine import TaskEngine

_PIECE_SIZE: Final = 128 << 20
"""Bytes of files that one task reads."""
_LEAST_PART: Final = 64 << 20
_MOST_PART: Final = 256 << 20
"""Maximum bytes of files that one task sorts and writes."""
_MOST_PARTS: Final = 1 << 14
_FILL: Final = 0.85
"""Target fill ratio of a part's last file: parts differ, and few should overflow into a small extra file."""
_PARCEL_SIZE: Final = 4 << 20
"""Bytes of rows in one value. Spark hands its Python processes some dozens of megabytes of these at a time."""

_Batches = Iterator[pa.RecordBatch]
_Piece = tuple[Split, int]
"""Files to read, and the number of rows in the files before them."""

_PARCELS: Final = pa.schema({"part": pa.int32(), "rows": pa.binary(), "error": pa.binary()})
_PARCEL_COLUMNS: Final = "part INT, rows BINARY, error BINARY"
_OUTCOMES: Final = pa.schema({"part": pa.int32(), "files": pa.binary(), "error": pa.binary()})
_OUTCOME_COLUMNS: Final = "part INT, files BINARY, error BINARY"


def sort_with_many(engine: TaskEngine, task: CompactionTask, job: SortJob, *, slots: int) -> Rewrite:
    """Sort a partition as `SortJob.run` does, with as many parallel tasks as the cluster allows.

    Args:
        slots: how many tasks the cluster runs side by side.

    Raises:
        AnabranchError: a task failed, and what the others wrote is removed; or Spark did not finish the job, and
            what was written is left to orphan cleaning.
    """
    pieces = _pieces_of(task, job)
    name = f"sort by {', '.join(job.order.by)}: {len(task.files):,} files"
    read = partial(_sample, job=job, share=sample_share(task.row_count))
    plan = SortPlan.of(job.order, pa.concat_tables(engine.map(read, pieces, name=f"{name}, sample")))
    cuts = plan.cuts(_part_count(task, job, slots))
    parts = len(cuts) + 1
    shared = pickle.dumps((task, job, plan, cuts))
    frame = (
        engine.spark.range(0, len(pieces), 1, len(pieces))
        .mapInArrow(_sender([pickle.dumps(piece) for piece in pieces], shared), _PARCEL_COLUMNS)
        .repartitionById(parts, "part")
        .mapInArrow(_receiver(shared, parts), _OUTCOME_COLUMNS)
    )
    outcomes = sorted(engine.collect(frame, name=name), key=lambda row: row.part)
    files = tuple(file for row in outcomes if row.files is not None for file in _loaded(row.files))
    try:
        for row in outcomes:
            if row.error is not None:
                raise _loaded(row.error)
        check_row_count(files, task)
    except AnabranchError:
        discard([Rewrite(task, files)], job.writing)
        raise
    return Rewrite(task, files)


def largest_for_one_task(total: int, slots: int) -> int:
    """See `anabranch.maintenance.sort.SortingEngine`: where the partitions keep all slots busy, no need to divide."""
    return max(_MOST_PART, min(total // slots, 16 * _MOST_PART))


def _pieces_of(task: CompactionTask, job: SortJob) -> list[_Piece]:
    """Divide the task's files into pieces of about one size; a file is never divided."""
    files = split_of(task, job.writing).files
    ends = accumulate(file.size for file in files)
    groups: dict[int, list[int]] = {}
    for place, end in enumerate(ends):
        groups.setdefault((end - 1) // _PIECE_SIZE, []).append(place)
    before = [0, *accumulate(file.row_count for file in files)]
    return [
        (Split(task.partition, task.bucket, tuple(files[place] for place in places)), before[places[0]])
        for places in groups.values()
    ]


def _part_count(task: CompactionTask, job: SortJob, slots: int) -> int:
    wanted = min(max(_LEAST_PART, task.size // slots), _MOST_PART)
    target = TARGET_FILE_SIZE.of(job.writing.all_options)
    files = max(1, round(wanted / target))
    size = max(1, int((files - 1 + _FILL) * target))
    return min(_MOST_PARTS, -(-task.size // size))


def _reading(job: SortJob) -> ReadContext:
    writing = job.writing
    return ReadContext(writing.storage, writing.schema.fields, job.schema_of, writing.threads)


def _sample(piece: _Piece, *, job: SortJob, share: float) -> pa.Table:
    split, first_row = piece
    return sample(split, _reading(job), job.order, share=share, first_row=first_row)


def _sender(pieces: Sequence[bytes], shared: bytes) -> Callable[[_Batches], _Batches]:
    """Return a function that yields the rows of a piece, each with the number of the part it belongs to."""

    def run(batches: _Batches) -> _Batches:
        _, job, plan, cuts = _loaded(shared)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split, _ = _loaded(pieces[number])
                try:
                    yield from _sent(split, job, plan, cuts)
                except AnabranchError as error:
                    yield _row(_PARCELS, 0, error=pickle.dumps(error))
                    return

    return run


def _sent(split: Split, job: SortJob, plan: SortPlan, cuts: Keys) -> _Batches:
    buffer = RowBuffer(to_arrow_schema(job.writing.schema.fields))
    for batch in read_batches([split], _reading(job)):
        buffer.add(pa.Table.from_batches([batch]))
        for full in buffer.take_full():
            yield from _parcels(full, plan, cuts)
    for rest in buffer.take_rest():
        yield from _parcels(rest, plan, cuts)


def _parcels(taken: Measured, plan: SortPlan, cuts: Keys) -> _Batches:
    rows, size = taken
    most = max(1, len(rows) * _PARCEL_SIZE // max(1, size))
    for part, own in split_by_range(rows, range_of(plan.keys_of(rows), cuts)):
        for batch in own.combine_chunks().to_batches(max_chunksize=most):
            yield _row(_PARCELS, part, rows=batch.serialize().to_pybytes())


def _receiver(shared: bytes, parts: int) -> Callable[[_Batches], _Batches]:
    """Return a function that sorts and writes the rows of a part, and yields what was written."""

    def run(batches: _Batches) -> _Batches:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        part = first.column("part")[0].as_py()
        try:
            files = _received(chain([first], batches), part, parts, shared)
        except AnabranchError as error:
            yield _row(_OUTCOMES, part, error=pickle.dumps(error))
        else:
            yield _row(_OUTCOMES, part, files=pickle.dumps(files))

    return run


def _received(batches: _Batches, part: int, parts: int, shared: bytes) -> tuple[DataFileMeta, ...]:
    task, job, plan, cuts = _loaded(shared)
    schema = to_arrow_schema(job.writing.schema.fields)
    own = plan.part(cuts, part)
    with (
        ReplacementWriter(task, job.writing) as writer,
        RangeSorter(own, job.writing, task.row_count // parts) as sorter,
    ):
        for batch in batches:
            for error in batch.column("error").drop_null():
                raise _loaded(error.as_py())
            for rows in batch.column("rows"):
                # A copy, because values in Spark's batches are unaligned, and rows must be aligned.
                parcel = pa.ipc.read_record_batch(pa.py_buffer(rows.as_py()), schema)
                sorter.add(pa.Table.from_batches([parcel]))
        for ordered in sorter.sorted():
            writer.write(ordered)
        return writer.finish_part()


def _row(schema: pa.Schema, part: int, **values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"part": part, **values}], schema=schema)


def _loaded(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - from our own driver and tasks
