"""Functions that carry data along are told from those that do not; no JVM is needed for that."""

import functools
import json
import re

import numpy as np
import pandas as pd
import pytest
from pyspark import cloudpickle

from anabranch.spark.lineage.function_data import has_data
from tests.spark import given_values_module as own
from tests.support.lengths import first_short

COMPUTED = {number * 7919: str(number * 104729) for number in range(3)}
MOST = max(COMPUTED)
KEYS = ["a", "b"]
LIMIT = 10
NAMES = {"a": "one"}
PATTERN = re.compile("x+")


def plain(i):
    return str(i + 1)


def with_constants(i):
    return i in KEYS and i < LIMIT and NAMES.get(i) and PATTERN.match(i)


def with_a_default(i, step=3):
    return i + step


def with_libraries(i):
    return json.dumps(np.array([i]).tolist()), pd.Series([i])


def with_a_dictionary(i):
    return COMPUTED.get(i)


def with_a_number(i):
    return i < MOST


def by_another(i):
    return plain(with_a_dictionary(i))


def closure():
    ids = set(COMPUTED)
    return lambda i: i in ids


class Names:
    def __init__(self):
        self.known = COMPUTED

    def __call__(self, i):
        return self.known.get(i)


class Settings:
    """What a program keeps in a class."""

    step = 3
    keys = ("a", "b")
    pattern = re.compile("x+")

    @staticmethod
    def add(i):
        return i + Settings.step


class Found:
    """What a program has computed, in a class."""

    known = COMPUTED


def with_an_attribute_of_a_class(i):
    return Found.known.get(i)


def with_a_module(i):
    return own.LATER.get(i)


def with_constants_of_a_class(i):
    return i in Settings.keys and i + Settings.step and Settings.pattern.match(i)


def with_a_method_of_a_class(i):
    return Settings.add(i)


def with_constants_of_a_module(i):
    return i < own.LIMIT and own.plain(i)


def as_shipped(function):
    """As Spark sends it to its tasks; of a module that these do not have."""
    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    return cloudpickle.loads(cloudpickle.dumps((function, None)))


@pytest.mark.parametrize(
    "function",
    first_short(
        [
            plain,
            with_constants,
            with_a_default,
            with_libraries,
            with_constants_of_a_class,
            with_a_method_of_a_class,
            with_constants_of_a_module,
            len,
            str.upper,
        ]
    ),
)
def test_code_and_what_stands_in_the_text_is_no_data(function):
    assert not has_data(as_shipped(function))
    assert not has_data(function)


@pytest.mark.parametrize(
    "function",
    first_short(
        [
            with_a_dictionary,
            with_a_number,
            by_another,
            with_an_attribute_of_a_class,
            with_a_module,
            closure(),
            Names(),
            Names().__call__,
            COMPUTED.get,
            functools.partial(with_a_default, step=MOST),
        ]
    ),
    ids=lambda f: getattr(f, "__name__", type(f).__name__),
)
def test_what_was_computed_is_data(function):
    assert has_data(as_shipped(function))
