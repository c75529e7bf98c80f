"""What a failure of a job means, from what Spark says."""

import pytest

from anabranch.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    NotFoundError,
    PositionLostError,
    SealedBranchError,
    SourceReplacedError,
    StorageError,
)
from anabranch.jobs.failure import JobFailedError, as_ours, verdict
from anabranch.spark.jvm.raised import remember_raised

FENCED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] \
Failed when Python streaming data source perform commit: Traceback (most recent call last):
  File "/x/stream_writer.py", line 3, in commit
    raise fenced(context)
anabranch.errors.SealedBranchError: the streaming query 'clean' wrote to the main of 'db.t' that was replaced
  hint: end this query. Or restart it.
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: clean [id = 1, runId = 2]"""
UDF = """[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed
Traceback (most recent call last):
  File "/jobs.py", line 3, in half
    return 1 / 0
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)"""
ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `price` cannot be resolved. \
Did you mean one of the following? [`id`, `v`]. SQLSTATE: 42703;
'Filter ('price > 0)
+- StreamingRelationV2 anabranch"""


def test_ours_are_found_in_what_spark_says():
    error = as_ours(Exception(FENCED))
    assert isinstance(error, SealedBranchError)
    assert error.message == "the streaming query 'clean' wrote to the main of 'db.t' that was replaced"
    assert error.hint == "end this query. Or restart it."
    assert verdict(Exception(FENCED), has_run=True) == "fenced"


def test_the_reason_of_others_is_one_line():
    assert as_ours(Exception(UDF)).message == "ZeroDivisionError: division by zero"
    found = as_ours(Exception(ANALYSIS))
    assert isinstance(found, JobFailedError)
    assert found.message.startswith("A column with name `price` cannot be resolved.")
    assert found.message.endswith("[`id`, `v`].")


def test_errors_of_ours_stay_what_they_are():
    error = StorageError("away")
    assert as_ours(error) is error


class AnalysisException(Exception):
    pass


def full_disk():
    error = StorageError("cannot write")
    error.out_of_space = True
    return error


@pytest.mark.parametrize(
    ("error", "has_run", "expected"),
    [
        (InvalidInputError("no"), True, "final"),
        (AnalysisException("no"), True, "final"),
        (Exception(UDF), True, "again"),
        (Exception(UDF), False, "final"),
        (StorageError("away", retryable=True), False, "passing"),
        (StorageError("denied"), False, "final"),
        (StorageError("denied"), True, "passing"),
        (full_disk(), False, "passing"),
        (NotFoundError("no table"), False, "final"),
        (NotFoundError("no table"), True, "passing"),
        (PositionLostError("it has expired"), True, "final"),
        (Exception("x\nanabranch.errors.PositionLostError: it has expired\n  hint: h"), True, "final"),
        (
            Exception("org.apache.spark.SparkException: Python worker failed to connect back."),
            False,
            "passing",
        ),
        (Exception("java.net.ConnectException: Connection refused"), True, "passing"),
        (CommitOutcomeUnknownError("who knows"), False, "again"),
    ],
)
def test_what_may_help(error, has_run, expected):
    assert verdict(error, has_run=has_run) == expected


def test_errors_that_went_through_the_jvm_of_this_process_are_known_by_their_text():
    error = SourceReplacedError("main of 'db.seldom' was replaced", hint="correct what was made from it")
    told = Exception(f"{error}\n=== Streaming Query ===\nIdentifier: b [id = 1]")
    assert verdict(told, has_run=True) == "again"
    remember_raised(error)
    assert as_ours(told) is error
    assert verdict(told, has_run=True) == "replaced"


class OfTheJvm(Exception):
    """As PySpark has an error of the JVM: its text tells nothing of its cause."""

    def __init__(self, text, cause=None):
        super().__init__(text)
        self._cause = cause


def test_who_is_fenced_is_known_behind_whatever_spark_says_of_it():
    fence = OfTheJvm(FENCED)
    error = OfTheJvm(
        "[STREAM_FAILED] terminated with exception: Writing job failed.",
        OfTheJvm("Writing job failed.", fence),
    )
    assert as_ours(error).message == as_ours(fence).message
    assert verdict(error, has_run=True) == "fenced"
    try:
        raise RuntimeError("the driver went on") from SealedBranchError("'t' was replaced")
    except RuntimeError as raised:
        assert verdict(raised, has_run=True) == "fenced"


def test_causes_that_go_in_circles_end():
    error = OfTheJvm("first")
    error._cause = OfTheJvm("second", error)
    assert as_ours(error).message == "first"


@pytest.mark.parametrize(
    ("said", "does"),
    [
        (
            (
                "Stream-stream LeftOuter join between two streaming DataFrame/Datasets is not supported without a "
                "watermark in the join keys, or a watermark on the nullable side and an appropriate range condition;"
            ),
            "TIMESTAMP_LTZ",
        ),
        (
            (
                '[EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE] The event time `ts` has the invalid type "TIMESTAMP_NTZ", but '
                'expected "TIMESTAMP". SQLSTATE: 42K09;'
            ),
            "WATERMARK FOR",
        ),
    ],
)
def test_what_spark_says_of_event_times_leads_somewhere(said, does):
    assert does in as_ours(Exception(said)).hint


@pytest.mark.parametrize(
    ("said", "does"),
    [
        ("java.io.IOException: No space left on device", "free some space"),
        ("[Errno 122] Disk quota exceeded: 'commits/7'", "free some space"),
        ("java.io.FileNotFoundException: /d/offsets/.7.tmp (Read-only file system)", "for writing"),
    ],
)
def test_what_a_disk_says_below_spark_leads_somewhere(said, does):
    """The checkpoint and Spark's temporary files are not ours, so neither are the errors."""
    assert does in as_ours(Exception(said)).hint
    outer = Exception("Query [id = 1] terminated with exception: Writing job aborted")
    outer.__cause__ = Exception(said)
    assert does in as_ours(outer).hint
