"""Checks whether topics still have the records that follow a recorded position.

A job that begins at a position of another one reads what that one read, or its table lacks rows. So records that are gone
are an error here whatever `failOnDataLoss` says, which is about what a running query may skip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anabranch.errors import NotFoundError
from anabranch.jobs.source import Source
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.offsets import EARLIEST, TopicPartition, from_json, ids_from_json, to_json
from anabranch.kafka.options import KafkaSettings, settings_of

STARTING_OFFSETS = "startingOffsets"
_HINT = "choose a tag whose records the topic still has, and give the topic a longer retention than tags are kept."


def check_kept(source: Source, options: Mapping[str, str]) -> None:
    """Raise `NotFoundError` if a topic has lost records that follow the position at which a job is to begin.

    Args:
        source: the topics.
        options: those that say where the source begins.
    """
    text = options.get(STARTING_OFFSETS)
    if text is None:
        return
    with _cluster(source, options) as (_, cluster):
        _check(cluster, json.loads(text), source)


def check_rereadable(source: Source, begin: str) -> None:
    """Raise `NotFoundError` if topics cannot be read again from where a query began, with every record it read.

    Args:
        source: the topics.
        begin: the offsets as JSON, or ``earliest`` where only that is known: then all records must be there.
    """
    with _cluster(source, {STARTING_OFFSETS: begin}) as (settings, cluster):
        for topic in sorted({where.topic for where in cluster.partitions(settings.topics)}):
            if cluster.is_compacted(topic):
                raise NotFoundError(
                    f"{source}: topic '{topic}' is compacted: of records with the same key that were read only the newest "
                    "may be left",
                    hint=_HINT,
                )
        if begin != "earliest":
            _check(cluster, json.loads(begin), source)
            return
        there = cluster.partitions(settings.topics)
        cluster.check_exist(settings.topics, there)
        _check(cluster, to_json(dict.fromkeys(there, 0)), source)


def with_new_partitions(source: Source, options: Mapping[str, str]) -> str:
    """Return starting offsets, adding new partitions of the topics from their first record, as a stream does."""
    with _cluster(source, options) as (settings, cluster):
        there = cluster.partitions(settings.topics)
    value = json.loads(options[STARTING_OFFSETS])
    start = from_json(value)
    return json.dumps(
        to_json({**dict.fromkeys(there - start.keys(), EARLIEST), **start}, ids_from_json(value))
    )


def _check(cluster: Cluster, value: Any, source: Source) -> None:
    begin, ids = from_json(value), ids_from_json(value)
    for topic, found in sorted(cluster.ids(ids).items()):
        if found != ids[topic]:
            raise NotFoundError(
                f"{source}: topic '{topic}' was deleted and made anew since (its id was {ids[topic]}, and is {found}): the "
                "records that are to be read are gone",
                hint=_HINT,
            )
    earliest, latest = cluster.earliest(begin), cluster.latest(begin)
    for where, asked in sorted(begin.items()):
        wrong = _lost(where, asked, earliest.get(where), latest.get(where))
        if wrong is not None:
            raise NotFoundError(f"{source}: {wrong}", hint=_HINT)


def _lost(where: TopicPartition, asked: int, earliest: int | None, latest: int | None) -> str | None:
    if earliest is None or latest is None:
        return f"{where}: offset {asked} is to be read next, but the partition does not exist any more"
    if 0 <= asked < earliest:
        return (
            f"{where}: offset {asked} is to be read next, but the earliest record the brokers still have is at offset "
            f"{earliest}: {earliest - asked} offsets were removed since"
        )
    if asked > latest:
        return (
            f"{where}: offset {asked} is to be read next, but the partition ends at offset {latest}: the brokers lost "
            "records they had acknowledged, or the topic was made anew"
        )
    return None


@contextmanager
def _cluster(source: Source, options: Mapping[str, str]) -> Iterator[tuple[KafkaSettings, Cluster]]:
    kept = {key: value for key, value in source.options.items() if not key.lower().startswith("starting")}
    settings = settings_of({**kept, **options}, streaming=True)
    cluster = Cluster(settings.client, settings.patience_millis / 1000)
    try:
        yield settings, cluster
    finally:
        cluster.close()
