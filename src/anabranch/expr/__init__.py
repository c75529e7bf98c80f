"""Predicates: building them in Python, reading them from SQL, binding, pruning and evaluating them.

The usual way of a filter: `parse` or `col` make a `Predicate`; `bind` fits it to a schema; `may_match` and
`key_values` leave out files and buckets; `to_arrow` filters rows.
"""

from anabranch.expr.bind import bind, rebind
from anabranch.expr.bound import BoundPredicate, columns
from anabranch.expr.evaluate import filter_mask, to_arrow
from anabranch.expr.nodes import FALSE, TRUE, Predicate, all_of, any_of, col
from anabranch.expr.parse import parse
from anabranch.expr.prune import ColumnStats, for_footers, key_values, may_match, split_conjuncts

__all__ = [
    "FALSE",
    "TRUE",
    "BoundPredicate",
    "ColumnStats",
    "Predicate",
    "all_of",
    "any_of",
    "bind",
    "col",
    "columns",
    "filter_mask",
    "for_footers",
    "key_values",
    "may_match",
    "parse",
    "rebind",
    "split_conjuncts",
    "to_arrow",
]
