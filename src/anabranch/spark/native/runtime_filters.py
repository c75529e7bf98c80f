"""Translation of Spark's runtime filters into a predicate on partition columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anabranch.errors import PredicateError
from anabranch.expr.bind import BoundPredicate, bind
from anabranch.expr.bound import conjunction
from anabranch.expr.nodes import Column, In
from anabranch.format.types.data_types import Field
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.internals import literal_texts
from anabranch.spark.native.literals import literal_of_text

_MOST_VALUES = 10_000
"""Number of values above which a filter is ignored: translating so many takes 0.1 to 0.2 seconds."""


def runtime_predicate(jvm: Jvm, predicates: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    """Translate IN predicates, all of which must hold, on `fields`; None if none can be translated.

    Spark looks at the rows again, so what cannot be said is left out.

    Args:
        jvm: of the session.
        predicates: an array of predicates of DataSource V2.
        fields: the partition columns.
    """
    parts = [part for p in predicates if (part := _membership(jvm, p, fields)) is not None]
    return conjunction(parts) if parts else None


def _membership(jvm: Jvm, predicate: Any, fields: Sequence[Field]) -> BoundPredicate | None:
    if predicate.name() not in ("IN", "="):
        return None
    children = predicate.children()
    if not 1 < len(children) <= _MOST_VALUES:
        return None
    found = literal_texts(jvm, children)
    if found is None:
        return None
    data_type, texts = found
    try:
        literals = [literal_of_text(json.loads(data_type), text) for text in texts]
        known = tuple(literal for literal in literals if literal is not None)
        if len(known) < len(literals):
            return None
        return bind(In(Column(tuple(children[0].fieldNames())), known), fields)
    except PredicateError:
        return None
