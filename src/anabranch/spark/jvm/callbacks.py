"""Pooled connections by which the JVM calls this process: few for all threads, and only for this JVM.

Py4J opens one for each thread of the JVM that ever calls and closes none, with a thread of Python at its end. Spark runs
the stages of queries in threads that come and go; so a driver would run out of files after some thousand queries. Here
connections are lent to threads for one call, by a class of Java that Spark's own compiler of expressions compiles. This
holds for all that Py4J calls in this process: for ``foreachBatch`` and listeners of PySpark as well.

The connections are also the only ones: PySpark's server for them takes those of any process of this machine.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from importlib import resources
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.clientserver import ClientServer, JavaClient
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from anabranch.runtime import SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_STARTING = threading.Lock()
_STARTED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Server for calls from the JVM, per gateway."""


def start_callbacks(spark: SparkSession) -> None:
    """Let the JVM call this process, once per JVM. Must be called before a proxy is handed over.

    The threads that answer are daemons: they end with the process, and keep nothing from ending.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the way into the JVM has no public name
    if _is_started(gateway):
        return
    with _STARTING:
        if not _is_started(gateway):
            _start(gateway)
            _STARTED[gateway] = _server(gateway)


def _is_started(gateway: Any) -> bool:
    known = _STARTED.get(gateway)
    return known is not None and known is _server(gateway)


def _server(gateway: Any) -> Any:
    # Py4J asks the JVM for attributes that the gateway does not have.
    return gateway.__dict__.get("_callback_server")


def _start(gateway: Any) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    for logger in (logging.getLogger("py4j.clientserver"), logging.getLogger("py4j.java_gateway")):
        if not any(isinstance(known, _AlreadyRaised) for known in logger.filters):
            logger.addFilter(_AlreadyRaised())
    # Of these the gateway has the first or the second, as it was started.
    for name in ("python_parameters", "callback_server_parameters"):
        parameters = gateway.__dict__.get(name)
        if parameters is not None:
            parameters.propagate_java_exceptions = True
    client = gateway._gateway_client  # noqa: SLF001
    if isinstance(client, JavaClient):
        client.deque = _EachOnce(client.deque)
    make = _compiled(gateway)
    # PySpark's server lets in whoever knows its port. If it runs already, threads may be about to connect without a word.
    token = SYSTEM.ids.uuid() if _server(gateway) is None and make is not None else None
    if token is not None:
        gateway.python_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    if make is not None:
        _lend(gateway, make, token)


def _compiled(gateway: Any) -> Any:
    """Return the constructor of the class; None where connections are not left open, or it does not compile."""
    if not isinstance(gateway, ClientServer):
        return None  # with spark.python.pinnedThread=false Py4J shares connections by itself
    try:
        return compiled(gateway.jvm, "LentConnections")
    except (Py4JError, TypeError) as error:  # where Janino is not, its package is called
        _LOG.warning(
            "this version of Spark does not compile what shares the connections of the JVM to Python: each query with "
            "a shuffle leaves a thread and a socket behind (%s)",
            str(error).partition("\n")[0],
        )
        return None


def compiled(jvm: Any, name: str) -> Any:
    """Compile one of our Java classes with the compiler that Spark ships; return its constructor.

    Raises ``Py4JError`` or ``TypeError`` where that is not there, or is another one.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(resources.files("anabranch.spark.jvm").joinpath("java", f"{name}.java").read_text("utf-8"))
    return compiler.getClassLoader().loadClass(f"anabranch.{name}").getConstructors()[0]


def _lend(gateway: Any, make: Any, token: str | None) -> None:
    """Replace Py4J's own class by ours; connections that exist go on."""
    java = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getGateway()  # noqa: SLF001
    former = java.getCallbackClient()
    of_threads = _field(former.getClass(), "threadConnection")
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 5)
    for place, value in enumerate(
        (former, former.getPort(), former.getAddress(), of_threads.get(former), token)
    ):
        arguments[place] = value
    _field(java.getClass(), "cbClient").set(java, make.newInstance(arguments))


def _field(owner: Any, name: str) -> Any:
    field = owner.getDeclaredField(name)
    field.setAccessible(True)
    return field


class _EachOnce(deque[Any]):
    """Connections of Python threads to the JVM, without duplicates.

    Py4J puts one here after each call, and twice after a call within which the JVM called back. When its thread ends it
    takes it out once, and then the connection stays open.
    """

    def append(self, item: Any) -> None:
        if item not in self:
            super().append(item)


class _AlreadyRaised(logging.Filter):
    """Log filter: drops Py4J's tracebacks of exceptions that the JVM was given."""

    def filter(self, record: logging.LogRecord) -> bool:
        from py4j.protocol import Py4JJavaError

        found = record.exc_info
        return not (isinstance(found, tuple) and isinstance(found[1], Py4JJavaError))
