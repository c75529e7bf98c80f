"""Registration of the catalog in a session.

A session's ``CatalogManager`` makes its catalogs from class names, and keeps them in a private map. There is no public
way to give it an object; so it is put into that map. Where that cannot be done, in sessions of Spark Connect and
in versions of Spark that keep their catalogs elsewhere, the session works with ``format("anabranch")`` only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from anabranch.errors import InvalidNameError, UnsupportedFeatureError
from anabranch.options import WAREHOUSE
from anabranch.spark.context.running import context_of
from anabranch.spark.context.tables import catalog_of
from anabranch.spark.tasks.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_RESERVED = frozenset({"spark_catalog", "system", "session", "global_temp"})
_MARK = "anabranch.spark.attach(spark, warehouse)"
"""Placeholder in the configuration for the class name. A session made from this one inherits the configuration but not
the catalog; Spark then reports that it cannot find this class, and this text is the remedy."""


_USE_OURS = (
    "through Spark Connect only lake.sql('SELECT ... FROM db.t') knows the tables, with lake = anabranch.connect(warehouse, "
    "spark=spark), and spark.read.format('anabranch').load('db.t')"
)
_Identity: TypeAlias = tuple[str, Mapping[str, str]]
_KNOWN: WeakKeyDictionary[SparkSession, dict[str, _Identity]] = WeakKeyDictionary()
"""Catalogs per session: the identity of warehouse and credentials, by catalog name."""


def register_catalog(spark: SparkSession, name: str, options: Mapping[str, str]) -> bool:
    """Make the warehouse a catalog of the session's SQL, replacing any catalog of that name.

    Returns:
        Whether it does now. If not, the log says why, and what to use.

    Raises:
        InvalidNameError: Spark itself uses the name.
    """
    if not name or name.lower() in _RESERVED:
        raise InvalidNameError(
            f"a catalog cannot be called '{name}'", hint="choose another name, such as lake."
        )
    _tell_of_another(spark, name, options)
    if context_of(spark) is None:
        _tell_whoever_asks(spark, name)
        _KNOWN.setdefault(spark, {})[name] = _identity(options)
        return False
    other = spark.conf.get(_key(name), None)
    if other not in (None, _MARK):
        _LOG.warning(
            "the session has a catalog '%s' of its own (%s), so SQL does not know the warehouse by that name: "
            "give another one, attach(spark, warehouse, catalog='...').",
            name,
            other,
        )
        return False
    return _put(spark, name, options)


def _tell_of_another(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    """Warn where a name of the session has meant another warehouse until now: statements would go there unseen."""
    before, now = _KNOWN.get(spark, {}).get(name), _identity(options)
    if before is not None and before[0] != now[0]:
        _LOG.warning(
            "'%s' in this session is the warehouse %s from now on, and no longer %s. To have both, name one of them "
            "otherwise: anabranch.spark.attach(spark, warehouse, catalog='...').",
            *(name, now[0], before[0]),
        )


def _tell_whoever_asks(spark: SparkSession, name: str) -> None:
    """Make Spark Connect's error name the remedy when a session asks for a table of the catalog.

    Spark keeps catalogs on the server, and takes the setting for the name of a class, which its error shows.
    """
    if spark.conf.get(_key(name), None) is None:
        spark.conf.set(_key(name), _USE_OURS)
    _LOG.info(
        "Spark Connect keeps its catalogs on the server: spark.sql does not know '%s'. %s", name, _USE_OURS
    )


def catalog_name(spark: SparkSession, options: Mapping[str, str]) -> str:
    """Return the name under which the session's SQL knows a warehouse, registering it if necessary.

    Args:
        spark: the session; one of Spark Connect was attached by Anabranch.

    Raises `UnsupportedFeatureError` if the session takes no catalogs.
    """
    known = _KNOWN.setdefault(spark, {})
    for name, what in known.items():
        if what == _identity(options):
            return name
    name = f"lake_{len(known) + 1}"
    if not register_catalog(spark, name, options):
        raise UnsupportedFeatureError(
            "this version of Spark does not take the catalog, so SQL does not know the tables of the lake",
            feature="spark-catalog",
            hint="read and write with format('anabranch').",
        )
    return name


def _identity(options: Mapping[str, str]) -> _Identity:
    """Return a value that is equal for options of the same warehouse, however its path is written."""
    return catalog_of(options).storage.url, {k: v for k, v in options.items() if k != WAREHOUSE.key}


def _key(name: str) -> str:
    return f"spark.sql.catalog.{name}"


def _put(spark: SparkSession, name: str, options: Mapping[str, str]) -> bool:
    # The catalog is made of what needs Py4J, which clients of Spark Connect do not have.
    from anabranch.spark.catalog.format_tables import hand_on, place_of
    from anabranch.spark.jvm.callbacks import start_callbacks
    from anabranch.spark.jvm.proxy import Jvm
    from anabranch.spark.native.portable import register_scans

    start_callbacks(spark)
    register_scans(spark)  # now, so that the copies that streams make of the session have it
    if not _put_catalog(spark, name, options):
        return False
    hand_on(Jvm(spark), place_of(name, options), _put_catalog)
    return True


def _put_catalog(spark: SparkSession, name: str, options: Mapping[str, str]) -> bool:
    from py4j.protocol import Py4JError

    from anabranch.spark.catalog.catalog import LakeCatalog
    from anabranch.spark.catalog.format_tables import place_key, place_of
    from anabranch.spark.catalog.lookup import Warehouse
    from anabranch.spark.jvm.proxy import Jvm

    jvm = Jvm(spark)
    warehouse = Warehouse(name, catalog_of(options), dict(options), SparkEngine(spark))
    try:
        manager = jvm.session.sessionState().catalogManager()
        field = manager.getClass().getDeclaredField("catalogs")
        field.setAccessible(True)
        field.get(manager).put(name, LakeCatalog(jvm, warehouse).for_spark())
    except Py4JError as error:
        _LOG.warning(
            "this version of Spark does not take the catalog '%s': SQL does not know its tables. Read and write with "
            "format('anabranch'). (%s)",
            name,
            str(error).partition("\n")[0],
        )
        return False
    spark.conf.set(_key(name), _MARK)
    spark.conf.set(place_key(name), place_of(name, options))
    _KNOWN.setdefault(spark, {})[name] = _identity(options)
    return True
