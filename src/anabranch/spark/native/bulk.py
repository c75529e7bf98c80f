"""Many values of the JVM in few calls, by what Java and Jackson have for that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anabranch.spark.native.proxy import Jvm

_INVOKE = "java.lang.invoke"
_SEPARATORS = ("\x1f", "\x1e", "\x00\x1f\x00")


def read_json(jvm: Jvm, value: Any, kind: str) -> Any:
    """What Jackson makes of a value as JSON: an object of that class, whose fields it sets."""
    return jvm.once("mapper", lambda: _mapper(jvm)).readValue(json.dumps(value), class_of(jvm, kind))


def text_array(jvm: Jvm, texts: Sequence[str]) -> Any:
    """A ``String[]``."""
    return read_json(jvm, texts, "[Ljava.lang.String;")


def member_texts(members: Any) -> list[str] | None:
    """The members of a Scala collection as the JVM spells them; None if no separator keeps them apart."""
    size = int(members.size())
    for separator in _SEPARATORS:
        texts = str(members.mkString(separator)).split(separator)
        if len(texts) == size:
            return texts
    return None


def each(jvm: Jvm, kind: str, method: str, items: Any, *, gives: str) -> Any:
    """What a method of a class, without arguments, gives for each item, as a Scala ``Seq``.

    Args:
        jvm: of the session.
        kind: name of the class.
        method: name of the method.
        items: a ``Seq`` of objects of the class.
        gives: name of the class that the method is declared to return.
    """

    def made() -> Any:
        signature = jvm.of(f"{_INVOKE}.MethodType").methodType(class_of(jvm, gives))
        lookup = jvm.of(f"{_INVOKE}.MethodHandles").publicLookup()
        return _function(jvm, "scala.Function1", lookup.findVirtual(class_of(jvm, kind), method, signature))

    return items.map(jvm.once((kind, method), made))


def pairs(jvm: Jvm, kind: str, firsts: Any, others: Any, *, of: tuple[str, str]) -> Any:
    """What ``apply(first, other)`` of a class makes of each first and its other, as a Scala ``Seq``.

    Args:
        jvm: of the session.
        kind: name of the class.
        firsts: a ``Seq``.
        others: a ``Seq`` of the same length.
        of: names of the classes of both.
    """
    found = class_of(jvm, kind)
    parameters = jvm.array("java.lang.Class", [class_of(jvm, name) for name in of])
    signature = jvm.of(f"{_INVOKE}.MethodType").methodType(found, parameters)
    method = jvm.of(f"{_INVOKE}.MethodHandles").publicLookup().findStatic(found, "apply", signature)
    build = getattr(jvm.of("scala.collection.BuildFrom$"), "MODULE$").buildFromIterableOps()
    return firsts.lazyZip(others).map(_function(jvm, "scala.Function2", method), build)


def class_of(jvm: Jvm, name: str) -> Any:
    """The ``Class`` of that name."""
    found = jvm.of("org.apache.spark.util.Utils")
    return jvm.once(("class", name), lambda: found.classForName(name, True, False))


def _function(jvm: Jvm, kind: str, method: Any) -> Any:
    """A method of Java as a function of Scala."""
    return jvm.of(f"{_INVOKE}.MethodHandleProxies").asInterfaceInstance(class_of(jvm, kind), method)


def _mapper(jvm: Jvm) -> Any:
    """Jackson as Spark ships it, setting the fields of objects themselves."""
    annotation = "com.fasterxml.jackson.annotation"
    mapper = jvm.of("com.fasterxml.jackson.databind.ObjectMapper")()
    accessors = jvm.of(f"{annotation}.PropertyAccessor")
    visibility = jvm.of(f"{annotation}.JsonAutoDetect$Visibility")
    mapper.setVisibility(accessors.ALL, visibility.NONE)
    mapper.setVisibility(accessors.FIELD, visibility.ANY)
    mapper.setVisibility(accessors.CREATOR, visibility.ANY)
    return mapper
