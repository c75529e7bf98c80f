"""Bulk transfer of values to and from the JVM in few calls, by Java's and Jackson's own means."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anabranch.spark.jvm.handles import Handles, class_of, described
from anabranch.spark.jvm.proxy import Jvm

_SEPARATORS = ("\x1f", "\x1e", "\x00\x1f\x00")


def read_json(jvm: Jvm, value: Any, kind: str) -> Any:
    """Create a JVM object of a class from a value, by Jackson, which sets the fields."""
    return jvm.once("mapper", lambda: _mapper(jvm)).readValue(json.dumps(value), class_of(jvm, kind))


def text_array(jvm: Jvm, texts: Sequence[str]) -> Any:
    """A ``String[]``."""
    return read_json(jvm, texts, "[Ljava.lang.String;")


def member_texts(members: Any) -> list[str] | None:
    """The members of a Scala collection as the JVM formats them; None if no separator keeps them apart."""
    size = int(members.size())
    for separator in _SEPARATORS:
        texts = str(members.mkString(separator)).split(separator)
        if len(texts) == size:
            return texts
    return None


def each(jvm: Jvm, kind: str, method: str, items: Any, *, gives: str) -> Any:
    """Map a method without arguments over the items; return the results as a Scala ``Seq``.

    Args:
        jvm: of the session.
        kind: name of the class.
        method: name of the method.
        items: a ``Seq`` of objects of the class.
        gives: name of the class that the method is declared to return.
    """

    def made() -> Any:
        handles = Handles(jvm)
        return handles.function(handles.method(kind, method, f"(){described(gives)}"))

    return items.map(jvm.once((kind, method), made))


def pairs(jvm: Jvm, kind: str, firsts: Any, others: Any, *, of: tuple[str, str]) -> Any:
    """Map ``apply(first, other)`` of a class over pairs; return the results as a Scala ``Seq``.

    Args:
        jvm: of the session.
        kind: name of the class.
        firsts: a ``Seq``.
        others: a ``Seq`` of the same length.
        of: names of the classes of both.
    """
    handles = Handles(jvm)
    apply = handles.static(kind, "apply", f"({''.join(map(described, of))}){described(kind)}")
    build = getattr(jvm.of("scala.collection.BuildFrom$"), "MODULE$").buildFromIterableOps()
    return firsts.lazyZip(others).map(handles.function(apply), build)


def _mapper(jvm: Jvm) -> Any:
    """Return Jackson as shipped with Spark, configured to set fields directly."""
    annotation = "com.fasterxml.jackson.annotation"
    mapper = jvm.of("com.fasterxml.jackson.databind.ObjectMapper")()
    accessors = jvm.of(f"{annotation}.PropertyAccessor")
    visibility = jvm.of(f"{annotation}.JsonAutoDetect$Visibility")
    mapper.setVisibility(accessors.ALL, visibility.NONE)
    mapper.setVisibility(accessors.FIELD, visibility.ANY)
    mapper.setVisibility(accessors.CREATOR, visibility.ANY)
    return mapper
