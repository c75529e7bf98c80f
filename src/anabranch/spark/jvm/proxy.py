"""Python objects that the JVM calls, and conversion of values for these calls.

Py4J lets a Python object stand in for a Java interface. Every call then comes back into this process, so a proxy
is small and its methods are few. It has none of the interface's default methods: each must be written.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass, JavaMember, JavaObject
from py4j.protocol import Py4JJavaError

from anabranch.errors import AnabranchError, InvalidInputError, UnsupportedFeatureError
from anabranch.kernel.log.cache import MetadataCache
from anabranch.runtime import SYSTEM
from anabranch.spark.jvm.raised import remember_raised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

Method = TypeVar("Method", bound=Callable[..., Any])
Made = TypeVar("Made")

_NUMBERS = itertools.count()
_CLASSES: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""Classes of each gateway to a JVM, by their full names."""
_MADE: WeakKeyDictionary[Any, dict[object, Any]] = WeakKeyDictionary()
"""Objects made once per session."""

_STRUCT_BYTES = 1 << 20
"""Upper limit for the total size of column descriptions that are cached with their JVM structs."""

_HELD_SECONDS = 5.0
_RETURNED: deque[tuple[float, Any]] = deque()
"""Objects that proxies returned lately, and when."""

_UNCHECKED = ("java.lang.RuntimeException", "java.lang.Error")
_ALL_MESSAGE = "_LEGACY_ERROR_TEMP_3100"
"""Spark's error condition for an error that consists of its message only."""


