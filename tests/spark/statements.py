"""Statements with what they give, carried out one after the other."""

import re

import pytest

from anabranch.errors import AnabranchError


class Rows(list):
    """Rows in any order."""


def run(sql, script):
    """Carry out a script.

    Args:
        sql: takes a statement, and gives a frame.
        script: pairs of a statement and its rows as tuples, in order, or as `Rows` in any order; a text that its error
            has; or None if it need only succeed.
    """
    from pyspark.errors import PySparkException

    for statement, expected in script:
        if isinstance(expected, str):
            with pytest.raises((PySparkException, AnabranchError)) as caught:
                sql(statement).collect()
            assert re.sub(r"\s+", " ", expected) in re.sub(r"\s+", " ", str(caught.value)), statement
            continue
        try:
            found = [tuple(row) for row in sql(statement).collect()]
        except PySparkException as error:
            pytest.fail(f"{statement}: {error}")
        if isinstance(expected, Rows):
            assert sorted(found, key=repr) == sorted(expected, key=repr), statement
        elif expected is not None:
            assert found == expected, statement
