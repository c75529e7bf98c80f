"""What a running query has found out, as a predicate on partition columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr.bind import BoundPredicate, bind
from anabranch.expr.bound import conjunction
from anabranch.expr.nodes import Column, In
from anabranch.spark.native.expressions import literal_of_text
from anabranch.spec.types import Field

_MOST_VALUES = 1_000
"""Values above which asking the JVM for each takes longer than it saves."""


def runtime_predicate(predicates: Sequence[Any], fields: Sequence[Field]) -> BoundPredicate | None:
    """Memberships, of which all must hold, on `fields`; None if none of them can be said.

    Spark looks at the rows again, so what cannot be said is left out.
    """
    parts = [part for p in predicates if (part := _membership(p, fields)) is not None]
    return conjunction(parts) if parts else None


def _membership(predicate: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    if predicate.name() not in ("IN", "="):
        return None
    column, *values = predicate.children()
    if not values or len(values) > _MOST_VALUES:
        return None
    try:
        literals = [literal_of_text(json.loads(v.dataType().json()), _text(v.value())) for v in values]
        known = [literal for literal in literals if literal is not None]
        if len(known) < len(literals):
            return None
        return bind(In(Column(tuple(column.fieldNames())), tuple(known)), fields)
    except PredicateError:
        return None


def _text(value: Any) -> str:
    """A value as the JVM spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.toString()) if hasattr(value, "_target_id") else str(value)
