"""Proxies whose constant answers are stored in the JVM, so that it need not call Python for them.

Spark asks a table for its name, or a scan for its description, a hundred times for one query, and a call of a proxy
takes far longer than its answer. So what does not change is put into a map of the JVM, where handles of Java's own
methods look first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError

from anabranch.spark.jvm.handles import Handles, class_of, classes, described
from anabranch.spark.jvm.proxy import JavaProxy, Jvm

_LOG = logging.getLogger(__name__)
_OBJECT, _TEXT = "Ljava/lang/Object;", "Ljava/lang/String;"
_MAP, _METHOD = "Ljava/util/Map;", "Ljava/lang/reflect/Method;"
_HANDLER, _PROXY = "java.lang.reflect.InvocationHandler", "java.lang.reflect.Proxy"


class Answers:
    """Stored answers of a proxy in the JVM, by the names of methods without arguments."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._map = jvm.of("java.util.concurrent.ConcurrentHashMap")()

    def learn(self, answers: Mapping[str, Any]) -> None:
        """Store more answers, at most ten; None, which Java's maps do not hold, is left to the proxy."""
        known = {name: value for name, value in answers.items() if value is not None}
        names = tuple(known)
        self._jvm.once(("learning", *names), lambda: _learning(self._jvm, names)).apply(
            self._map, *known.values()
        )

    def forget(self, *names: str) -> None:
        """Remove stored answers, so that the proxy is asked again."""
        for name in names:
            self._map.remove(name)

    def before(self, proxy: JavaProxy) -> Any:
        """Return the object for the JVM, which asks the proxy for what is not stored here.

        Two whose ``toString`` is the same are equal, which the JVM sees for itself. A proxy must not keep this: the
        JVM frees both when the object is unreferenced. In a JVM where it cannot be made, it is the proxy itself.
        """
        self.learn({"toString": proxy.toString(), "hashCode": proxy.hashCode()})
        interfaces = tuple(proxy.Java.implements)  # type: ignore[attr-defined]
        make = self._jvm.once(("answering", *interfaces), lambda: _tried(self._jvm, interfaces))
        return proxy if make is None else make.apply(self._map, proxy)


def answered(proxy: JavaProxy, known: Mapping[str, Any]) -> Any:
    """Return a proxy for the JVM with known answers, as in `Answers.learn`; see `Answers.before`."""
    answers = Answers(proxy.jvm)
    answers.learn(known)
    return answers.before(proxy)


def _tried(jvm: Jvm, interfaces: Sequence[str]) -> Any:
    try:
        return _answering(jvm, interfaces)
    except Py4JError as error:
        _LOG.warning(
            "this JVM does not answer for objects of Python, so statements are planned more slowly (%s)",
            str(error).partition("\n")[0],
        )
        return None


def _learning(jvm: Jvm, names: Sequence[str]) -> Any:
    """Return a Scala function that puts values into a map, under these names."""
    handles = Handles(jvm)
    make = handles.static("java.util.Map", "of", f"({2 * len(names) * _OBJECT}){_MAP}")
    for place, name in enumerate(names):
        make = handles.given(make, place, name)
    put = handles.method("java.util.Map", "putAll", f"({_MAP})V")
    return handles.function(handles.through(put, 1, make))


def _answering(jvm: Jvm, interfaces: Sequence[str]) -> Any:
    """Return a Scala function that combines a map of answers and a proxy into one object."""
    handles = Handles(jvm)
    found, methods = classes(jvm, *interfaces), described("java.lang.invoke.MethodHandle")
    new = handles.static(
        _PROXY,
        "newProxyInstance",
        f"(Ljava/lang/ClassLoader;[Ljava/lang/Class;{described(_HANDLER)}){_OBJECT}",
    )
    new = handles.given(new, 0, found[0].getClassLoader(), found)
    interface = handles.static(
        "java.lang.invoke.MethodHandleProxies",
        "asInterfaceInstance",
        f"(Ljava/lang/Class;{methods}){_OBJECT}",
    )
    interface = handles.given(interface, 0, class_of(jvm, _HANDLER))
    bind = handles.method("java.lang.invoke.MethodHandle", "bindTo", f"({_OBJECT}){methods}")
    handle = jvm.once("handle of answers", lambda: _handle(handles))
    both = handles.through(bind, 0, bind.bindTo(handle))
    handler = handles.among(
        handles.through(interface, 0, both), f"({2 * _OBJECT}){described(_HANDLER)}", 0, 1
    )
    return handles.function(handles.through(new, 0, handler))


def _handle(handles: Handles) -> Any:
    """Return the handle ``(answers, other, proxy, method, arguments) -> answer``; in Java::

    name = method.getName()
    if answers.containsKey(name): return answers.get(name)
    if "equals".equals(name): return Objects.equals(String.valueOf(arguments[0]), answers.get("toString"))
    return Proxy.getInvocationHandler(other).invoke(proxy, method, arguments)
    """
    call = f"({_MAP}{2 * _OBJECT}{_METHOD}[{_OBJECT})"
    get = handles.method("java.util.Map", "get", f"({_OBJECT}){_OBJECT}")
    name = handles.method("java.lang.reflect.Method", "getName", f"(){_TEXT}")
    name = handles.typed(name, f"({_METHOD}){_OBJECT}")

    has = handles.method("java.util.Map", "containsKey", f"({_OBJECT})Z")
    is_known = handles.among(handles.through(has, 1, name), f"{call}Z", 0, 3)
    known = handles.among(handles.through(get, 1, name), f"{call}{_OBJECT}", 0, 3)

    equal = handles.method("java.lang.Object", "equals", f"({_OBJECT})Z").bindTo("equals")
    is_equals = handles.among(handles.through(equal, 0, name), f"{call}Z", 3)
    text = handles.static("java.lang.String", "valueOf", f"({_OBJECT}){_TEXT}")
    text = handles.typed(handles.through(text, 0, handles.element(0)), f"([{_OBJECT}){_OBJECT}")
    same = handles.static("java.util.Objects", "equals", f"({2 * _OBJECT})Z")
    same = handles.through(handles.through(same, 1, handles.given(get, 1, "toString")), 0, text)
    equals = handles.among(same, f"{call}{_OBJECT}", 4, 0)

    invoke = handles.method(_HANDLER, "invoke", f"({_OBJECT}{_METHOD}[{_OBJECT}){_OBJECT}")
    inner = handles.static(_PROXY, "getInvocationHandler", f"({_OBJECT}){described(_HANDLER)}")
    asked = handles.among(handles.through(invoke, 0, inner), f"{call}{_OBJECT}", 1, 2, 3, 4)
    return handles.choice(is_known, known, handles.choice(is_equals, equals, asked))
