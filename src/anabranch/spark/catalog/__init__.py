"""Tables of a warehouse in Spark's own SQL: a catalog whose Python objects Spark's JVM calls.

It rests on one internal of Spark, the catalogs that a session's ``CatalogManager`` has loaded; see `register_catalog`.
"""

from anabranch.spark.catalog.register import catalog_name, register_catalog

__all__ = ["catalog_name", "register_catalog"]
