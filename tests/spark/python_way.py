"""``format("anabranch")`` through processes of Python, as in Spark Connect, in a session that would do it by itself."""

from contextlib import contextmanager

from anabranch.spark.catalog.format_tables import register_format
from anabranch.spark.context.attached import known_options


@contextmanager
def by_python(spark):
    """What is loaded or started in the block goes through Python."""
    spark._jvm.anabranch.DefaultSource.register(spark._jsparkSession, None)
    try:
        yield
    finally:
        register_format(spark, known_options(spark))
