"""Conversion of values of the catalog's interfaces between the JVM and Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from anabranch.catalog import Identifier
from anabranch.errors import InvalidInputError, InvalidNameError
from anabranch.spark.jvm.proxy import Jvm, java_error
from anabranch.system_tables import undotted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

CONNECTOR = "org.apache.spark.sql.connector"
_PLAIN = re.compile("[A-Za-z0-9_]+[.][A-Za-z0-9_]+")
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis"


def strings(jvm: Jvm, items: Sequence[str]) -> Any:
    """A ``String[]``."""
    return jvm.array("java.lang.String", items)


def paths(jvm: Jvm, items: Sequence[Sequence[str]]) -> Any:
    """A ``String[][]``."""
    kind = jvm.root.java.lang.Class.forName("[Ljava.lang.String;")
    made = jvm.root.java.lang.reflect.Array.newInstance(kind, len(items))
    for place, item in enumerate(items):
        made[place] = strings(jvm, item)
    return made


def java_set(jvm: Jvm, items: Iterable[Any] = ()) -> Any:
    """A ``java.util.HashSet``."""
    return jvm.root.java.util.HashSet(jvm.list(items))


def python_map(java_map: Any) -> dict[str, str]:
    """A Java map of text."""
    # Iterating a Java collection ends with a JVM exception, which is slower than everything else here.
    return {str(key): str(java_map.get(key)) for key in java_map.keySet().toArray()}


def given_options(options: Any) -> dict[str, str]:
    """The options of a ``CaseInsensitiveStringMap`` as the user spelled them."""
    return {} if options.isEmpty() else python_map(options.asCaseSensitiveMap())


def python_struct(schema: Any) -> StructType:
    """A ``StructType`` of the JVM in Python."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(schema.json()))


def python_type(data_type: Any) -> DataType:
    """A Spark type of the JVM in Python."""
    from pyspark.sql.types import StructType

    field = {"name": "type", "type": json.loads(data_type.json()), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})[0].dataType


def columns(jvm: Jvm, schema: Any) -> Any:
    """The columns of a ``StructType`` of the JVM, as ``Column[]``."""
    convert = jvm.of(f"{CONNECTOR}.catalog.CatalogV2Util").structTypeToV2Columns
    try:
        return convert(schema, False)
    except Py4JError:  # before Spark 4.3 it has one parameter
        return convert(schema)


def struct_of_columns(jvm: Jvm, found: Any) -> Any:
    """The ``StructType`` of a ``Column[]``."""
    return jvm.of(f"{CONNECTOR}.catalog.CatalogV2Util").v2ColumnsToStructType(found)


def identities(jvm: Jvm, names: Sequence[str]) -> Any:
    """The ``Transform[]`` of a table that is partitioned by these columns."""
    # A name with a dot is one name only between back-ticks.
    make = jvm.of(f"{CONNECTOR}.expressions.Expressions").identity
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    return jvm.array(f"{CONNECTOR}.expressions.Transform", [make(name) for name in quoted])


def identifier(found: Any, *, catalog: str | None = None) -> Identifier:
    """Return the whole table that a Java ``Identifier`` names; the identifier may begin with the catalog.

    Raises `InvalidNameError`, `InvalidInputError` for the name of a branch (``t$branch_main`` too) or system table.
    """
    _, dollar, part = str(found.name()).partition("$")
    if dollar:
        raise InvalidInputError(
            f"'{part}' of '{found.name()}' is not the name of a table",
            hint="name the table itself, without '$'.",
        )
    levels = [str(level) for level in found.namespace()]
    if len(levels) == 2 and levels[0] == catalog:
        return Identifier.parse(f"{levels[1]}.{found.name()}")
    return Identifier.parse(name_of(found))


def name_of(found: Any) -> str:
    """``database.name`` of a Java ``Identifier``. Raises `InvalidNameError` unless it has one level above its name."""
    text = str(found.toString())
    if _PLAIN.fullmatch(text):  # as most are; to ask for the parts takes a call for each
        return text
    levels = [str(level) for level in found.namespace()]
    system = undotted([*levels, str(found.name())])
    if system is not None:
        return ".".join(system)
    if len(levels) != 1:
        raise InvalidNameError(
            f"'{'.'.join([*levels, str(found.name())])}' names no table",
            hint="tables are named catalog.database.table.",
        )
    return f"{levels[0]}.{found.name()}"


def no_such_table(jvm: Jvm, found: Any) -> Exception:
    """Return the exception that tells Spark that a table does not exist."""
    return java_error(jvm.of(f"{_ANALYSIS}.NoSuchTableException")(found))


def table_exists(jvm: Jvm, found: Any) -> Exception:
    """Return the exception that tells Spark that a table already exists."""
    return java_error(jvm.of(f"{_ANALYSIS}.TableAlreadyExistsException")(found))


def no_such_namespace(jvm: Jvm, levels: Sequence[str]) -> Exception:
    """Return the exception that tells Spark that a database does not exist."""
    return java_error(jvm.of(f"{_ANALYSIS}.NoSuchNamespaceException")(strings(jvm, levels)))


def namespace_exists(jvm: Jvm, levels: Sequence[str]) -> Exception:
    """Return the exception that tells Spark that a database already exists."""
    return java_error(jvm.of(f"{_ANALYSIS}.NamespaceAlreadyExistsException")(strings(jvm, levels)))
