"""Options of the Kafka source, with the names and meanings of those of Spark's own source.

Unlike there an unknown option is an error: a stream that begins at the end because of a slip in
``startingOffsets`` loses records in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anabranch.errors import OptionError, did_you_mean
from anabranch.kafka import values
from anabranch.kafka.client import ClientConfig
from anabranch.kafka.offsets import EARLIEST, LATEST, Offsets, TopicPartition, from_json, ids_from_json
from anabranch.kafka.values import ValueSettings, value_settings
from anabranch.option_kinds import Option, at_least, parse_bool, parse_duration

T = TypeVar("T")

CLIENT_PREFIX = "kafka."
_FROM_SPARK = {"checkpointlocation", "queryname", "path"}
"""Options that Spark adds by itself."""
_INTERNAL = {"__consumer_offsets", "__transaction_state"}


@dataclass(frozen=True)
class Topics:
    """Topics to read: by name or by pattern, or single partitions; exactly one of them is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def matches(self, topic: str) -> bool:
        """Whether a topic of the cluster matches the pattern."""
        return (
            self.pattern is not None
            and topic not in _INTERNAL
            and re.fullmatch(self.pattern, topic) is not None
        )


@dataclass(frozen=True)
class Bound:
    """Start or end of a read: one value for all partitions, or one for each."""

    option: str
    """Name of the option it comes from."""
    at: int | Mapping[TopicPartition, int]
    by_time: bool = False
    """Whether the values are times, in epoch milliseconds, instead of offsets, EARLIEST or LATEST."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics of the offsets, where the option has them."""


@dataclass(frozen=True)
class KafkaSettings:
    """Settings of a read. Picklable; holds the credentials, which its repr leaves out."""

    client: ClientConfig
    topics: Topics
    start: Bound
    end: Bound
    latest_if_no_time: bool
    headers: bool
    fail_on_loss: bool
    patience_millis: int
    min_partitions: int | None
    max_records: int | None
    max_per_trigger: int | None
    min_per_trigger: int | None
    max_delay_millis: int
    values: ValueSettings | None = None
    """Settings for decoding record values; None if they stay as they are."""
    commit_group: str | None = None
    """Consumer group that a stream commits its offsets to."""


def settings_of(options: Mapping[str, str], *, streaming: bool) -> KafkaSettings:
    """Parse the options of a read; names in any case. Raises `OptionError`."""
    named = _spelled(options)
    start = _bound(named, _STARTS, Bound(STARTING_OFFSETS.key, LATEST if streaming else EARLIEST))
    end = _bound(named, _ENDS, Bound(ENDING_OFFSETS.key, LATEST))
    _check_use(named, start, end, streaming=streaming)
    return KafkaSettings(
        client=ClientConfig.of(
            {k.removeprefix(CLIENT_PREFIX): v for k, v in named.items() if k.startswith(CLIENT_PREFIX)}
        ),
        topics=_topics(named),
        start=start,
        end=end,
        latest_if_no_time=NO_TIME.of(named),
        headers=HEADERS.of(named),
        fail_on_loss=FAIL_ON_LOSS.of(named),
        patience_millis=PATIENCE.of(named),
        min_partitions=MIN_PARTITIONS.of(named),
        max_records=MAX_RECORDS.of(named),
        max_per_trigger=MAX_PER_TRIGGER.of(named),
        min_per_trigger=MIN_PER_TRIGGER.of(named),
        max_delay_millis=MAX_DELAY.of(named),
        values=value_settings(named),
        commit_group=COMMIT_GROUP.of(named),
    )


def columns_asked(options: Mapping[str, str]) -> tuple[bool, ValueSettings | None]:
    """Return whether a read has the column of headers, and its value settings. Raises `OptionError`."""
    named = _spelled(options)
    return HEADERS.of(named), value_settings(named)


# How the text of each is read; what these raise, `Option.of` turns into an `OptionError`


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError(text)
    return names