class JavaProxy:
    """Base of the objects that stand in for Java interfaces.

    A subclass names the interfaces, as Py4J wants it: ``class Java: implements = ["org.apache...ScanBuilder"]``.
    Its public methods are what the JVM calls; an `AnabranchError` of theirs becomes a Java exception with the same
    message and hint.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and callable(method) and not isinstance(method, type):
                setattr(cls, name, _translating(method))

    jvm: Jvm
    """The JVM the object was made for."""

    def equals(self, other: Any) -> bool:
        """Whether another object has the same text; by default each proxy equals only itself."""
        return other is not None and other.toString() == self.toString()

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        return zlib.crc32(self.toString().encode()) & 0x7FFFFFFF

    def toString(self) -> str:  # noqa: N802
        """Text of the proxy in plans and messages, which also defines its equality."""
        number = self.__dict__.setdefault("_number", next(_NUMBERS))
        return f"{type(self).__name__}#{number}"


class Jvm:
    """The JVM of a session, and constructors for its collections."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.session: Any = spark._jsparkSession  # noqa: SLF001 - the way into the JVM has no public name
        self.root: Any = spark._jvm  # noqa: SLF001
        self.gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._classes = _CLASSES.setdefault(self.gateway, {})
        self._made = _MADE.setdefault(spark, {})

    def of(self, name: str) -> Any:
        """Return the class of that full name, to make objects of or to call its static methods.

        Py4J asks the JVM about every part of a name, and about a static method at every call; so classes are kept,
        with the methods that were called.
        """
        found = self._classes.get(name)
        if found is None:
            asked = reduce(getattr, name.split("."), self.root)
            found = _KnownClass(asked._fqn, asked._gateway_client)  # noqa: SLF001
            self._classes[name] = found
        return found

    def once(self, what: object, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, computed once per session: for constants that Spark often asks for."""
        if what not in self._made:
            self._made[what] = make()
        found: Made = self._made[what]
        return found

    def list(self, items: Iterable[Any]) -> Any:
        """A ``java.util.ArrayList``."""
        made = self.of("java.util.ArrayList")()
        for item in items:
            made.add(item)
        return made

    def seq(self, items: Iterable[Any]) -> Any:
        """A Scala ``Seq``."""
        return self.seq_of(self.list(items))

    def seq_of(self, java_list: Any) -> Any:
        """A Scala ``Seq`` of a Java list."""
        return self._python_utils.toSeq(java_list)

    def array(self, name: str, items: Sequence[Any]) -> Any:
        """An array of a class."""
        if not items:
            return self.once((name, 0), lambda: self.gateway.new_array(self.of(name), 0))
        made = self.gateway.new_array(self.of(name), len(items))
        for position, item in enumerate(items):
            made[position] = item
        return made

    def map(self, items: Mapping[str, str]) -> Any:
        """A ``java.util.HashMap`` of text."""
        made = self.of("java.util.HashMap")()
        for key, value in items.items():
            made.put(key, value)
        return made

    def scala_map(self, items: Mapping[str, str]) -> Any:
        """An immutable Scala ``Map`` of text."""
        return self._python_utils.toScalaMap(self.map(items))

    def some(self, item: Any) -> Any:
        """Scala's ``Some``."""
        return self.of("scala.Option").apply(item)

    def none(self) -> Any:
        """Scala's ``None``."""
        return self.of("scala.Option").empty()

    def struct(self, schema: StructType | str) -> Any:
        """A ``StructType`` of the JVM, also from JSON; the same one each time, as long as there is room for it."""
        text = schema if isinstance(schema, str) else schema.json()
        kept = self.once("structs", lambda: MetadataCache(_STRUCT_BYTES))
        make = self.of("org.apache.spark.sql.types.DataType").fromJson
        return kept.get_or((text,), lambda: make(text), lambda _: len(text))

    @property
    def _python_utils(self) -> Any:
        return self.of("org.apache.spark.api.python.PythonUtils")


class _KnownClass(JavaClass):  # type: ignore[misc]
    """A class that looks up a static method only once."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def java_error(throwable: Any) -> Exception:
    """Return an exception that a proxy's method raises to throw this ``Throwable`` in the JVM."""
    error: Exception = Py4JJavaError.__new__(Py4JJavaError)
    Exception.__init__(error, "an exception for the JVM")
    vars(error).update(errmsg="an exception for the JVM", exception_cmd="", java_exception=throwable)
    return error


def thrown(error: AnabranchError, jvm: Jvm) -> Any:
    """Return the Java exception with the error's message and hint: PySpark shows it as it is.

    It is an unchecked one: a checked one that the interface's method does not declare would reach the user as an
    ``UndeclaredThrowableException`` without a message.
    """
    remember_raised(error)
    text = str(error)
    match error:
        case InvalidInputError():
            # Spark's own kind of it; the plain one of Java is wrapped by some commands.
            return jvm.root.org.apache.spark.SparkIllegalArgumentException(
                _ALL_MESSAGE, jvm.map({"message": text})
            )
        case UnsupportedFeatureError():
            return jvm.root.org.apache.spark.SparkUnsupportedOperationException(
                _ALL_MESSAGE, jvm.map({"message": text})
            )
    return _runtime_exception(jvm, text, None)


def _as_declared(proxy: JavaProxy, method: str, throwable: Any) -> Any:
    """Wrap a checked throwable that the method does not declare in an unchecked one; return others as they are.

    The JVM would put it into an ``UndeclaredThrowableException``, which has no message.
    """
    jvm = getattr(proxy, "jvm", None)
    if jvm is None:
        return throwable
    load = jvm.of("org.apache.spark.util.Utils").classForName
    if any(load(name, True, False).isInstance(throwable) for name in _UNCHECKED):
        return throwable
    for name in proxy.Java.implements:  # type: ignore[attr-defined]
        for known in load(name, True, False).getMethods():
            if known.getName() == method and any(
                kind.isInstance(throwable) for kind in known.getExceptionTypes()
            ):
                return throwable
    return _runtime_exception(jvm, str(throwable.getMessage()), throwable)


def _runtime_exception(jvm: Jvm, text: str, cause: Any) -> Any:
    parameters = jvm.scala_map({"message": text})
    context = jvm.array("org.apache.spark.QueryContext", [])
    return jvm.root.org.apache.spark.SparkRuntimeException(_ALL_MESSAGE, parameters, cause, context, "")


def _held(value: Any) -> Any:
    """Return a value after keeping it for a while, if it is an object of the JVM.

    The JVM gets the name of the object, and Py4J gives the object up there as soon as nobody here has it: from another thread, which
    may be quicker than the one that looks the name up. It would find null.
    """
    if isinstance(value, JavaObject):
        now = SYSTEM.clock.monotonic()
        _RETURNED.append((now, value))
        with suppress(IndexError):  # another thread may be at it as well
            while _RETURNED[0][0] < now - _HELD_SECONDS:
                _RETURNED.popleft()
    return value


def _translating(method: Method) -> Method:
    @functools.wraps(method)
    def call(self: JavaProxy, *arguments: Any) -> Any:
        try:
            return _held(method(self, *arguments))
        except AnabranchError as error:
            jvm = getattr(self, "jvm", None)
            if jvm is None:
                raise
            raise java_error(thrown(error, jvm)) from error
        except Exception as error:
            # What Py4J or PySpark made of a Java exception becomes that exception again.
            origin = getattr(error, "java_exception" if isinstance(error, Py4JJavaError) else "_origin", None)
            if origin is None:
                raise
            raise java_error(_as_declared(self, method.__name__, origin)) from error

    return call  # type: ignore[return-value]


class WithoutMetrics(JavaProxy):
    """Base of those that Spark asks for metrics of their own: there are none."""

    def supportedCustomMetrics(self) -> Any:  # noqa: N802 - Java's name
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomMetric", [])

    def reportDriverMetrics(self) -> Any:  # noqa: N802 - Java's name
        return self.jvm.array("org.apache.spark.sql.connector.metric.CustomTaskMetric", [])
