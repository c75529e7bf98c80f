"""All verbs: those of the command line in the order of its help, those of SQL by their name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from anabranch.errors import InvalidInputError, NotFoundError, nearest
from anabranch.verbs import (
    branches,
    checking,
    comparing,
    corrections,
    groups,
    jobs,
    lineage,
    machine,
    moments,
    rows,
    tables,
    upkeep,
)
from anabranch.verbs.caller import Caller
from anabranch.verbs.verb import VERBS, Group, Verb

__all__ = ["MODULES", "PROCEDURES", "VERBS", "call", "in_order", "procedure"]

MODULES = (
    tables,
    rows,
    branches,
    comparing,
    moments,
    jobs,
    corrections,
    groups,
    lineage,
    upkeep,
    checking,
    machine,
)
"""Where the verbs are, the most used first."""
PROCEDURES: dict[str, Verb] = {one.sql_name: one for one in VERBS.values() if one.columns is not None}


def in_order() -> list[Verb]:
    """Return all verbs as help lists them: by groups, the most used first."""
    titles, modules = get_args(Group), [module.__name__ for module in MODULES]

    def place(one: Verb) -> tuple[int, int]:
        own = one.function.__module__
        return titles.index(one.group), modules.index(own) if own in modules else len(modules)

    return sorted(VERBS.values(), key=place)


def procedure(name: str) -> Verb:
    """Return the verb whose procedure has that name. Raises `NotFoundError` naming the most similar one."""
    found = PROCEDURES.get(name.lower())
    if found is None:
        near = nearest(name, PROCEDURES)
        raise NotFoundError(
            f"there is no procedure '{name}'",
            hint=(f"did you mean '{near}'? " if near else "")
            + f"Procedures there are: {', '.join(PROCEDURES)}.",
        )
    return found


def call(verb: Verb, caller: Caller, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Call a procedure: return its rows. Arguments that are None have their defaults.

    Raises `InvalidInputError` if a required argument is missing, and what the verb raises.
    """
    found: list[tuple[Any, ...]] = []
    for answer in verb.answers(caller, _values(verb, given)):
        if answer.error is not None:
            raise answer.error
        found += answer.rows
    return found


def _values(verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a procedure by the names of the verb's parameters. Raises `InvalidInputError`."""
    values = {"table": given.get("table")}
    for parameter in verb.of_procedure:
        value = given.get(parameter.sql_name)
        if value is not None:
            values[parameter.name] = parameter.of_sql(value)
        elif parameter.is_needed_in_sql:
            raise InvalidInputError(
                f"procedure '{verb.sql_name}' needs the argument '{parameter.sql_name}'",
                hint=f"write {parameter.sql_name} => ...: {parameter.option.help}",
            )
    return values
