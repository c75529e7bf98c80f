"""Random schema changes, nested ones too, with writers and readers that do not know of them yet.

The model holds each row as values by field id, at every depth, in the types of the time of writing. A read in
any schema must give the values under the ids of that schema, and null for those a row does not have, whether
files were pruned or not.
"""

import pytest

from tests.kernel.evolution_model import Model
from tests.support.lengths import first_short


def _run(seed, steps):
    model = Model(seed)
    for _ in range(steps):
        step = model.random.choices(
            [model.alter, model.open_writer, model.write, model.more_buckets, model.compact],
            [4, 3, 8, 0.3, 0.7],
        )[0]
        step()
        if model.random.random() < 0.1:
            model.check()
    model.check()
    return model


@pytest.mark.parametrize("seed", first_short(range(2)))
def test_rows_keep_their_meaning_through_any_changes(seed):
    _run(seed, 50)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 250))
def test_rows_keep_their_meaning_through_many_changes(seed):
    _run(seed, 150)


@pytest.mark.long
def test_the_histories_hold_what_they_are_about():
    model = _run(2, 60)
    assert len(model.table.schemas()) > 5 < model.refused
    assert model.most_schemas > 2
