"""Inheritance of catalogs by sessions made from one that has them: by ``newSession``, or by streams for batches.

Spark makes the catalogs of each session anew, from names of classes in its configuration, and ours is an object. So the
first session that gets one also gets an extension, which Spark hands on to all sessions made from it: a rule of the
analyzer, which tells of a session before it looks for the tables of its first statement. What the session's configuration
says it has then, or the first session has, it gets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from anabranch.runtime import SYSTEM
from anabranch.spark.catalog.format_tables import register_format
from anabranch.spark.context.attached import known_options
from anabranch.spark.jvm.callbacks import compiled
from anabranch.spark.jvm.proxy import JavaProxy, Jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_PLACES: dict[str, tuple[str, Mapping[str, str]]] = {}
"""Names and options of the catalogs of this process, by the random token that identifies each in the configuration."""
_ADDING = threading.Lock()
_INHERITING: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
"""Session extensions with our catalogs, per JVM gateway."""
_SOURCES = ("anabranch", "anabranch-scan", "anabranch-kafka")

Put = Callable[["SparkSession", str, Mapping[str, str]], object]
"""Function that gives a session a catalog: the session, the name, warehouse and credentials."""


def place_key(name: str) -> str:
    """The setting that holds the token of a catalog's warehouse; copies of the session inherit it."""
    return f"spark.sql.catalog.{name}.anabranch-place"


def place_of(name: str, options: Mapping[str, str]) -> str:
    """Return the random token of a catalog. It reveals nothing and cannot be guessed."""
    with _ADDING:
        for word, known in _PLACES.items():
            if known == (name, options):
                return word
        word = SYSTEM.ids.uuid()
        _PLACES[word] = (name, dict(options))
        return word


def hand_on(jvm: Jvm, first: str, put: Put) -> None:
    """Let sessions that are made from this one have its catalogs.

    Args:
        jvm: of the session.
        first: the word of the catalog that they have in any case.
        put: see `Put`.
    """
    known = _INHERITING.setdefault(jvm.gateway, [])
    try:
        extensions = jvm.session.extensions()
        if not any(extensions.equals(each) for each in known):
            known.append(extensions)
            arguments = jvm.list([_Heir(jvm, first, put)]).toArray()
            extensions.injectHintResolutionRule(compiled(jvm.root, "HandedOn").newInstance(arguments))
    except (Py4JError, TypeError) as error:
        _LOG.info("sessions made from this one do not know its catalogs: %s", str(error).partition("\n")[0])


class _Heir(JavaProxy):
    """Callback that Spark invokes for each session made from one that has a catalog."""

    class Java:
        implements: ClassVar = ["scala.Function1"]

    def __init__(self, jvm: Jvm, first: str, put: Put) -> None:
        self.jvm = jvm
        self._first = first
        self._put = put

    def apply(self, session: Any) -> None:
        try:
            self._inherit(session)
        except Exception as error:  # the session is as good as Spark itself makes it
            _LOG.warning("a session made from another does not know its catalogs: %s", error)

    def _inherit(self, session: Any) -> None:
        from pyspark.sql import SparkSession

        state = session.sessionState()
        settings, there = state.conf(), state.catalogManager()
        with _ADDING:
            places = dict(_PLACES)  # other threads attach sessions while Spark is asked
        wanted = {
            word for word, (name, _) in places.items() if settings.getConfString(place_key(name), "") == word
        }
        made = None
        for word in wanted or {self._first}:
            name, options = places[word]
            if name in _names(there) or (not wanted and settings.contains(f"spark.sql.catalog.{name}")):
                continue
            made = made or SparkSession(self.jvm.spark.sparkContext, session)
            self._put(made, name, options)
        sources, ours = state.dataSourceManager(), self.jvm.session.sessionState().dataSourceManager()
        for name in _SOURCES:
            if made is not None and not sources.dataSourceExists(name) and ours.dataSourceExists(name):
                sources.registerDataSource(name, ours.lookupDataSource(name))
        if made is not None:
            register_format(made, known_options(self.jvm.spark))


def _names(manager: Any) -> set[str]:
    """Names of the catalogs that a session has created so far."""
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return {str(name) for name in field.get(manager).keySet().mkString("\n").split("\n")}
