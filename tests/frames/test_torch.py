"""Batches for PyTorch: each row once however many workers share a read, in the tensors that its columns say."""

import multiprocessing
import sys

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidInputError, UnsupportedFeatureError
from anabranch.scan.torch import SharedRows, values_of
from tests.support.lengths import first_short
from tests.support.tables import make_table, rows

COLUMNS = "id BIGINT NOT NULL, x DOUBLE, ok BOOLEAN, v STRING, e ARRAY<FLOAT>"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    made = make_table(
        tmp_path_factory.mktemp("torch"), schema=COLUMNS, options={"bucket": "5", "bucket-key": "id"}
    )
    for start in range(0, 1000, 250):
        made.append(
            [
                {
                    "id": n,
                    "x": None if n % 9 == 0 else n / 2,
                    "ok": n % 2 == 0,
                    "v": f"v{n}",
                    "e": [float(n)] * 3,
                }
                for n in range(start, start + 250)
            ]
        )
    return made


def shared(scan, batch_size=64):
    return SharedRows.of(scan.reader, scan.splits, scan.limit, batch_size)


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_workers_read_each_row_once(table, workers, size):
    scan = table.scan("id % 3 = 1", columns=["id"])
    parts = [[*shared(scan, size).batches(n, workers)] for n in range(workers)]
    for batches in parts:
        assert all(batch.num_rows == size for batch in batches[:-1])
    found = [n for batches in parts for batch in batches for n in batch["id"].to_pylist()]
    assert sorted(found) == [*range(1, 1000, 3)]


def test_a_limit_is_that_of_all_workers(table):
    scan = table.scan(columns=["id"], limit=10)
    counts = [sum(batch.num_rows for batch in shared(scan).batches(n, 4)) for n in range(4)]
    assert counts == [10, 0, 0, 0]


def _count(given, worker, answers):
    answers.put(sum(batch.num_rows for batch in given.batches(worker, 2)))


@pytest.mark.parametrize("way", first_short(["fork", "spawn"]))
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_workers_are_processes(table, way):
    """As those of a DataLoader: forked after the plan, which used threads, or spawned."""
    table.scan().to_polars().filter(ok=True)
    context = multiprocessing.get_context(way)
    answers = context.Queue()
    given = shared(table.scan("x > 10", columns=["id", "e", "_file", "_snapshot_added"]))
    started = [context.Process(target=_count, args=(given, n, answers)) for n in range(2)]
    for process in started:
        process.start()
    counts = [answers.get(timeout=120) for _ in started]
    for process in started:
        process.join(30)
    assert sum(counts) == table.scan("x > 10").count()


def test_what_columns_become():
    def of(values, kind):
        return values_of(pa.array(values, kind), "c", lambda array: ("tensor", array.dtype, array.tolist()))

    assert of([1, 2], pa.int32()) == ("tensor", np.int32, [1, 2])
    assert of([True, False], pa.bool_()) == ("tensor", np.bool_, [True, False])
    assert repr(of([0.5, None], pa.float64())) == repr(("tensor", np.dtype("float64"), [0.5, float("nan")]))
    assert of([[1, 2], [3, 4]], pa.list_(pa.int64())) == ("tensor", np.int64, [[1, 2], [3, 4]])
    assert of([[1], [], [2, 3]], pa.list_(pa.int64())) == [("tensor", np.int64, v) for v in ([1], [], [2, 3])]
    assert of([], pa.list_(pa.int64())) == []
    assert of(["a", None], pa.string()) == ["a", None]
    sliced = pa.array([[9.0], [1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())).slice(1)
    assert values_of(sliced, "c", lambda array: array.tolist()) == [[1.0, 2.0], [3.0, 4.0]]
    for values, kind in (
        ([1, None], pa.int64()),
        ([True, None], pa.bool_()),
        ([[1], None], pa.list_(pa.int64())),
    ):
        with pytest.raises(UnsupportedFeatureError, match="'c' has nulls"):
            of(values, kind)


def test_without_pytorch_it_says_what_to_install(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    from anabranch.scan import torch as ours

    ours._dataset_class.cache_clear()
    with pytest.raises(UnsupportedFeatureError, match="pip install torch"):
        table.scan().to_torch()


def test_a_batch_has_rows(table):
    with pytest.raises(InvalidInputError, match="batch_size"):
        table.scan().to_torch(batch_size=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_in_pytorch(table, workers):
    torch = pytest.importorskip("torch")
    dataset = table.scan(columns=["id", "x", "ok", "v", "e"]).to_torch(batch_size=100)
    assert isinstance(dataset, torch.utils.data.IterableDataset)
    for context in [None] if workers == 0 else ["fork", "spawn"]:
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=None, num_workers=workers, multiprocessing_context=context
        )
        batches = [*loader]
        ids = torch.cat([batch["id"] for batch in batches])
        assert sorted(ids.tolist()) == [*range(1000)]
        first = batches[0]
        assert (first["x"].dtype, first["ok"].dtype, first["e"].shape[1]) == (torch.float64, torch.bool, 3)
        assert first["v"] == [f"v{n}" for n in first["id"].tolist()]


def test_changes_too(tmp_path):
    torch = pytest.importorskip("torch")
    table = make_table(tmp_path)
    table.append(rows(0, 10))
    table.append(rows(10, 20))
    batches = [*torch.utils.data.DataLoader(table.changes(1).to_torch(), batch_size=None)]
    assert sorted(n for batch in batches for n in batch["id"].tolist()) == [*range(10, 30)]
