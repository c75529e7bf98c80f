"""Checkpoint of a streaming query, as the sink needs it: written by Spark, read by us.

We add one folder of our own, ``anabranch/`` (`anabranch.streaming.sink_identity`), and read:

* ``metadata``: the id of the query, the same over all its runs;
* ``offsets/<batch>``: what a batch reads and its watermark, there before the batch runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from anabranch.errors import AnabranchError, NotFoundError, OptionError, UnsupportedFeatureError
from anabranch.lineage.spark_offsets import BatchOffsets, parse_batch_offsets
from anabranch.spark.context.options import CHECKPOINT
from anabranch.spark.context.tables import absolute
from anabranch.storage.open import open_storage
from anabranch.storage.protocol import Storage


@dataclass(frozen=True)
class Checkpoint:
    """One query's checkpoint."""

    storage: Storage
    """Rooted at the checkpoint's folder."""
    query_id: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Checkpoint:
        """Open the checkpoint that the options of a stream name.

        Raises:
            OptionError: it is not named.
            NotFoundError: it is not where it is said to be.
            UnsupportedFeatureError: it lies in a file system that only Hadoop reads.
        """
        location = options.get(CHECKPOINT)
        if not location:
            raise OptionError(
                f"the stream has no option '{CHECKPOINT}'",
                hint=f"add .option('{CHECKPOINT}', path): without it a restart would write rows twice. A location "
                "from spark.sql.streaming.checkpointLocation does not reach the sink.",
            )
        try:
            storage = open_storage(absolute(location), options)
        except OptionError as error:
            raise UnsupportedFeatureError(
                f"the checkpoint cannot be read by Anabranch: {error.message}",
                feature="checkpoint-location",
                hint="put the checkpoint on a local or shared file system or an object store.",
            ) from error
        try:
            content = json.loads(storage.get("metadata"))
        except NotFoundError as error:
            # Written by Spark before it runs anything. Not here means that it is gone, or that Spark resolved the path elsewhere.
            raise NotFoundError(
                f"Spark's checkpoint '{location}' is not at {storage.url}: there is no file 'metadata'",
                hint="if it was removed or its disk is away, start the query again when it is back; if Spark keeps it "
                f"elsewhere, give '{CHECKPOINT}' as an absolute path or as a URL with its scheme.",
            ) from error
        return cls(storage, str(content["id"]))

    def batch_offsets(self, batch: int) -> BatchOffsets:
        """Return the offsets that a batch reads. Raises `NotFoundError`, `InvalidInputError`, `StorageError`."""
        return parse_batch_offsets(self.storage.get(f"offsets/{batch}").decode())

    def check_holds(self, batch: int) -> None:
        """Raise `NotFoundError` if the offsets between which a batch reads, stored before it runs, are not there any more."""
        for number in range(max(0, batch - 1), batch + 1):
            try:
                self.storage.get(f"offsets/{number}")
            except NotFoundError as error:
                raise NotFoundError(
                    f"batch {batch} was not written: Spark's checkpoint at {self.storage.url} has lost the offsets of batch {number}, "
                    "so nothing would tell which rows it holds",
                    hint="the checkpoint was removed, or its disk is away. Start the query again when it is back; a job whose "
                    "checkpoint is gone goes on after its last commit.",
                ) from error


# Names of the sources of a streaming query. Its offset log only numbers them.
#
# Kept in the query's checkpoint, in ``anabranch/``, so that a source is called the same in all its batches:
#
# * ``source-folders.json``: folders of files, from Spark's own log of the files that a batch has read,
#   ``sources/<source>/<batch>``. It is there before the first batch is committed.
# * ``source-descriptions.json``: what Spark calls the other sources, put there by the process that started the query
#   when the first batch is done; until then, and where that process is elsewhere, they are only numbered.

_LOG = logging.getLogger(__name__)
_FOLDERS: Final = "anabranch/source-folders.json"
_DESCRIPTIONS: Final = "anabranch/source-descriptions.json"
_LONGEST: Final = 200


def source_names(checkpoint: Storage, folders: Iterable[str], others: Iterable[str]) -> dict[str, str]:
    """Return the names of the sources, as far as they are known. Never raises.

    Args:
        checkpoint: rooted at the checkpoint's folder.
        folders: numbers of the sources that read files.
        others: numbers of those of which nothing is known.
    """
    found: dict[str, str] = {}
    try:
        wanted = list(folders)
        if wanted:
            found |= _folders(checkpoint, wanted)
        if any(True for _ in others):
            found |= {k: v for k, v in _kept(checkpoint, _DESCRIPTIONS).items() if k not in found}
    except (AnabranchError, ValueError) as error:
        _LOG.debug("the names of the sources cannot be found: %s", error)
    return found


def describe(checkpoint: Storage, descriptions: Sequence[str]) -> None:
    """Store Spark's descriptions of a query's sources, in their order. Raises `StorageError`."""
    names = {str(number): text[:_LONGEST] for number, text in enumerate(descriptions)}
    checkpoint.put_if_absent(_DESCRIPTIONS, json.dumps(names).encode())


def _folders(checkpoint: Storage, sources: Sequence[str]) -> dict[str, str]:
    known = _kept(checkpoint, _FOLDERS)
    new = {
        source: folder
        for source in sources
        if source not in known and (folder := _folder(checkpoint, source)) is not None
    }
    if new:
        known |= new
        checkpoint.put(_FOLDERS, json.dumps(known).encode(), durable=False)
    return {source: known[source] for source in sources if source in known}


def _kept(checkpoint: Storage, path: str) -> dict[str, str]:
    try:
        value: Any = json.loads(checkpoint.get(path))
    except NotFoundError:
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _folder(checkpoint: Storage, source: str) -> str | None:
    """Return the folder of the files that a source read first."""
    logs = [info.path for info in checkpoint.list(f"sources/{source}")]
    numbered = [(int(name.removesuffix(".compact")), path) for path in logs
                if (name := path.rpartition("/")[2]).removesuffix(".compact").isdigit()]  # fmt: skip
    if not numbered:
        return None
    lines = checkpoint.get(min(numbered)[1]).decode().split("\n")[1:]
    return common_folder([json.loads(line)["path"] for line in lines if line.strip()])


def common_folder(paths: Sequence[str]) -> str | None:
    """Return the deepest common folder of files, without partition folders: ``file:/data/in``; None if there is none.

    Args:
        paths: URLs of the files.
    """
    parts = [urlsplit(path) for path in paths]
    if not parts or len({(part.scheme, part.netloc) for part in parts}) > 1:
        return None
    folders = [
        [*takewhile(lambda folder: "=" not in folder, unquote(part.path).split("/")[:-1])] for part in parts
    ]
    shared = [
        level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*folders, strict=False))
    ]
    place = f"//{parts[0].netloc}" if parts[0].netloc else ""
    return f"{parts[0].scheme}:{place}{'/'.join(shared)}" if len(shared) > 1 else None


def described(progress: Any) -> list[str]:
    """Return Spark's descriptions of a query's sources in order; `progress` may be None."""
    return [] if progress is None else [str(source.description) for source in progress.sources]
