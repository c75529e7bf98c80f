"""Buckets: which of the buckets of a table a row belongs to, by the hash of its bucket key.

The key is hashed as a BinaryRow with room reserved for nulls and no number of fields in front.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anabranch.format.rows.encoded_rows import FEW, EncodedRows, encode_rows
from anabranch.format.types.data_types import DataType
from anabranch.format.types.values import ArrowColumn

_SEED = 42
_FIRST_FACTOR, _SECOND_FACTOR = 0xCC9E2D51, 0x1B873593
_STEP_FACTOR, _STEP = 5, 0xE6546B64
_LAST_FACTORS = 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFF_FFFF


def assign_buckets(
    columns: Sequence[ArrowColumn], types: Sequence[DataType], bucket_count: int
) -> npt.NDArray[np.int32]:
    """The bucket of every row, from the columns of the bucket key in the order of ``bucket-key``.

    Raises:
        SchemaError: a column does not fit its type.
    """
    hashes = hash_rows(encode_rows(columns, types))
    return (np.abs(hashes.astype(np.int64)) % bucket_count).astype(np.int32)


def hash_rows(rows: EncodedRows) -> npt.NDArray[np.int32]:
    """Murmur3 of key rows, signed numbers of 32 bits."""
    begins, sizes = rows.starts[:-1], np.diff(rows.starts)
    hashes = np.full(len(rows), _SEED, np.uint32)
    # One word of all rows after the other; rows drop out as they end.
    left, done = np.flatnonzero(sizes), 0
    while len(left) > FEW:
        whole = len(left) == len(rows)
        words = rows.words[begins + done] if whole else rows.words[begins[left] + done]
        mixed = hashes if whole else hashes[left]
        _mix_all(mixed, words.astype(np.uint32))
        _mix_all(mixed, (words >> np.uint64(32)).astype(np.uint32))
        if not whole:
            hashes[left] = mixed
        done += 1
        left = left[sizes[left] > done]
    for row in left.tolist():
        rest = rows.words[begins[row] + done : begins[row] + sizes[row]].tobytes()
        hashes[row] = _mix(int(hashes[row]), rest)
    return _finish_all(hashes, sizes * 8)


def _mix(state: int, data: bytes) -> int:
    for word in np.frombuffer(data, "<u4").tolist():
        word = word * _FIRST_FACTOR & _MASK  # noqa: PLW2901
        state ^= ((word << 15 | word >> 17) & _MASK) * _SECOND_FACTOR & _MASK
        state = ((state << 13 | state >> 19) & _MASK) * _STEP_FACTOR + _STEP & _MASK
    return state


_Halves = npt.NDArray[np.uint32]


def _mix_all(states: _Halves, words: _Halves) -> None:
    """`_mix` of one 4-byte word into each state, in place; both arrays are overwritten."""
    words *= np.uint32(_FIRST_FACTOR)
    _rotate(words, 15)
    words *= np.uint32(_SECOND_FACTOR)
    states ^= words
    _rotate(states, 13)
    states *= np.uint32(_STEP_FACTOR)
    states += np.uint32(_STEP)


def _rotate(numbers: _Halves, bits: int) -> None:
    wrapped = numbers >> np.uint32(32 - bits)
    numbers <<= np.uint32(bits)
    numbers |= wrapped


def _finish_all(states: _Halves, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    states ^= sizes.astype(np.uint32)
    states ^= states >> np.uint32(16)
    states *= np.uint32(_LAST_FACTORS[0])
    states ^= states >> np.uint32(13)
    states *= np.uint32(_LAST_FACTORS[1])
    states ^= states >> np.uint32(16)
    return states.view(np.int32)
