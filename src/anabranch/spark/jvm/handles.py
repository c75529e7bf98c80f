"""Java method handles combined into one, so that several calls of the JVM become one.

Types are written as the JVM writes them: ``(Ljava/lang/Object;)Z`` takes an object and gives a boolean.
"""

from __future__ import annotations

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
