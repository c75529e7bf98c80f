"""The streaming source as Spark calls it, without a JVM: what it must do is in its offsets."""

import pytest

from anabranch.spark.stream_reader import HAS_READ_LIMITS, stream_reader
from anabranch.spark.types import arrow_schema
from tests.support.tables import make_table

needs_limits = pytest.mark.skipif(not HAS_READ_LIMITS, reason="Spark 4.1 has no read limits")


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


def reader_of(table, **options):
    options = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in options.items()}
    return stream_reader(table.context, table.schema, arrow_schema(table.schema.fields), options)
