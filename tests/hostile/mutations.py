"""Ways to damage a file: bytes of any kind, values of JSON, what Avro containers hold, footers of Parquet."""

import json

from anabranch.arrow.parquet_footer import KEY
from anabranch.format.avro.container import Block, frame_container, pack_block, read_blocks, read_header

VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan"), "", "\0", "..", "../../x",
    "/etc/passwd", "a/b", "main", "x" * 100_000, "\ud800", "\u202e", [], {}, [[]], {"a": {}}, [None], "9" * 5_000,
    "manifest-list-x", "2147483648", "-1",
)  # fmt: skip


def mutated(data, random):
    """The bytes of a file, changed in one of the ways that fit them."""
    if random.random() < 0.5:
        if data[:1] in (b"{", b"["):
            return _json(data, random)
        if data[:4] == b"Obj\x01":
            return _avro(data, random)
        if data[-4:] == b"PAR1":
            return _parquet(data, random)
    return _bytes(data, random)


def _bytes(data, random):
    changed = bytearray(data)
    at = random.randrange(len(changed) + 1)
    match random.choice(["flip", "flip", "flips", "set", "cut", "insert", "repeat", "zeros", "junk"]):
        case "flip" if changed:
            changed[at - 1] ^= 1 << random.randrange(8)
        case "flips" if changed:
            for _ in range(random.randrange(2, 30)):
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        case "set" if changed:
            changed[at - 1] = random.choice([0, 0xFF, 0x7F, 0x80, random.randrange(256)])
        case "cut":
            del changed[at:]
        case "insert":
            changed[at:at] = random.randbytes(random.randrange(1, 40))
        case "repeat":
            changed[at:at] = changed[max(0, at - random.randrange(1, 200)) : at] * random.choice([1, 2, 50])
        case "zeros":
            changed[at : at + 20] = bytes(len(changed[at : at + 20]))
        case _:
            changed = bytearray(random.randbytes(random.randrange(400)))
    return bytes(changed)


def _json(data, random):
    try:
        value = json.loads(data)
    except ValueError:
        return _bytes(data, random)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        _change(value, random)
    if random.random() < 0.9 and isinstance(value, dict) and isinstance(value.get("properties"), dict):
        value["properties"].pop("anabranch.checksum", None)  # whoever writes it on purpose makes another
    return json.dumps(value).encode()


def _change(value, random):
    """Change one value somewhere inside."""
    while True:
        keys = [*value] if isinstance(value, dict) else [*range(len(value))]
        if not keys:
            return
        key = random.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and random.random() < 0.7:
            value = value[key]
            continue
        match random.choice(["replace", "replace", "replace", "drop", "add"]):
            case "replace":
                value[key] = random.choice(VALUES)
            case "drop":
                del value[key]
            case _ if isinstance(value, dict):
                value[random.choice(["x", "version", "id", "a/b"])] = random.choice(VALUES)
            case _:
                value.append(random.choice(VALUES))
        return


def _avro(data, random):
    """The rows are damaged before they are compressed, where no checksum sees it."""
    header = read_header(data, path="")
    blocks = [
        Block(block.rows + random.choice([0, 0, 0, 1, -1, 1000]), _bytes(block.payload, random))
        for block in read_blocks(data, header, path="")
    ]
    schema = header.schema if random.random() < 0.8 else _json(header.schema, random)
    packed = [pack_block(block, header.codec) for block in blocks if block.rows >= 0]
    return frame_container(schema, packed, header.codec)


def _parquet(data, random):
    """The footer of a file that has no checksum of it."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8].replace(KEY, b"x" * len(KEY))
    footer = _bytes(footer, random)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
