"""Which cases of a test `make test` runs: the first ones; `make test-long` runs the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_short(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the cases for `parametrize`, of which all but the first `count` are long ones."""
    found = list(cases)
    rest = (case if isinstance(case, tuple) else (case,) for case in found[count:])
    return [*found[:count], *(pytest.param(*case, marks=pytest.mark.long) for case in rest)]
