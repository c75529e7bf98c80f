"""Lookups of a streaming batch: tables and other sources that its plan reads besides its streams.

The offset log of a query names its streams only. What else a batch reads is in its plan, which is in the JVM: the process
that started the query can look there while the batch is being committed, and the process that commits it cannot. So the
first answers questions of the second, by a socket of this machine. Its address lies in the folder of the session
(`anabranch.spark.context.notices`), which only this user can read. A missing answer becomes a problem of the commit.
"""

from __future__ import annotations

import hmac
import json
import logging
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.lineage.model import Input, TableInput, input_of
from anabranch.lineage.recording import Gathered
from anabranch.runtime import SYSTEM, Runtime
from anabranch.spark.context.running import context_of, is_running
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.lineage import plans
from anabranch.spark.lineage.batch_reads import note_planned
from anabranch.spark.lineage.given_values import given_before
from anabranch.spark.lineage.plan_inputs import found_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_FILE: Final = "lookups.json"
_ANSWER_SECONDS: Final = 30.0
_QUESTION_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_MOST_BYTES: Final = 1 << 24

OF_PROGRAM: Final = (
    "some rows that it looked up were handed over by the program, an RDD or a checkpoint, and it is not known what these "
    "were computed from"
)


@dataclass(frozen=True, slots=True)
class Lookups:
    """Inputs that a batch looked up."""

    inputs: tuple[Input, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons why the lookups may be incomplete."""

    @classmethod
    def of(cls, gathered: Gathered) -> Lookups:
        """Return the lookups for reads gathered while rows of batches were made."""
        return cls(tuple(map(_as_lookup, gathered.inputs)), gathered.problems)

    def and_(self, other: Lookups) -> Lookups:
        """Return both combined."""
        problems = dict.fromkeys((*self.problems, *other.problems))
        return Lookups((*self.inputs, *other.inputs), tuple(problems))

    @classmethod
    def unknown(cls, reason: str) -> Lookups:
        """Return lookups of which nothing is known, for that reason."""
        return cls(problems=(f"what the batch looked up besides its streams is not known: {reason}",))

    def to_json(self) -> str:
        """Serialise for another process."""
        return json.dumps({"inputs": [i.to_dict() for i in self.inputs], "problems": self.problems})

    @classmethod
    def from_json(cls, text: str) -> Lookups:
        """Parse the JSON. Raises `ValueError`, `KeyError` or `TypeError` if it is invalid."""
        value: Any = json.loads(text)
        return cls(tuple(input_of(i) for i in value["inputs"]), tuple(map(str, value["problems"])))


def lookups_of(spark: SparkSession, query: str, batch: int) -> Lookups:
    """Return the lookups of a running batch, in the process that started its query. Never raises."""
    if context_of(spark) is None:
        return Lookups.unknown("Spark Connect does not show the plan of a batch")
    jvm = Jvm(spark)
    found = found_in(jvm, lambda: plans.lookup_leaves(jvm, query, batch))
    problems = [*found.problems, *([OF_PROGRAM] if found.has_others else [])]
    problems += given_before(jvm, query, batch, found.inputs)
    return Lookups(tuple(map(_as_lookup, found.inputs)), tuple(problems))


def _as_lookup(read: Input) -> Input:
    """Mark an input as a lookup, to tell it from streams even if the table was empty (`TableInput.is_state`)."""
    if isinstance(read, TableInput) and not read.is_state:
        return replace(read, end=replace(read.end, full=True))
    return read


def ask(folder: Path | None, query: str, batch: int) -> Lookups:
    """Ask for the lookups of a batch from the process that commits it. Never raises.

    Args:
        folder: that of the session which started the query; None if it has none.
        query: id of the query.
    """
    if folder is None:
        return Lookups.unknown("the session was not opened by anabranch.spark.session() or attach()")
    try:
        return Lookups.from_json(_asked(folder, {"query": query, "batch": batch}))
    except FileNotFoundError:
        return Lookups.unknown(
            "the process that started the query cannot be asked, or works by Spark Connect"
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Lookups.unknown(f"the process that started the query does not answer ({error})")


def tell(folder: Path | None, read: TableInput) -> None:
    """Tell the session's process that a table is about to be read for it: the rows may reach it. Never raises."""
    if folder is None:
        return
    try:
        _asked(folder, {"read": read.to_dict()})
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.debug("the session's process does not hear of a read: %s", error)


def _asked(folder: Path, question: dict[str, Any]) -> str:
    address = json.loads((folder / _FILE).read_text())
    with socket.create_connection(("127.0.0.1", int(address["port"])), _QUESTION_SECONDS) as line:
        line.settimeout(_ANSWER_SECONDS)
        line.sendall(json.dumps({"key": address["key"], **question}).encode() + b"\n")
        return _line(line)


def answer(spark: SparkSession, folder: Path | None, *, runtime: Runtime = SYSTEM) -> None:
    """Start answering questions that arrive by way of this folder, until the folder is gone.

    Does nothing through Spark Connect, and where this process does so already.
    """
    if folder is None or context_of(spark) is None:
        return
    with _LOCK:
        known = _ANSWERING.get(folder)
        if known is not None and known.is_alive():
            known.spark = spark
            return
        try:
            _ANSWERING[folder] = answering = _Answering(spark, folder, runtime.ids.uuid())
        except OSError as error:
            _LOG.warning("commits of streams will not say what their batches looked up: %s", error)
            return
        answering.start()


_LOCK = threading.Lock()
_ANSWERING: dict[Path, _Answering] = {}


class _Answering(threading.Thread):
    """Thread that answers one question after the other."""

    def __init__(self, spark: SparkSession, folder: Path, key: str) -> None:
        super().__init__(name="anabranch-lookups", daemon=True)
        self.spark = spark
        self._folder = folder
        self._key = key
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(_LOOK_SECONDS)
        address = {"port": self._socket.getsockname()[1], "key": key}
        # The folder is this user's alone, so the file in it is.
        (folder / _FILE).write_text(json.dumps(address))

    def run(self) -> None:
        with self._socket:
            while (self._folder / _FILE).exists():
                try:
                    line, _ = self._socket.accept()
                except TimeoutError:
                    continue
                except OSError:
                    return
                with line, suppress(OSError, ValueError, KeyError, TypeError):
                    line.settimeout(_QUESTION_SECONDS)
                    self._answer(line)

    def _answer(self, line: socket.socket) -> None:
        question = json.loads(_line(line))
        if not hmac.compare_digest(str(question["key"]), self._key):
            return
        if "read" in question:
            read = input_of(question["read"])
            if isinstance(read, TableInput):
                note_planned(self.spark, read)
            line.sendall(b"{}\n")
            return
        found = self._found(str(question["query"]), int(question["batch"]))
        line.sendall(found.to_json().encode() + b"\n")

    def _found(self, query: str, batch: int) -> Lookups:
        try:
            if not is_running(self.spark):
                return Lookups.unknown("its session was stopped")
            return lookups_of(self.spark, query, batch)
        except Exception as error:  # whatever Spark is made of
            return Lookups.unknown(str(error).partition("\n")[0])


def _line(line: socket.socket) -> str:
    """Read one line from the other side. Raises `OSError`, `ValueError`."""
    said = bytearray()
    while not said.endswith(b"\n"):
        part = line.recv(1 << 16)
        if not part or len(said) > _MOST_BYTES:
            raise ValueError("the line was cut off")
        said += part
    return said.decode()
