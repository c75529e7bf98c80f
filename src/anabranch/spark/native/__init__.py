"""Tables read by Spark's own vectorised Parquet reader: our planner behind it, and no jar.

Two ways in, for classic sessions (not Spark Connect):

* `native_frame(spark, scan)`: a DataFrame, for ``scan.to_spark()`` and whoever has a `Scan`.
* `scan_builder(spark, scan)`: what ``newScanBuilder`` of a DataSource V2 table returns, for the catalog.

Both take a `anabranch.scan.scan.Scan`, a read of one pinned snapshot with filter and columns, and both go through the
portable door (the Python data source) where native reading is not possible; `obstacle` says why.
"""
