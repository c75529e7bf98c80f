"""Rows as objects of other libraries: Arrow streams, data sets, pandas, Polars and DuckDB."""
