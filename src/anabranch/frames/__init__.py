"""Rows as the values of other libraries: Arrow streams, data sets, pandas, Polars and DuckDB."""
