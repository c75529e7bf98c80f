"""Column lineage of a SQL statement: which input columns each output column is computed from.

The text is parsed by sqlglot, imported when first needed, and only to understand it: Spark's own parser decides what
is executed. A statement that sqlglot cannot parse, or whose columns cannot be resolved, has no answer. Columns that
only filter rows (in WHERE, or in a join condition) are not recorded; only those that values are computed from.

This is recorded at write time because later neither the statement is known nor the columns that
its tables had.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anabranch.lineage.model import ColumnOrigin

# What it does not understand is no concern of who writes: without a handler, logging prints it to standard error.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())

_DIALECT: Final = "spark"
_LONGEST: Final = 20_000
"""Characters of a statement beyond which it is not parsed: it would take longer than it is worth."""
_MOST: Final = 200
"""Columns, and sources of one, that an entry names."""


def column_origins(
    text: str,
    sink: Sequence[str],
    tables: Mapping[str, Sequence[str]],
    written: Sequence[str] | None = None,
) -> tuple[ColumnOrigin, ...]:
    """Return the origin of each column of the rows, leaving out columns whose origin cannot be determined.

    Args:
        text: a query, or a statement that writes the rows of one: INSERT, or CREATE or REPLACE TABLE AS.
        sink: the columns of the table that is written.
        tables: what is known of the tables that are read: the columns of ``db.t``, as it is called there.
        written: the columns that are written; those of a query by itself must be the same, or it was changed since.
    """
    if len(text) > _LONGEST or len(sink) > _MOST:
        return ()
    try:
        from sqlglot.errors import SqlglotError
    except ImportError:
        return ()
    try:
        return _origins(text, sink, tables, written)
    except (SqlglotError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()  # its parser and optimiser know no other way to say that they do not understand


def _origins(
    text: str, sink: Sequence[str], tables: Mapping[str, Sequence[str]], written: Sequence[str] | None
) -> tuple[ColumnOrigin, ...]:
    from sqlglot import exp, parse_one
    from sqlglot.lineage import lineage
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.optimizer.scope import build_scope

    query, by_position = _query(parse_one(text, dialect=_DIALECT), sink)
    if query is None:
        return ()
    known = {title.lower(): title for title in tables}
    query = normalize_identifiers(query, dialect=_DIALECT)
    for table in _tables(query):
        title = _title(table, known)
        if title is not None:
            _rename(table, title)
    _simplify(query)
    schema: dict[str, Any] = {}
    for title, columns in tables.items():
        database, _, name = title.partition(".")
        schema.setdefault(database.lower(), {})[name.lower()] = {c.lower(): "string" for c in columns}
    qualified = qualify(query, schema=schema, dialect=_DIALECT, validate_qualify_columns=False)
    selected = [select.alias_or_name for select in qualified.selects]
    if by_position is None and written is not None and _lower(selected) != _lower(written):
        return ()
    names = _names(selected, sink, by_position)
    aliases = _aliases(qualified, known)
    for place, select in enumerate(qualified.selects):
        select.replace(exp.alias_(select.unalias().copy(), f"_{place}"))
    scope = build_scope(qualified)
    if names is None or scope is None:
        return ()
    how: dict[str, Any] = {"scope": scope, "dialect": _DIALECT, "copy": False}
    found = (
        (name, _sources(lineage(f"_{place}", qualified, schema, **how), known, tables, aliases))
        for place, name in enumerate(names)
        if name is not None
    )
    return tuple(ColumnOrigin(name, sources) for name, sources in found if sources is not None)


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _query(statement: Any, sink: Sequence[str]) -> tuple[Any, Sequence[str] | None]:
    """Return the query whose rows are written, and the columns that its own go to by position; None if by name."""
    from sqlglot import exp

    match statement:
        case exp.Query():
            return statement, None
        case exp.Insert():
            query = statement.expression
            defined = statement.args.get("with_") or statement.args.get("with")
            if not isinstance(query, exp.Query):
                return None, None
            if defined is not None and query.ctes == []:
                query.set("with_" if "with_" in query.arg_types else "with", defined)
            if statement.args.get("by_name"):
                return query, None
            target = statement.this
            if isinstance(target, exp.Schema):
                return query, [column.name for column in target.expressions]
            given = {e.this.name.lower() for e in _partition(statement) if isinstance(e, exp.EQ)}
            return query, [name for name in sink if name.lower() not in given]
        case exp.Create() if isinstance(statement.expression, exp.Query):
            return statement.expression, list(sink)
    return None, None


def _partition(statement: Any) -> Sequence[Any]:
    found = statement.args.get("partition") or statement.this.args.get("partition")
    return [] if found is None else found.expressions


def _names(
    selected: Sequence[str], sink: Sequence[str], by_position: Sequence[str] | None
) -> list[str | None] | None:
    """Return the sink column for each column of the query; None if the two do not match."""
    own = {name.lower(): name for name in sink}
    if by_position is not None:
        if len(by_position) != len(selected):
            return None
        return [own.get(name.lower()) for name in by_position]
    return None if "*" in selected else [own.get(name.lower()) for name in selected]


def _tables(query: Any) -> list[Any]:
    """Return the tables that a query names; names defined by its own WITH are left out."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    sources = [source for scope in traverse_scope(query) for source in scope.sources.values()]
    return [source for source in sources if isinstance(source, exp.Table)]


