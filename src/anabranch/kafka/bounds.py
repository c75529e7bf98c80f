"""Resolution of the start and end options of a read to offsets, with the brokers' help."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from anabranch.errors import NotFoundError, OptionError
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from anabranch.kafka.options import Bound, KafkaSettings

# Records lost before they were read: an error, or skipped with a warning and counted.
#
# How records go: retention or a delete-records request removes the oldest; a topic is deleted; the brokers come
# back without records they had acknowledged, or the topic was made anew.

_LOG = logging.getLogger(__name__)
_GO_ON = "or set failOnDataLoss=false to go on without them."


@dataclass
class LossRule:
    """Rule of `failOnDataLoss`, and the count of offsets skipped under it.

    Each method raises `NotFoundError` if loss is an error, and otherwise returns with a warning given.
    """

    fail: bool
    skipped: int = 0
    """Number of offsets known to be skipped. Not all of them need have been records."""

    def expired(self, where: TopicPartition, asked: int, earliest: int, end: int) -> None:
        """Report that of the offsets to read, ``[asked, end)``, only those from `earliest` on are left."""
        self._lost(
            f"{where}: offset {asked} was to be read next, but the earliest record the brokers still have is at "
            f"offset {earliest}: {earliest - asked} offsets were removed before they were read",
            "give the topic a longer retention and begin anew with another checkpoint location",
            f"going on at offset {min(earliest, end)}",
            min(earliest, end) - asked,
        )

    def ended_early(self, where: TopicPartition, asked: int, latest: int) -> None:
        """Report that the partition ends at `latest`, although offset `asked` was seen before."""
        self._lost(
            f"{where}: offset {asked} was to be read next, but now the partition ends at offset {latest}: the brokers "
            "lost records they had acknowledged, or the topic was made anew",
            "begin anew with another checkpoint location, and startingOffsets that say where",
            f"going on at offset {latest}",
            0,
        )

    def deleted(self, where: TopicPartition, asked: int) -> None:
        """Report that the partition no longer exists."""
        self._lost(
            f"{where}: offset {asked} was to be read next, but the partition does not exist any more",
            "begin anew with another checkpoint location and without the topic",
            "going on without it",
            0,
        )

    def made_anew(self, topic: str, known: str, found: str) -> None:
        """Report that a topic was recreated: its id differs from that of the positions."""
        self._lost(
            f"topic '{topic}' was deleted and made anew: its id was {known} when it was last read, and is {found} now, so "
            "offsets in the old one say nothing about the new one",
            "begin anew with another checkpoint location and startingOffsets that say where",
            "going on with the first record of the new topic",
            0,
            "or set failOnDataLoss=false to go on with the first record of the new topic.",
        )

    def appeared_late(self, where: TopicPartition, earliest: int) -> None:
        """Report that a partition added while the query ran has already lost its first records."""
        self._lost(
            f"{where}: the partition is new to the query, but its earliest record is at offset {earliest} instead of "
            f"0: {earliest} offsets were removed before they were read",
            "begin anew with another checkpoint location",
            f"beginning at offset {earliest}",
            earliest,
        )

    def _lost(self, message: str, remedy: str, instead: str, count: int, go_on: str = _GO_ON) -> None:
        if self.fail:
            raise NotFoundError(message, hint=f"{remedy}, {go_on}")
        self.skipped += count
        _LOG.warning("%s; %s (offsets skipped so far: %d)", message, instead, self.skipped)


def first_offsets(
    settings: KafkaSettings, cluster: Cluster, partitions: Collection[TopicPartition], loss: LossRule
) -> Offsets:
    """Return the start offset of a read in each of the partitions.

    Raises:
        OptionError: the option does not name exactly these partitions.
        NotFoundError: records from an offset that was asked for are gone, or no record is as late as asked.
    """
    wanted = _for_each(settings.start, partitions)
    known = settings.start.ids
    for topic, found in sorted(cluster.ids(known).items()):
        if found != known[topic]:
            loss.made_anew(topic, known[topic], found)
            wanted = {where: EARLIEST if where.topic == topic else at for where, at in wanted.items()}
    if settings.start.by_time:
        return _at_times(settings, cluster, wanted)
    earliest, latest = cluster.earliest(partitions), cluster.latest(partitions)
    offsets = {}
    for where, asked in wanted.items():
        low, high = earliest.get(where, 0), latest.get(where, 0)
        if asked == EARLIEST:
            offsets[where] = low
        elif asked == LATEST:
            offsets[where] = high
        else:
            if asked < low:
                loss.expired(where, asked, low, high)
            elif asked > high:
                loss.ended_early(where, asked, high)
            offsets[where] = min(max(asked, low), high)
    return offsets


def last_offsets(
    settings: KafkaSettings, cluster: Cluster, partitions: Collection[TopicPartition]
) -> Offsets:
    """Return the exclusive end offset of a batch read in each of the partitions. Raises `OptionError`."""
    wanted = _for_each(settings.end, partitions)
    latest = cluster.latest(partitions)
    if settings.end.by_time:
        found = cluster.at_times(wanted)
        ends = {where: found.get(where) for where in wanted}
    else:
        ends = {where: None if asked == LATEST else asked for where, asked in wanted.items()}
    offsets = {}
    for where, end in ends.items():
        high = latest.get(where, 0)
        if end is not None and end > high:
            raise OptionError(
                f"'{settings.end.option}' asks for records of {where} up to offset {end}, but the partition ends at "
                f"offset {high}",
                hint="offsets behind the end cannot be waited for: use latest (-1), or a stream.",
            )
        offsets[where] = high if end is None else end
    return offsets


def _for_each(bound: Bound, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
    if not isinstance(bound.at, Mapping):
        return dict.fromkeys(sorted(partitions), bound.at)
    missing = sorted(set(partitions) - bound.at.keys())
    unknown = sorted(bound.at.keys() - set(partitions))
    if missing or unknown:
        wrong = (
            f"leaves out {missing[0]}"
            if missing
            else f"names {unknown[0]}, which is not read or does not exist"
        )
        raise OptionError(
            f"'{bound.option}' {wrong}",
            hint="name every partition that is read, and no other"
            + ("." if bound.by_time else "; -2 stands for earliest, -1 for latest."),
        )
    return bound.at


def _at_times(settings: KafkaSettings, cluster: Cluster, times: Mapping[TopicPartition, int]) -> Offsets:
    found = cluster.at_times(times)
    without = [where for where in times if found.get(where) is None]
    if without and not settings.latest_if_no_time:
        raise NotFoundError(
            f"{without[0]}: there is no record of the time {times[without[0]]} ms ('{settings.start.option}') or later",
            hint="set startingOffsetsByTimestampStrategy=latest to begin at the end of such partitions.",
        )
    latest = cluster.latest(without)
    return {
        where: offset if (offset := found.get(where)) is not None else latest.get(where, 0) for where in times
    }
