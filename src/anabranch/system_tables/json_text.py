"""Makes JSON objects for many rows at once."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

_ITSELF = (pl.Boolean, pl.String, pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Float32, pl.Float64)


def json_objects(values: Mapping[str, pa.Array | pa.ChunkedArray | None], height: int) -> pl.Series:
    """Return one JSON object per row, with a key for each column; None stands for a column of nulls.

    Numbers, text and booleans are JSON's own; bytes are hexadecimal digits, everything else its text.
    """
    columns = [
        pl.Series(name, [None] * height, dtype=pl.String) if array is None else _plain(name, array)
        for name, array in values.items()
    ]
    if not columns:
        return pl.Series(["{}"] * height, dtype=pl.String)
    return pl.DataFrame(columns).to_struct("object").struct.json_encode()


def _plain(name: str, array: pa.Array | pa.ChunkedArray) -> pl.Series:
    found = pl.Series(name, pl.from_arrow(array))
    if found.dtype in _ITSELF:
        return found
    return found.bin.encode("hex") if found.dtype == pl.Binary else found.cast(pl.String)
