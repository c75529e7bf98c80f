"""Manifests that expand to more than they should: a clear error, in little memory."""

import shutil
import struct

import pytest

import anabranch
from anabranch.format.avro.container import read_header, write_long
from tests.support.hostile import bad, survive
from tests.support.tables import make_table, rows

GIGABYTES = 4 << 30
REPEATED = 128 << 10
"""Bytes that one block of zstd may repeat."""


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pristine")
    make_table(folder).append(rows(0, 3))
    return folder


def _zeros(size, *, says_its_size):
    """A zstd frame of zeros that takes 4 bytes for each 128 KiB."""
    blocks = size // REPEATED
    # A window of 128 KiB; with a size, of 8 bytes, behind it.
    head = b"\xc0\x38" + struct.pack("<Q", size) if says_its_size else b"\x00\x38"
    middle = (REPEATED << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (REPEATED << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd" + head + middle * (blocks - 1) + last


def _container(schema, blocks, padding):
    """An Avro container with so many bytes of metadata that nobody asked for."""
    entries = {b"avro.codec": b"zstandard", b"avro.schema": schema, b"padding": bytes(padding)}
    pairs = b"".join(write_long(len(part)) + part for entry in entries.items() for part in entry)
    sync = b"s" * 16
    packed = b"".join(write_long(count) + write_long(len(b)) + b + sync for count, b in blocks)
    return b"Obj\x01" + write_long(len(entries)) + pairs + write_long(0) + sync + packed


BOMBS = {
    "a frame without a size": lambda: [(1, _zeros(GIGABYTES, says_its_size=False))],
    "a frame of a size": lambda: [(1, _zeros(GIGABYTES, says_its_size=True))],
    "many frames": lambda: [(1, _zeros(32 << 20, says_its_size=True))] * 128,
    "many rows": lambda: [(1 << 20, _zeros(48 << 20, says_its_size=True))] * 80,
}


def plan(folder):
    return anabranch.connect(folder).table("db.t").scan().to_arrow().num_rows


@pytest.mark.parametrize("kind", ["manifest-", "manifest-list-"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_of_4_megabytes_that_expands_to_4_gigabytes(pristine, tmp_path, bomb, kind):
    copy = shutil.copytree(pristine, tmp_path / "copy")
    victims = sorted((copy / "db.db" / "t" / "manifest").glob(f"{kind}*"))
    victims = [v for v in victims if ("list" in v.name) == ("list" in kind)]
    for victim in victims:
        schema = read_header(victim.read_bytes(), path="").schema
        victim.write_bytes(_container(schema, BOMBS[bomb](), padding=4 << 20))
    (outcome,) = survive(plan, [str(copy)], most_bytes=900_000_000)
    assert not bad([outcome]), outcome
    assert outcome.value[0] == "CorruptTableError"
    assert any(victim.name in outcome.value[2] for victim in victims)
