"""Checkpoint of a streaming query, as the sink needs it: written by Spark, read by us.

We add one folder of our own, ``anabranch/`` (`anabranch.streaming.sink_identity`), and read:

* ``metadata``: the id of the query, the same over all its runs;
* ``offsets/<batch>``: what a batch reads and its watermark, there before the batch runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import NotFoundError, OptionError, UnsupportedFeatureError
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
            OptionError: it is not named, or not found where it is said to be.
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
            # Written by Spark before it runs anything. Not here means that Spark resolved the path elsewhere.
            raise OptionError(
                f"Spark's checkpoint '{location}' is not at {storage.url}: there is no file 'metadata'",
                hint=f"give '{CHECKPOINT}' as an absolute path or as a URL with its scheme.",
            ) from error
        return cls(storage, str(content["id"]))

    def batch_offsets(self, batch: int) -> BatchOffsets:
        """Return the offsets that a batch reads. Raises `NotFoundError`, `InvalidInputError`, `StorageError`."""
        return parse_batch_offsets(self.storage.get(f"offsets/{batch}").decode())
