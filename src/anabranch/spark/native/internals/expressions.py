"""Access to expressions of Spark's optimiser, Catalyst."""

from __future__ import annotations

from typing import Any

from anabranch.spark.jvm.handles import Handles, each, member_texts
from anabranch.spark.jvm.proxy import Jvm

_LITERAL = "org.apache.spark.sql.connector.expressions.LiteralValue"
_COALESCE = "org.apache.spark.sql.catalyst.expressions.Coalesce"
_TEXT = "Ljava/lang/String;"
_ARRAY_SEQ = "scala.collection.immutable.ArraySeq"


def joined(jvm: Jvm, expressions: Any) -> Any:
    """Join Catalyst expressions as children of one, so that a single JVM call describes all of them.

    It has no meaning of its own and is never evaluated.
    """
    return jvm.of(_COALESCE)(expressions)


def expressions_json(jvm: Jvm, expressions: Any) -> str:
    """Return a Scala ``Seq`` of Catalyst expressions as JSON, as children of one."""

    def made() -> Any:
        handles = Handles(jvm)
        new = handles.constructor(_COALESCE, "(Lscala/collection/immutable/Seq;)V")
        return handles.function(handles.through(handles.method(_COALESCE, "toJSON", f"(){_TEXT}"), 0, new))

    return str(jvm.once("expressions as JSON", made).apply(expressions))


def literal_texts(jvm: Jvm, children: Any) -> tuple[str, list[str]] | None:
    """Return the literals after the first child of a DataSource V2 predicate: type as JSON, and texts.

    It takes few calls however many there are. None if they are of several types, or no texts can be had.
    """
    literals = jvm.of(_ARRAY_SEQ).unsafeWrapArray(children).tail()
    types = each(jvm, _LITERAL, "dataType", literals, gives="org.apache.spark.sql.types.DataType").distinct()
    texts = member_texts(each(jvm, _LITERAL, "value", literals, gives="java.lang.Object"))
    if texts is None or types.length() != 1:
        return None
    return str(types.head().json()), texts
