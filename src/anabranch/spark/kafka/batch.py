"""Batch reads of topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from anabranch.kafka.bounds import first_offsets, last_offsets
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.fetch import RangeReader
from anabranch.kafka.loss import LossRule
from anabranch.kafka.offsets import OffsetRange, cut, ranges_between
from anabranch.kafka.options import KafkaSettings


class RangePartition(InputPartition):
    """One range of offsets, for one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)


class KafkaBatchReader(DataSourceReader):
    """Reader of the records between two positions, both determined when the read is planned."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        cluster = Cluster(settings.client, settings.patience_millis / 1000)
        try:
            there = cluster.partitions(settings.topics)
            cluster.check_exist(settings.topics, there)
            start = first_offsets(settings, cluster, there, LossRule(settings.fail_on_loss))
            end = last_offsets(settings, cluster, there)
        finally:
            cluster.close()
        ranges = cut(ranges_between(start, end), at_least=settings.min_partitions, most=settings.max_records)
        return [RangePartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):  # Spark makes one up where there is nothing to read
            yield from RangeReader(self._settings).read(partition.value)
