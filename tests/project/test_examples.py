"""What users hold, and the functions they call, have an example in their docstring, which does what it says."""

import doctest
import inspect

import polars as pl
import pytest

import anabranch
from anabranch.kernel.repair.health import Health
from anabranch.kernel.scan.plan import Plan
from anabranch.lineage.trace import Trace
from anabranch.scan.scan import Changes

TYPES_OF_DECLARATIONS = {"Source"}
"""Made by functions such as `stream`, which are shown with jobs."""
PUBLIC = [
    *(
        getattr(anabranch, name)
        for name in anabranch.__all__
        if not name.startswith("_") and name not in TYPES_OF_DECLARATIONS
    ),
    *(Changes, Health, Plan, Trace),
]
HELD = [
    value
    for value in PUBLIC
    if not (inspect.isclass(value) and issubclass(value, BaseException)) and callable(value)
]


@pytest.fixture
def names(tmp_path):
    """What examples start with: a lake with orders of two days, a tag, a branch, and a copy that a job made."""
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.orders", "id BIGINT NOT NULL, day STRING, price DOUBLE", partition_by="day")
    table.append([{"id": n, "day": "2026-01-01", "price": 10.0 * n} for n in (1, 2)])
    table.create_tag("good")
    table.append([{"id": n, "day": "2026-01-02", "price": 10.0 * n} for n in (3, 4)])
    table.create_branch("fix", tag="good")
    table.branch("fix").append([{"id": 9, "day": "2026-01-09", "price": 1.0}])
    with lake.job("copy"):
        lake.create_table("db.copy", data=table.scan(columns=["id", "price"]))
    return {"anabranch": anabranch, "lake": lake, "table": table, "pl": pl}


def examples(value):
    """The examples of a docstring, and of the methods of a class."""
    home = inspect.getmodule(value)
    found = doctest.DocTestFinder(exclude_empty=True).find(value, value.__name__, module=home)
    return [one for one in found if one.examples]


@pytest.mark.parametrize("value", HELD, ids=lambda value: value.__name__)
def test_examples_do_what_they_say(value, names):
    found = examples(value)
    assert found, f"{value.__name__} has no example"
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for one in found:
        one.globs = dict(names)
        runner.run(one, out=told.append)
    assert not told, "".join(told)