def _group(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    return text


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    value = json.loads(text)
    match value:
        case dict() if value and all(
            isinstance(numbers, list) and numbers and all(type(n) is int and n >= 0 for n in numbers)
            for numbers in value.values()
        ):
            return tuple(sorted({TopicPartition(topic, n) for topic, ns in value.items() for n in ns}))
        case _:
            raise ValueError(text)


def _offsets(text: str) -> int | Offsets:
    match text.strip().lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case _:
            return _by_partition(text, lowest=EARLIEST)


def _times(text: str) -> Offsets:
    return _by_partition(text, lowest=0)


def _by_partition(text: str, *, lowest: int) -> Offsets:
    offsets = from_json(json.loads(text))
    if not offsets or min(offsets.values()) < lowest:
        raise ValueError(text)
    return offsets


def _latest_if_no_time(text: str) -> bool:
    match text.strip().lower():
        case "error":
            return False
        case "latest":
            return True
        case _:
            raise ValueError(text)


def _optional(key: str, parse: Any, meaning: str, kind: str) -> Option[Any]:
    return Option(key, parse, None, meaning, kind)


def _delay(text: str) -> int:
    return int(text) if text.strip().isdecimal() else parse_duration(text)


_OFFSETS_JSON = 'JSON such as {"topic": {"0": 17, "1": -2}}'
_TIMES_JSON = 'JSON such as {"topic": {"0": 1767225600000}}'
_COUNT = "whole number above 0"

SUBSCRIBE = _optional("subscribe", _names, "Topics to read, separated by commas.", "list of topics")
SUBSCRIBE_PATTERN = _optional(
    "subscribePattern",
    _pattern,
    "Regular expression for the whole name of the topics to read; topics that are made later are found.",
    "regular expression",
)
ASSIGN = _optional("assign", _assignment, "Single partitions to read.", 'JSON such as {"topic": [0, 1]}')
STARTING_OFFSETS = _optional(
    "startingOffsets",
    _offsets,
    "Where a new query begins: earliest, latest, or an offset for each partition (-2: earliest, -1: latest). "
    "Batch reads begin at earliest by default, streams at latest.",
    f"earliest, latest or {_OFFSETS_JSON}",
)
STARTING_TIME = _optional(
    "startingTimestamp",
    at_least(0),
    "Begin with the first record of that time or later, in epoch milliseconds.",
    "number of epoch milliseconds",
)
STARTING_TIMES = _optional(
    "startingOffsetsByTimestamp",
    _times,
    "As startingTimestamp, with a time for each partition.",
    _TIMES_JSON,
)
NO_TIME = Option(
    "startingOffsetsByTimestampStrategy",
    _latest_if_no_time,
    False,
    "What to do with a partition that has no record of the starting time or later: error (default), or latest, "
    "which begins at its end.",
    "error or latest",
)
ENDING_OFFSETS = _optional(
    "endingOffsets",
    _offsets,
    "Where a batch read ends, before that offset: latest (default), or an offset for each partition (-1: latest).",
    f"latest or {_OFFSETS_JSON}",
)
ENDING_TIME = _optional(
    "endingTimestamp",
    at_least(0),
    "A batch read ends before the first record of that time or later, in epoch milliseconds.",
    "number of epoch milliseconds",
)
ENDING_TIMES = _optional(
    "endingOffsetsByTimestamp",
    _times,
    "As endingTimestamp, with a time for each partition.",
    _TIMES_JSON,
)
HEADERS = Option("includeHeaders", parse_bool, False, "Adds the column headers.", "true or false")
FAIL_ON_LOSS = Option(
    "failOnDataLoss",
    parse_bool,
    True,
    "Whether records that are gone before they were read are an error. If not, they are skipped with a warning.",
    "true or false",
)
PATIENCE = Option(
    "kafkaConsumer.pollTimeoutMs",
    at_least(1),
    120_000,
    "How long a read waits for a broker that does not answer, in milliseconds.",
    "number of milliseconds",
)
COMMIT_GROUP = _optional(
    "commitOffsetsToGroup",
    _group,
    "Consumer group to which a stream commits its offsets after each batch, for tools that watch how far it is behind. "
    "Nothing is read from there.",
    "name of a group",
)
MIN_PARTITIONS = _optional(
    "minPartitions",
    at_least(1),
    "At least so many Spark tasks: large ranges of offsets are cut into several. By default one for each partition.",
    _COUNT,
)
MAX_RECORDS = _optional(
    "maxRecordsPerPartition", at_least(1), "At most so many offsets for one Spark task.", _COUNT
)
MAX_PER_TRIGGER = _optional(
    "maxOffsetsPerTrigger",
    at_least(1),
    "At most so many offsets in a batch, divided by how much each partition has waiting.",
    _COUNT,
)
MIN_PER_TRIGGER = _optional(
    "minOffsetsPerTrigger",
    at_least(1),
    "A batch begins only when so many offsets wait, or after maxTriggerDelay.",
    _COUNT,
)
MAX_DELAY = Option(
    "maxTriggerDelay",
    _delay,
    15 * 60_000,
    "How long minOffsetsPerTrigger may hold records back.",
    "duration such as '15m'",
)

OPTIONS: tuple[Option[Any], ...] = (
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN,
    STARTING_OFFSETS,
    STARTING_TIME,
    STARTING_TIMES,
    NO_TIME,
    ENDING_OFFSETS,
    ENDING_TIME,
    ENDING_TIMES,
    HEADERS,
    FAIL_ON_LOSS,
    PATIENCE,
    MIN_PARTITIONS,
    MAX_RECORDS,
    MAX_PER_TRIGGER,
    MIN_PER_TRIGGER,
    MAX_DELAY,
    COMMIT_GROUP,
    *values.OPTIONS,
)

_STARTS = (STARTING_OFFSETS, STARTING_TIME, STARTING_TIMES)
_ENDS = (ENDING_OFFSETS, ENDING_TIME, ENDING_TIMES)
_BY_TIME = {o.key for o in (STARTING_TIME, STARTING_TIMES, ENDING_TIME, ENDING_TIMES)}
_STREAM_ONLY = (MAX_PER_TRIGGER, MIN_PER_TRIGGER, MAX_DELAY, COMMIT_GROUP)
_KNOWN = {o.key.lower(): o.key for o in OPTIONS}
_OF_SPARK_ONLY = {
    "fetchoffset.numretries": PATIENCE.key,
    "fetchoffset.retryintervalms": PATIENCE.key,
    "groupidprefix": "kafka.group.id",
}


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their proper names."""
    named = {}
    for key, value in options.items():
        lower = key.lower()
        if lower.startswith((CLIENT_PREFIX, values.REGISTRY)) or lower in _KNOWN:
            named[_KNOWN.get(lower, lower)] = str(value)
        elif lower not in _FROM_SPARK:
            raise OptionError(f"the Kafka source has no option '{key}'", hint=_advice(lower))
    return named


def _advice(key: str) -> str:
    if key in _OF_SPARK_ONLY:
        return f"the option for that here is '{_OF_SPARK_ONLY[key]}'."
    otherwise = "settings of the client begin with 'kafka.', for example 'kafka.security.protocol'."
    return did_you_mean(key, _KNOWN.values(), otherwise)


def _topics(named: Mapping[str, str]) -> Topics:
    option = _only(named, (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN))
    if option is None:
        raise OptionError(
            "the Kafka source was not told what to read",
            hint="give 'subscribe', 'subscribePattern' or 'assign', for example option('subscribe', 'flights').",
        )
    value = option.of(named)
    if option is SUBSCRIBE:
        return Topics(names=value)
    return Topics(pattern=value) if option is SUBSCRIBE_PATTERN else Topics(partitions=value)


def _bound(named: Mapping[str, str], options: tuple[Option[Any], ...], default: Bound) -> Bound:
    option = _only(named, options)
    if option is None:
        return default
    at = option.of(named)
    ids = ids_from_json(json.loads(named[option.key])) if isinstance(at, dict) else {}
    return Bound(option.key, at, option.key in _BY_TIME, ids)


def _only(named: Mapping[str, str], options: tuple[Option[T], ...]) -> Option[T] | None:
    """Return the one of these options that is given, or None. Raises `OptionError` if there are several."""
    given = [option for option in options if option.key in named]
    if len(given) > 1:
        raise OptionError(
            f"'{given[0].key}' and '{given[1].key}' are given, and say different things",
            hint="keep one of them.",
        )
    return given[0] if given else None


def _check_use(named: Mapping[str, str], start: Bound, end: Bound, *, streaming: bool) -> None:
    """Raise `OptionError` for options without meaning in a stream or in a batch read."""
    values = set(end.at.values()) if isinstance(end.at, Mapping) else {end.at}
    if not end.by_time and EARLIEST in values:
        raise OptionError(f"'{end.option}' may not be earliest (-2)", hint="there would be nothing to read.")
    if streaming:
        ends = [option.key for option in _ENDS if option.key in named]
        if ends:
            raise OptionError(
                f"'{ends[0]}' is for batch reads: a stream has no end",
                hint="leave it out, or read with spark.read.",
            )
        return
    values = set(start.at.values()) if isinstance(start.at, Mapping) else {start.at}
    if not start.by_time and LATEST in values:
        raise OptionError(
            f"'{start.option}' may not be latest (-1) in a batch read",
            hint="there would be nothing to read: begin at earliest, an offset or a time.",
        )
    streams = [option.key for option in _STREAM_ONLY if option.key in named]
    if streams:
        raise OptionError(f"'{streams[0]}' is for streams", hint="leave it out, or use spark.readStream.")
