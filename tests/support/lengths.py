"""Which cases of a test `make test` runs: the first ones; `make test-long` runs the others."""

from collections.abc import Iterable
from typing import Any

import pytest

_Param = type(pytest.param())


def first_short(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the cases for `parametrize`, of which all but the first `count` are long ones."""
    found = list(cases)
    return [*found[:count], *map(_long, found[count:])]


def _long(case: Any) -> Any:
    if isinstance(case, _Param):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.long])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