def _title(table: Any, known: Mapping[str, str]) -> str | None:
    """Return the known table that is meant; None if none or several match."""
    name, database = table.name.lower(), table.db.lower()
    if database:
        return known.get(f"{database}.{name}")
    found = [title for lower, title in known.items() if lower.partition(".")[2] == name]
    return found[0] if len(found) == 1 else None


def _rename(table: Any, title: str) -> None:
    from sqlglot import exp

    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    database, _, name = title.partition(".")
    table.set("this", exp.to_identifier(name.lower(), quoted=True))
    table.set("db", exp.to_identifier(database.lower(), quoted=True))
    table.set("catalog", None)


def _simplify(query: Any) -> None:
    """Replace the forms of Spark whose columns sqlglot takes for others."""
    from sqlglot import exp
    from sqlglot.transforms import eliminate_window_clause

    for table in [*query.find_all(exp.Table)]:
        alias = table.args.get("alias")
        if alias is not None and alias.columns:  # FROM t AS a(x, y): it looks for x and y in t
            table.set("alias", exp.TableAlias(this=alias.this.copy()))
            table.replace(exp.Subquery(this=exp.select("*").from_(table.copy()), alias=alias))
    for lateral in [*query.find_all(exp.Lateral)]:
        inner = lateral.this
        if isinstance(inner, exp.Subquery) and inner.find(exp.From) is not None:
            # It takes the columns of other tables that are compared with for those that are returned.
            lateral.replace(exp.Subquery(this=inner.this.copy(), alias=lateral.args.get("alias")))
    for select in query.find_all(exp.Select):
        eliminate_window_clause(select)


def _aliases(query: Any, known: Mapping[str, str]) -> dict[str, str | None]:
    """Return the tables by the names under which a statement uses them; None under a name for anything else, or for several."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    found: dict[str, str | None] = {}
    for scope in traverse_scope(query):
        for alias, source in scope.sources.items():
            title = known.get(f"{source.db}.{source.name}".lower()) if isinstance(source, exp.Table) else None
            found[alias] = title if found.get(alias, title) == title else None
    return found


def _sources(
    node: Any,
    known: Mapping[str, str],
    tables: Mapping[str, Sequence[str]],
    aliases: Mapping[str, str | None],
) -> tuple[str, ...] | None:
    """Return the input columns that a column is computed from; None if one of them is not known."""
    from sqlglot import exp, parse_one

    found: dict[str, None] = {}
    for end in node.walk():
        if end.downstream:
            continue
        match end.expression:
            case exp.Table() as table:
                title = known.get(f"{table.db}.{table.name}".lower())
                name = parse_one(end.name, into=exp.Column, dialect=_DIALECT).name
            case exp.Placeholder():  # a column of a query around this one, or none that is known
                outer = parse_one(end.name, into=exp.Column)
                title, name = aliases.get(outer.text("table")), outer.name
            case _:
                continue
        exact = None if title is None else next((c for c in tables[title] if c.lower() == name.lower()), None)
        if exact is None:
            return None
        found[f"{title}.{exact}"] = None
    return tuple(sorted(found)[:_MOST])
