"""Methods of Java put together to one, so that what would take several calls of the JVM takes one.

Types are written as the JVM writes them: ``(Ljava/lang/Object;)Z`` takes an object and gives a boolean.
"""

from __future__ import annotations

from typing import Any

from anabranch.spark.jvm.proxy import Jvm

_INVOKE = "java.lang.invoke"


def class_of(jvm: Jvm, name: str) -> Any:
    """The ``Class`` of that name."""
    found = jvm.of("org.apache.spark.util.Utils")
    return jvm.once(("class", name), lambda: found.classForName(name, True, False))


def classes(jvm: Jvm, *names: str) -> Any:
    """A ``Class[]``."""
    return jvm.array("java.lang.Class", [class_of(jvm, name) for name in names])


def described(name: str) -> str:
    """A class as it is written in the types of a method."""
    return name.replace(".", "/") if name.startswith("[") else f"L{name.replace('.', '/')};"


class Handles:
    """Handles of public methods, and what is made of them."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._make = jvm.of(f"{_INVOKE}.MethodHandles")
        # `publicLookup` does not give what depends on who calls it, as what makes proxies does.
        self._lookup = self._make.lookup()

    def method(self, owner: str, name: str, kind: str) -> Any:
        """One of an object, which is its first parameter."""
        return self._lookup.findVirtual(class_of(self._jvm, owner), name, self._kind(kind))

    def static(self, owner: str, name: str, kind: str) -> Any:
        return self._lookup.findStatic(class_of(self._jvm, owner), name, self._kind(kind))

    def constructor(self, owner: str, kind: str) -> Any:
        return self._lookup.findConstructor(class_of(self._jvm, owner), self._kind(kind))

    def first_constructor(self, owner: str) -> Any:
        """That of a class which has one."""
        return self._lookup.unreflectConstructor(class_of(self._jvm, owner).getConstructors()[0])

    def element(self, place: int) -> Any:
        """What an ``Object[]`` has there."""
        getter = self._make.arrayElementGetter(class_of(self._jvm, "[Ljava.lang.Object;"))
        return self.given(getter, 1, place)

    def typed(self, handle: Any, kind: str) -> Any:
        """The handle with other types, between which values are cast."""
        return handle.asType(self._kind(kind))

    def given(self, handle: Any, place: int, *values: Any) -> Any:
        """The handle with its parameters from that place on already there."""
        return self._make.insertArguments(handle, place, self._jvm.array("java.lang.Object", values))

    def through(self, handle: Any, place: int, inner: Any) -> Any:
        """The handle, given at that place what another makes of all its own parameters."""
        return self._make.collectArguments(handle, place, inner)

    def after(self, first: Any, handle: Any) -> Any:
        """Both, one after the other, with the same parameters; what the first gives is dropped."""
        return self._make.foldArguments(handle, first.asType(first.type().changeReturnType(self._void)))

    def among(self, handle: Any, kind: str, *places: int) -> Any:
        """The handle as one of that kind, of whose parameters it takes those at some places."""
        numbers = self._jvm.gateway.new_array(self._jvm.root.int, len(places))
        for at, place in enumerate(places):
            numbers[at] = place
        whole = self._kind(kind)
        given = handle.asType(handle.type().changeReturnType(whole.returnType()))
        return self._make.permuteArguments(given, whole, numbers)

    def constant(self, kind: str, value: bool) -> Any:
        """What gives always the same, of a type as `typed` has it: ``()Z``."""
        return self._make.constant(self._kind(kind).returnType(), value)

    def choice(self, test: Any, handle: Any, otherwise: Any) -> Any:
        """One or the other."""
        return self._make.guardWithTest(test, handle, otherwise)

    def function(self, handle: Any) -> Any:
        """A Scala function: what it is called with is cast, what it gives is an object."""
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
