"""Resolution of the start and end options of a read to offsets, with the brokers' help."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anabranch.errors import NotFoundError, OptionError
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.loss import LossRule
from anabranch.kafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition
from anabranch.kafka.options import Bound, KafkaSettings


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
