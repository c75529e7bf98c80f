"""Storage: stores of immutable objects behind one protocol."""

from anabranch.storage.open import open_storage
from anabranch.storage.probe import probe_put_if_absent
from anabranch.storage.protocol import ObjectInfo, Sink, Storage

__all__ = ["ObjectInfo", "Sink", "Storage", "open_storage", "probe_put_if_absent"]
