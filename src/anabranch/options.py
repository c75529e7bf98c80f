"""Every option once: its key, type, default and meaning. The reference page is generated from here.

Options of a table live in its schema as text; the same names work per read and per write. Keys that
begin with ``anabranch.`` belong to us, so an unknown one is an error; other unknown keys are kept,
because other engines may own them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anabranch.errors import OptionError, did_you_mean, nearest
from anabranch.option_kinds import (
    Option,
    at_least,
    bounded,
    choice,
    count,
    duration,
    flag,
    integer,
    limit,
    optional_duration,
    optional_size,
    parse_size,
    required_text,
    size,
    spelled,
    text,
    zone,
)

# Layout of the table
BUCKET = integer("bucket", -1, "-1 for a scalable table; N for a queue of N buckets.")
BUCKET_KEY = text("bucket-key", None, "Comma-separated columns that decide the bucket of a row.")
FILE_FORMAT = choice(
    "file.format",
    "parquet",
    ("parquet", "orc", "avro"),
    "Format of data files; orc and avro are read, and only parquet is written.",
)
FILE_COMPRESSION = spelled(
    "file.compression",
    "zstd",
    "zstd|lz4|snappy|gzip|none|uncompressed",
    "Compression of data files: zstd, lz4, snappy, gzip or none. Of large files written in Python, columns that hardly shrink stay as they are.",
    "compression of data files",
)
ZSTD_LEVEL = bounded("file.compression.zstd-level", 1, -131072, 22, "Level of zstd for data files.")
FILE_CHECKSUM = flag(
    "file.checksum",
    True,
    "Whether every page of new data files has a checksum, and reads check those that there are. Rewriting files, as "
    "compaction does, always checks.",
)
TARGET_FILE_SIZE = size("target-file-size", "256 MB", "A data file is closed at about this many bytes.")
PARTITION_DEFAULT_NAME = required_text(
    "partition.default-name", "__DEFAULT_PARTITION__", "Folder name of null and blank partition values."
)
PARTITION_LEGACY_NAME = flag(
    "partition.legacy-name", True, "Whether folder names spell dates as day numbers, as Paimon does."
)
STATS_MODE = spelled(
    "metadata.stats-mode",
    "truncate(16)",
    r"none|counts|full|truncate\([1-9][0-9]{0,8}\)",
    "Column statistics: none, counts, truncate(n) or full.",
    "mode of statistics",
)

# Writing
WRITE_ONLY = flag(
    "write-only", False, "Leave compaction and the expiry of snapshots to other jobs: this one only writes."
)
WRITE_BUFFER_SIZE = size(
    "write-buffer-size", "256 MB", "Rows of all partitions together that a writing task holds in memory."
)
WRITE_BUFFER_FOR_APPEND = flag(
    "write-buffer-for-append",
    True,
    "Whether write-buffer-size bounds the rows in memory; if not, each partition holds a row group of its own.",
)
WRITE_BUFFER_SPILLABLE = flag(
    "write-buffer-spillable",
    True,
    "Whether rows beyond write-buffer-size wait on local disk; if not, they are written to smaller files.",
)
WRITE_BUFFER_SPILL_SIZE = optional_size(
    "write-buffer-spill.max-disk-size", "Most local disk that the waiting rows of a writing task may take."
)
WRITERS_PER_TASK_WARN: Option[int | None] = Option(
    "sink.writers-per-task.warn",
    at_least(0),
    None,
    "Warn when one writing task has to write about this many buckets: partitions x buckets / tasks; 0 for never. "
    "100 when absent, 50 if write-only.",
    "whole number",
)
WATERMARK_SOURCE_COLUMN = text(
    "sink.watermark.source-column",
    None,
    "Column of the rows that says which source they come from, for example a partition of a topic: the watermark is "
    "the lowest over the sources. Not stored unless the table has such a column.",
)
WATERMARK_IDLE_TIMEOUT = optional_duration(
    "scan.watermark.idle-timeout",
    "A source that brings no rows for this long does not hold the watermark back; every source does when absent.",
)

WATERMARK_MAX_AHEAD = duration(
    "watermark.max-ahead",
    "1 d",
    "Event times that are further ahead of the writer's clock than this do not move the watermark: such rows are stored, "
    "counted in the snapshot (anabranch.rows-ahead) and told in the log.",
)

# Compaction
COMPACTION_MIN_FILE_NUM = count(
    "compaction.min.file-num",
    5,
    "Files that reach target-file-size together are compacted from this many on.",
)
COMPACTION_MAX_FILE_NUM = count(
    "compaction.max.file-num", 50, "This many small files are compacted even if they are smaller together."
)
FULL_COMPACTION_DELTA_COMMITS = limit(
    "full-compaction.delta-commits",
    "Compact fully after this many commits. A scalable table stores it as anabranch.full-compaction.delta-commits.",
)
FULL_COMPACTION_SCALABLE = limit(
    "anabranch.full-compaction.delta-commits",
    "The same, as scalable tables store it: other engines refuse a scalable table with the option of that name.",
)

# Snapshots, tags, savepoints
SNAPSHOT_NUM_RETAINED_MIN = count("snapshot.num-retained.min", 10, "Newest snapshots that never expire.")
SNAPSHOT_NUM_RETAINED_MAX = count(
    "snapshot.num-retained.max", 2**31 - 1, "Older snapshots than this many expire whatever their age."
)
SNAPSHOT_TIME_RETAINED = duration(
    "snapshot.time-retained", "1 h", "Snapshots older than this expire, down to snapshot.num-retained.min."
)
SNAPSHOT_EXPIRE_LIMIT = count(
    "snapshot.expire.limit", 50, "Most snapshots that a writing job expires at once."
)

EXPIRE_GRACE = duration(
    "anabranch.expire-grace",
    "0 s",
    "A snapshot that was the newest within this time never expires, also where there are too many: for reads "
    "that were planned on it.",
)
CONSUMER_EXPIRATION_TIME = optional_duration(
    "consumer.expiration-time", "Consumers that have not moved for this long are removed; never when absent."
)
PARTITION_EXPIRATION_TIME = optional_duration(
    "partition.expiration-time",
    "Partitions older than this expire when the table is maintained; never when absent.",
)
PARTITION_EXPIRATION_STRATEGY = choice(
    "partition.expiration-strategy",
    "values-time",
    ("values-time", "update-time"),
    "What the age of a partition is counted from: the time that its values stand for, or its newest file.",
)
PARTITION_EXPIRATION_MAX_NUM = count(
    "partition.expiration-max-num", 100, "Most partitions that expire at once, the oldest first."
)
PARTITION_TIMESTAMP_PATTERN = text(
    "partition.timestamp-pattern",
    None,
    "How the values of partition columns make a time, such as '$dt $hour:00'; the first column when absent.",
)
PARTITION_TIMESTAMP_FORMATTER = text(
    "partition.timestamp-formatter",
    None,
    "How that time is written, such as yyyyMMdd; yyyy-MM-dd, with a time behind it or not, when absent.",
)
SAVEPOINT_CREATE_INTERVAL = optional_duration(
    "savepoint.create-interval",
    "Commits create a savepoint when this much time lies between the newest one's snapshot and theirs.",
)
TAG_AUTOMATIC_CREATION = choice(
    "tag.automatic-creation",
    "none",
    ("none", "process-time", "watermark", "batch"),
    "Whether commits create tags: for each past period of their time or watermark, or for each batch write.",
)
TAG_CREATION_PERIOD = choice(
    "tag.creation-period",
    "daily",
    ("daily", "hourly", "two-hours"),
    "The period that an automatic tag stands for.",
)
TAG_CREATION_DELAY = duration(
    "tag.creation-delay", "0 ms", "How long after the end of its period a tag is created; less than a period."
)
TAG_PERIOD_FORMATTER = choice(
    "tag.period-formatter",
    "with_dashes",
    ("with_dashes", "without_dashes", "without_dashes_and_spaces"),
    "How automatic tags spell their period: 2026-01-31 10, 20260131 10 or 2026013110.",
)
TAG_AUTOMATIC_COMPLETION = flag(
    "tag.automatic-completion", False, "Whether periods without a commit get an automatic tag as well."
)
TAG_NUM_RETAINED_MAX = limit("tag.num-retained-max", "Older automatic tags than this many are deleted.")
TAG_DEFAULT_TIME_RETAINED = optional_duration(
    "tag.default-time-retained",
    "How long new tags are kept when their creator does not say; for good if absent.",
)
TAG_BATCH_NAME = text(
    "tag.batch.customized-name", None, "Name of the tag after a batch write; batch-write-<day> when absent."
)
SINK_WATERMARK_TIME_ZONE = zone(
    "sink.watermark-time-zone", "UTC", "Time zone in which watermarks are cut into the periods of tags."
)
SINK_PROCESS_TIME_ZONE = zone(
    "sink.process-time-zone",
    None,
    "Time zone in which commit times are cut into periods; the machine's when absent.",
)

# Manifests and commits
MANIFEST_COMPRESSION = choice(
    "manifest.compression", "zstd", ("zstd", "null", "deflate", "snappy"), "Compression of manifests."
)
MANIFEST_TARGET_SIZE = size("manifest.target-file-size", "8 MB", "Manifests are merged up to this size.")
MANIFEST_MERGE_MIN_COUNT = count(
    "manifest.merge-min-count", 30, "Small manifests are merged when there are this many."
)
MANIFEST_FULL_COMPACTION_SIZE = size(
    "manifest.full-compaction-threshold-size",
    "16 MB",
    "Deleted entries are dropped from manifests once this many bytes have piled up.",
)
COMMIT_MAX_RETRIES = integer(
    "commit.max-retries", 10, "Commit rounds without progress by any writer before giving up."
)
COMMIT_TIMEOUT = optional_duration("commit.timeout", "How long a commit may keep trying.")
COMMIT_MIN_RETRY_WAIT = duration("commit.min-retry-wait", "10 ms", "First wait between commit rounds.")
COMMIT_MAX_RETRY_WAIT = duration("commit.max-retry-wait", "10 s", "Longest wait between commit rounds.")
DYNAMIC_PARTITION_OVERWRITE = flag(
    "dynamic-partition-overwrite",
    True,
    "Overwriting a partitioned table replaces only the partitions present in the new data.",
)
LEDGER_TIME_RETAINED = duration(
    "sink.ledger.time-retained", "30 d", "How long the exactly-once ledger remembers expired commits."
)
JOB_STATE_RETAINED = optional_duration(
    "job.state.retained",
    "How long the state of a job is kept for a tag, savepoint or branch of the table that it writes, counted from the "
    "snapshot; as long as that is there if absent. A correction from there takes the state over, or makes it again from "
    "the sources.",
)
SINK_ON_REPLACE = choice(
    "sink.on-replace",
    "fail",
    ("fail", "follow"),
    "What a streaming query that wrote to main does when another branch was put in its place: stop, because the job of "
    "that branch does its work, or write to the new main.",
)
REPLACED_MAIN_TIME_RETAINED = duration(
    "branch.replaced-main.time-retained",
    "1 d",
    "How long a replaced main is kept as main@<n> before maintain drops it; 0 ms drops it at once.",
)
BRANCH_SEAL_TIMEOUT = duration(
    "branch.seal.timeout",
    "30 s",
    "How long writers wait for a replacement of main to be decided before main stays as it is.",
)

# Reading
BRANCH = text("branch", None, "Branch to read or write; main when absent.")
SPLIT_TARGET_SIZE = size("source.split.target-size", "128 MB", "Files are packed into splits of this size.")
SPLIT_OPEN_FILE_COST = size(
    "source.split.open-file-cost", "4 MB", "Least weight of a file when packing splits."
)
SCAN_MODE = choice(
    "scan.mode",
    "default",
    ("default", "latest-full", "full", "latest", "from-snapshot", "from-snapshot-full", "from-timestamp"),
    "Where a stream begins: latest-full (or full), latest, from-snapshot, from-snapshot-full or from-timestamp. "
    "default is the mode of the option that names a moment, and latest-full where there is none.",
)
SCAN_SNAPSHOT_ID = limit("scan.snapshot-id", "Snapshot to read, or to start a stream from.")
SCAN_TAG_NAME = text("scan.tag-name", None, "Tag to read, by its exact name.")
SCAN_SAVEPOINT_ID = limit("scan.savepoint-id", "Savepoint to read.")
SCAN_WATERMARK: Option[int | None] = Option(
    "scan.watermark",
    int,
    None,
    "Read the first snapshot whose watermark is at least this (epoch milliseconds).",
    "number",
)
SCAN_EXACT = flag(
    "scan.exact",
    False,
    "Whether a read by time or watermark fails unless it is sure what the table was at that moment.",
)
SCAN_PUBLISHED = flag(
    "scan.published",
    False,
    "Whether a read by time sees what readers saw then, whatever was corrected since, and not the corrected history.",
)
SCAN_TIMESTAMP_MILLIS: Option[int | None] = Option(
    "scan.timestamp-millis", int, None, "Read the table as of this moment (epoch milliseconds).", "number"
)
SCAN_ON_OVERWRITE = choice(
    "scan.on-overwrite",
    "fail",
    ("fail", "skip", "added", "changes"),
    "What a stream does at a commit that takes rows away: stop, pass over it, deliver the rows it added, or deliver "
    "what it took away and added, told apart by a column _change.",
)
SCAN_ON_REPLACE = choice(
    "scan.on-replace",
    "fail",
    ("fail", "continue", "replay", "changes"),
    "What a stream of main does when another branch was put in its place: stop, go on with what the new main has beyond "
    "the source positions of the old one, go back to where the two parted, or deliver what differs, told apart by a "
    "column _change.",
)
SCAN_PLAN_SORT_PARTITION = flag(
    "scan.plan-sort-partition",
    False,
    "Whether a stream delivers partitions by their values, nulls first, and not by when they were created.",
)
SCAN_LATE_ROWS = choice(
    "scan.late-rows",
    "keep",
    ("keep", "drop", "only"),
    "What a stream does with rows whose event time was behind the table's watermark when they were committed: "
    "deliver them with the others, leave them out, or deliver nothing else.",
)
SCAN_BOUNDED_WATERMARK: Option[int | None] = Option(
    "scan.bounded.watermark",
    int,
    None,
    "A stream ends before the first snapshot whose watermark is larger than this (epoch milliseconds).",
    "number",
)
ALIGNMENT_GROUP = text(
    "scan.watermark.alignment.group", None, "Streams of one group keep together in event time."
)
ALIGNMENT_MAX_DRIFT = optional_duration(
    "scan.watermark.alignment.max-drift",
    "How far in event time a stream may be ahead of the slowest one of its group before it waits.",
)
ALIGNMENT_TIMEOUT = duration(
    "scan.watermark.alignment.timeout",
    "1 min",
    "A stream that gives no sign of life, or has nothing to read, for this long is not waited for by its group.",
)
MAX_FILES_PER_TRIGGER = limit("read.stream.maxFilesPerTrigger", "Most data files in one micro-batch.")
MAX_BYTES_PER_TRIGGER: Option[int | None] = Option(
    "read.stream.maxBytesPerTrigger", parse_size, None, "Most bytes in one micro-batch.", "size"
)
MAX_ROWS_PER_TRIGGER = limit("read.stream.maxRowsPerTrigger", "Most rows in one micro-batch.")
MIN_ROWS_PER_TRIGGER = limit(
    "read.stream.minRowsPerTrigger",
    "A micro-batch waits for so many rows, but no longer than read.stream.maxTriggerDelayMs.",
)
MAX_TRIGGER_DELAY: Option[int | None] = Option(
    "read.stream.maxTriggerDelayMs",
    at_least(0),
    None,
    "How long after the last micro-batch the next one waits for read.stream.minRowsPerTrigger, in milliseconds.",
    "whole number",
)
CONSUMER_ID = text(
    "consumer-id",
    None,
    "Consumer of a stream: it remembers how far the stream has come, and keeps what comes next from expiring.",
)
SCAN_WATERMARK_COLUMN = flag(
    "scan.watermark-column",
    False,
    "Whether a stream has a column _watermark with the table's watermark; lake.read_stream sets and uses it.",
)

# Reads and writes through Spark
WAREHOUSE = text("warehouse", None, "Path or URL of the warehouse.")
PATH = text("path", None, "Name of the table (db.t), or its own path or URL.")
SCAN_FILTER = text(
    "scan.filter",
    None,
    "SQL condition on the table's columns; files that cannot match are not read, other rows are dropped.",
)
SCAN_COLUMNS: Option[tuple[str, ...] | None] = Option(
    "scan.columns",
    lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
    None,
    "Comma-separated columns to read; the others are not read from storage.",
    "list of columns",
)
SCAN_VERSION = text(
    "scan.version",
    None,
    "Moment to read: a snapshot's id, snapshot.N, savepoint.N, watermark-N, or a tag's name.",
)
INCREMENTAL_BETWEEN = text(
    "incremental-between",
    None,
    "Read the rows that were added after the first and up to the second of two snapshots, savepoints or tags, for example "
    "5,10. In Python and in SQL without Spark.",
)
INCREMENTAL_BETWEEN_TIMESTAMP = text(
    "incremental-between-timestamp",
    None,
    "The same between two times, each of which stands for the newest snapshot then.",
)
SCAN_START_OFFSET = text(
    "scan.start-offset",
    None,
    "Where a new stream begins, exactly: an offset as JSON, as the checkpoint of a query has it. In place of `scan.mode`.",
)
SCAN_TIMESTAMP = text(
    "scan.timestamp", None, "Read the table as of this time, for example 2026-01-01 00:00:00."
)
OVERWRITE_PARTITION = text(
    "overwrite.partition",
    None,
    "The partition that mode('overwrite') replaces, for example dt=2026-01-01/hour=3.",
)
OVERWRITE_IF_UNCHANGED_SINCE: Option[int | None] = Option(
    "overwrite.if-unchanged-since",
    at_least(0),
    None,
    "Number of the snapshot that was read: mode('overwrite') fails if rows that it replaces were changed after it.",
    "whole number",
)

MERGE_SCHEMA = flag(
    "mergeSchema",
    False,
    "Whether a batch that is written adds the columns that the table lacks, and widens columns within their kind, as "
    "`append(rows, schema='merge')` does in Python.",
)

# Ours alone
TABLE_UUID = text("anabranch.table-uuid", None, "Identity of the table, written when it is created.")
BUCKET_KEY_ASSIGNED = flag(
    "anabranch.bucket-key.assigned",
    False,
    "Written when a queue of one bucket is created without a bucket-key: the one it has is there for other engines.",
)
LINEAGE_ENTRY = text(
    "anabranch.lineage",
    None,
    "Where the rows of a write come from; set by Anabranch itself, where it has to travel.",
)
LOOKED_UP = text(
    "anabranch.looked-up",
    None,
    "What the function of a job read while it made the query; set by Anabranch itself, where it has to travel.",
)
STREAM_SCHEMA = text(
    "anabranch.stream-schema",
    None,
    "The columns that a stream began with, as JSON; set by Anabranch itself, where they have to travel.",
)
CODE_VERSION = text(
    "anabranch.code-version", None, "Version of the job's code, for lineage; a git commit, say."
)
LINEAGE_INDEX = text(
    "lineage.index",
    None,
    "Where the lineage index of the warehouse is: a URL of PostgreSQL or of a file of SQLite, or the path of such a file. "
    "Given to `connect`, or in the environment as ANABRANCH_LINEAGE_INDEX.",
)
CHECK_PREFIX = "anabranch.check."
"""How options begin that hold a condition on every row; what follows is its name."""
JOB = text("anabranch.job", None, "Name of the job that writes, for exactly-once commits and lineage.")

ALL: tuple[Option[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Option))
_BY_KEY = {option.key: option for option in ALL}


_OTHERS = frozenset({
    *("changelog.num-retained.max", "changelog.num-retained.min", "changelog.time-retained"),
    *("commit.user-prefix", "compaction.early-max.file-num", "compaction.max-sorted-run-num", "consumer.mode"),
    *("file.compression.per.level", "file.format.per.level", "manifest.format", "metadata.stats-mode.per.level"),
    *("partition.expiration-check-interval", "scan.creation-time-millis", "scan.file-creation-time-millis"),
    *("scan.fallback-branch", "scan.fallback-snapshot-branch", "snapshot.expire.execution-mode"),
    *("tag.creation-period-duration", "tag.time-expire-enabled", "sink.watermark-time-zone", "write-buffer-spill.size"),
})  # fmt: skip
"""Options of Paimon whose names are near ones of ours, and that are meant as they are."""
_STORED = frozenset(_BY_KEY) - {BRANCH.key, PATH.key, WAREHOUSE.key}
"""Options that a key of a table may have been meant for; these three are words that people use for their own."""
_SECRETS_OF_STORES = re.compile(
    r"^(fs\.)?(s3a?|gs|az|azure|abfss?|oss)\..*(secret|token|password|credential|(access|account)[-._]?key)",
    re.IGNORECASE,
)
_STORED_CUTOFF = 0.8


def check_options(options: Mapping[str, str]) -> None:
    """Refuse values that do not parse, unknown ``anabranch.*`` keys, and keys that are nearly one of ours.

    Other unknown keys are kept: other engines may own them. Raises `OptionError`.
    """
    check_values(options)
    for key in options:
        if _SECRETS_OF_STORES.search(key):
            raise OptionError(
                f"'{key}' is a setting of the store and no option of a table, which everybody sees who reads it",
                hint="give it where the warehouse is opened: options=, --option, the environment or "
                "~/.anabranch/config.toml.",
            )
        is_known = key in _BY_KEY or key in _OTHERS or key.startswith(CHECK_PREFIX)
        near = None if is_known else nearest(key, _STORED, _STORED_CUTOFF)
        if near is not None:
            raise OptionError(f"unknown option '{key}'", hint=f"did you mean '{near}'?")


def check_values(options: Mapping[str, str]) -> None:
    """Refuse values that do not parse, and unknown ``anabranch.*`` keys. Raises `OptionError`."""
    for key in options:
        option = _BY_KEY.get(key)
        if option is not None:
            option.of(options)
        elif key.startswith("anabranch.") and not key.startswith(CHECK_PREFIX):
            hint = did_you_mean(key, _BY_KEY, "options of that prefix are Anabranch's own.")
            raise OptionError(f"unknown option '{key}'", hint=hint)
