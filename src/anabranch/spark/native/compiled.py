"""Java of ours for the tasks of Spark: compiled by the compiler that Spark ships, and handed to all executors.

No jar comes with Anabranch. The sources lie in the package; Janino, by which Spark compiles its queries, makes classes of
them for the very version of Spark that runs. That takes a second, so the classes are kept in a folder that only this user
can write to.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

from anabranch.runtime import SYSTEM
from anabranch.spark.context.notices import JAVA_FOLDER, folder_of_process
from anabranch.spark.jvm.proxy import Jvm

_COMPILER = "org.codehaus.janino"
_RESOURCES = "org.codehaus.commons.compiler.util.resource"
_PACKAGE = "anabranch"
_KEPT: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()
"""What was compiled for the JVM of each gateway."""
_ONE_AT_A_TIME = threading.Lock()
"""Jobs that begin together ask from threads of their own: none takes for given what another is still giving."""


@dataclass
class _Known:
    loader: Any = None
    reason: str | None = None
    classes: dict[str, Any] = field(default_factory=dict)
    applications: set[str] = field(default_factory=set)
    """To whose executors the classes were given."""
    jar: str = ""


class NotCompiledError(Exception):
    """The classes cannot be had in this session; says why."""


def compiled_class(jvm: Jvm, name: str) -> Any:
    """The constructor of a class in ``java/tasks``, known to the tasks of the session's application.

    Raises:
        NotCompiledError: this version of Spark does not compile it.
    """
    with _ONE_AT_A_TIME:
        return _given_class(jvm, name)


def _given_class(jvm: Jvm, name: str) -> Any:
    known = _KEPT.get(jvm.gateway)
    if known is None:
        known = _KEPT[jvm.gateway] = _Known()
        try:
            known.jar = _jar(_classes(jvm, sources()))
            known.loader = _loader(jvm, known.jar)
        except (Py4JError, TypeError, OSError) as error:  # where Janino is not, its package is called
            known.reason = f"this version of Spark does not compile our Java: {str(error).splitlines()[0]}"
    if known.reason is not None:
        raise NotCompiledError(known.reason)
    application = str(jvm.spark.sparkContext.applicationId)
    if application not in known.applications:
        _give(jvm, known.jar)
        known.applications.add(application)
    if name not in known.classes:
        known.classes[name] = known.loader.loadClass(f"{_PACKAGE}.{name}").getConstructors()[0]
    return known.classes[name]


def compiled_object(jvm: Jvm, name: str, *arguments: Any) -> Any:
    """Make an object of a class in ``java/tasks``. Raises as `compiled_class`."""
    return made_by(jvm, compiled_class(jvm, name), *arguments)


def made_by(jvm: Jvm, constructor: Any, *arguments: Any) -> Any:
    """Make an object by a constructor."""
    given = jvm.gateway.new_array(jvm.of("java.lang.Object"), len(arguments))
    for place, argument in enumerate(arguments):
        given[place] = argument
    return constructor.newInstance(given)


def driver_class(jvm: Jvm, name: str, *, part: str = "source") -> Any:
    """A class in a folder of ``java``, which Spark's own code in the driver finds by its name.

    Raises:
        NotCompiledError: this version of Spark does not compile it, or loads no classes that come later.
    """
    full_name = f"{_PACKAGE}.{name}"
    try:
        loader = jvm.of("org.apache.spark.util.Utils").getContextOrSparkClassLoader()
        with suppress(Py4JError):  # another session of this process made it
            return loader.loadClass(full_name)
        jar = _jar(_classes(jvm, _sources(part)))
        loader.addURL(jvm.of("java.io.File")(jar).toURI().toURL())
        return loader.loadClass(full_name)
    except (Py4JError, TypeError, OSError) as error:
        raise NotCompiledError(str(error).splitlines()[0]) from error


def not_given(jvm: Jvm, reason: str) -> None:
    """Executors do not find the classes: they are not asked for again in this process."""
    _KEPT[jvm.gateway] = _Known(reason=reason)


def sources() -> Mapping[str, str]:
    """The Java sources of what tasks run, by their file names."""
    return _sources("tasks")


def _sources(part: str) -> Mapping[str, str]:
    folder = resources.files("anabranch.spark.native").joinpath("java", part)
    return {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.name.endswith(".java")}


def _classes(jvm: Jvm, texts: Mapping[str, str]) -> dict[str, bytes]:
    """The compiled classes by their file names."""
    version = str(jvm.spark.version)
    digest = hashlib.sha256(repr((version, sorted(texts.items()))).encode()).hexdigest()
    kept = _private_folder()
    path = None if kept is None else kept / f"spark-{version}-{digest[:32]}.zip"
    if path is not None:
        with suppress(OSError, zipfile.BadZipFile, KeyError), zipfile.ZipFile(path) as found:
            return {name: found.read(name) for name in found.namelist()}
    made = _compile(jvm, texts)
    if path is not None:
        with suppress(OSError):
            temporary = path.with_name(f".{path.name}.{SYSTEM.ids.uuid()}.tmp")
            _write_zip(temporary, made)
            temporary.replace(path)
    return made


def _compile(jvm: Jvm, texts: Mapping[str, str]) -> dict[str, bytes]:
    made = jvm.of("java.util.HashMap")()
    compiler = jvm.of(f"{_COMPILER}.CompilerFactory")().newCompiler()
    loader = jvm.of("org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    compiler.setIClassLoader(jvm.of(f"{_COMPILER}.ClassLoaderIClassLoader")(loader))
    compiler.setClassFileCreator(jvm.of(f"{_RESOURCES}.MapResourceCreator")(made))
    compiler.setDebugLines(True)
    compiler.setDebugSource(True)
    resource = jvm.of(f"{_RESOURCES}.StringResource")
    compiler.compile(
        jvm.array(f"{_RESOURCES}.Resource", [resource(name, text) for name, text in sorted(texts.items())])
    )
    return {str(name): bytes(made.get(name)) for name in made.keySet().toArray()}


def _jar(classes: Mapping[str, bytes]) -> str:
    """A jar of its own for this process: executors that start later fetch it from here."""
    # Spark hands out one jar of a name: a second one would be refused, with a line in the JVM's log and no error.
    path = folder_of_process(JAVA_FOLDER) / f"anabranch-{SYSTEM.ids.uuid()}.jar"
    _write_zip(path, classes)
    return str(path)


def _write_zip(path: Path, classes: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "x") as made:
        for name, data in sorted(classes.items()):
            made.writestr(zipfile.ZipInfo(name), data)


def _give(jvm: Jvm, jar: str) -> None:
    """Let the executors have the classes."""
    jvm.spark.sparkContext._jsc.addJar(jar)  # noqa: SLF001 - Python has no word for it


def _loader(jvm: Jvm, jar: str) -> Any:
    """Loads the classes in the driver. Executors have a loader of their own; classes travel by name."""
    urls = jvm.array("java.net.URL", [jvm.of("java.io.File")(jar).toURI().toURL()])
    return jvm.of("java.net.URLClassLoader")(
        urls, jvm.of("org.apache.spark.util.Utils").getContextOrSparkClassLoader()
    )


def _private_folder() -> Path | None:
    """Where compiled classes are kept; None where there is no folder that only this user can write to."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(home) / "anabranch" / "java"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat(follow_symlinks=False)
    except (OSError, RuntimeError):
        return None
    is_private = found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022
    return folder if stat.S_ISDIR(found.st_mode) and is_private else None
