"""Java method handles combined into one, so that several calls of the JVM become one.

Types are written as the JVM writes them: ``(Ljava/lang/Object;)Z`` takes an object and gives a boolean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anabranch.spark.jvm.proxy import Jvm

_INVOKE = "java.lang.invoke"


def class_of(jvm: Jvm, name: str) -> Any:
    """Return the ``Class`` of that name."""
    found = jvm.of("org.apache.spark.util.Utils")
    return jvm.once(("class", name), lambda: found.classForName(name, True, False))


def classes(jvm: Jvm, *names: str) -> Any:
    """A ``Class[]``."""
    return jvm.array("java.lang.Class", [class_of(jvm, name) for name in names])


def described(name: str) -> str:
    """Return the name of a class in the JVM's method type notation."""
    return name.replace(".", "/") if name.startswith("[") else f"L{name.replace('.', '/')};"


class Handles:
    """Factory for handles of public methods and their combinations."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._make = jvm.of(f"{_INVOKE}.MethodHandles")
        # `publicLookup` does not give what depends on who calls it, as what makes proxies does.
        self._lookup = self._make.lookup()

    def method(self, owner: str, name: str, kind: str) -> Any:
        """Return a handle of an instance method, with the object as its first parameter."""
        return self._lookup.findVirtual(class_of(self._jvm, owner), name, self._kind(kind))

    def static(self, owner: str, name: str, kind: str) -> Any:
        return self._lookup.findStatic(class_of(self._jvm, owner), name, self._kind(kind))

    def constructor(self, owner: str, kind: str) -> Any:
        return self._lookup.findConstructor(class_of(self._jvm, owner), self._kind(kind))

    def first_constructor(self, owner: str) -> Any:
        """Return the handle of the first constructor of a class."""
        return self._lookup.unreflectConstructor(class_of(self._jvm, owner).getConstructors()[0])

    def element(self, place: int) -> Any:
        """Return a handle that reads one element of an ``Object[]``."""
        getter = self._make.arrayElementGetter(class_of(self._jvm, "[Ljava.lang.Object;"))
        return self.given(getter, 1, place)

    def typed(self, handle: Any, kind: str) -> Any:
        """Return the handle with other types; values are cast."""
        return handle.asType(self._kind(kind))

    def given(self, handle: Any, place: int, *values: Any) -> Any:
        """Return the handle with the parameters from that place on bound to values."""
        return self._make.insertArguments(handle, place, self._jvm.array("java.lang.Object", values))

    def through(self, handle: Any, place: int, inner: Any) -> Any:
        """Return the handle with that parameter computed by `inner` from all of its own parameters."""
        return self._make.collectArguments(handle, place, inner)

    def after(self, first: Any, handle: Any) -> Any:
        """Return a handle that calls both in turn with the same parameters and drops the first result."""
        return self._make.foldArguments(handle, first.asType(first.type().changeReturnType(self._void)))

    def among(self, handle: Any, kind: str, *places: int) -> Any:
        """Return the handle as one of type `kind`, using only its parameters at some places."""
        numbers = self._jvm.gateway.new_array(self._jvm.root.int, len(places))
        for at, place in enumerate(places):
            numbers[at] = place
        whole = self._kind(kind)
        given = handle.asType(handle.type().changeReturnType(whole.returnType()))
        return self._make.permuteArguments(given, whole, numbers)

    def constant(self, kind: str, value: bool) -> Any:
        """Return a handle that returns a constant, of a type as in `typed`: ``()Z``."""
        return self._make.constant(self._kind(kind).returnType(), value)

    def choice(self, test: Any, handle: Any, otherwise: Any) -> Any:
        """Return a handle that calls one or the other depending on `test`."""
        return self._make.guardWithTest(test, handle, otherwise)

    def function(self, handle: Any) -> Any:
        """Return the handle as a Scala function: arguments are cast, the result is an object."""
        kind = f"scala.Function{handle.type().parameterCount()}"
        return self._jvm.of(f"{_INVOKE}.MethodHandleProxies").asInterfaceInstance(
            class_of(self._jvm, kind), handle
        )

    def _kind(self, text: str) -> Any:
        loader = class_of(self._jvm, "org.apache.spark.util.Utils").getClassLoader()
        return self._jvm.of(f"{_INVOKE}.MethodType").fromMethodDescriptorString(text, loader)

    @property
    def _void(self) -> Any:
        return self._jvm.of("java.lang.Void").TYPE


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
