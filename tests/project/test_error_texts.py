"""What errors repeat of what they were given: never more than a screen of it, and never a raw error of a library."""

import pickle

import polars as pl
import pyarrow.compute as pc
import pytest

import anabranch
from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError, PredicateError
from anabranch.expr.nodes import Predicate
from tests.support.tables import make_table, rows

HALF = "\udc80"
"""Half a character, as Python makes of bytes that are no text."""


class Foreign(Predicate):
    pass


@pytest.fixture
def table(tmp_path):
    made = make_table(tmp_path)
    made.append(rows(0, 3))
    return made


def test_long_texts_are_shortened_in_the_middle(table):
    with pytest.raises(PredicateError) as caught:
        table.scan("x" * 100_000)
    assert len(str(caught.value)) < 10_000
    error = CorruptTableError(f"begin {'m' * 10**6} end", path="some/file", hint="h" * 10**6)
    assert len(str(error)) < 10_000
    assert str(error).startswith("some/file: begin")
    assert "end\n  hint: " in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("name", ["é", "a b", "x" * 300])
def test_names_of_a_usual_length_are_repeated_whole(table, name):
    with pytest.raises(NotFoundError) as caught:
        table.at(name)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "predicate",
    [object(), pc.field("id") > 1, pl.col("id") > 1, Foreign(), anabranch.col("id"), ["id > 1"]],
    ids=["object", "arrow", "polars", "another class", "a column", "a list"],
)
def test_what_is_no_filter_is_refused(table, predicate):
    for use in (table.scan, lambda given: table.changes(0, filter=given)):
        with pytest.raises(PredicateError, match="cannot be made of"):
            use(predicate)


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.scan(f"v = '{HALF}'").to_arrow(),
        lambda t: t.scan(f"v LIKE '{HALF}%'").to_arrow(),
        lambda t: t.scan(columns=[HALF]),
        lambda t: t.at(HALF),
        lambda t: t.create_tag(HALF),
        lambda t: t.delete_tag(HALF),
        lambda t: t.create_branch(HALF),
        lambda t: t.branch(HALF),
        lambda t: t.delete_branch(HALF),
        lambda t: t.create_branch("fix", tag=HALF),
        lambda t: t.rollback(HALF),
        lambda t: t.diff("main", HALF),
        lambda t: t.alter().set_option("x", HALF).apply(),
        lambda t: t.alter().add_column("c", "INT", comment=HALF).apply(),
        lambda t: t.system(HALF),
        lambda t: t.audit(HALF),
    ],
)
def test_half_a_character_is_a_clear_error(table, use):
    with pytest.raises((InvalidInputError, NotFoundError)) as caught:
        use(table)
    str(caught.value)
