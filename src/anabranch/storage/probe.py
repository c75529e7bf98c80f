"""Checks that a store keeps its guarantees, before a table is trusted to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from anabranch.errors import UnsupportedFeatureError
from anabranch.runtime import SYSTEM, Runtime
from anabranch.storage import names
from anabranch.storage.protocol import Storage

_COMPETITORS: Final = 4


def probe_put_if_absent(storage: Storage, *, runtime: Runtime = SYSTEM) -> None:
    """Check that only one writer can create a name, one after the other and concurrently.

    Writes two small objects under temporary names in the root of `storage` and removes them.

    Raises:
        UnsupportedFeatureError: the store lets a second writer in (feature ``atomic-create``).
        StorageError: the store cannot be used at all.
    """
    calm = _probe_name(runtime)
    rush = _probe_name(runtime)
    try:
        answers = [storage.put_if_absent(calm, _content(calm, number)) for number in range(2)]
        _judge(storage, calm, answers)
        with ThreadPoolExecutor(_COMPETITORS) as threads:
            calls = [
                threads.submit(storage.put_if_absent, rush, _content(rush, number))
                for number in range(_COMPETITORS)
            ]
            answers = [call.result() for call in calls]
        _judge(storage, rush, answers)
    finally:
        storage.delete_many((calm, rush))


def _judge(storage: Storage, name: str, answers: list[bool]) -> None:
    winners = [number for number, won in enumerate(answers) if won]
    if len(winners) != 1 or storage.get(name) != _content(name, winners[0]):
        raise UnsupportedFeatureError(
            f"{storage.url} let {len(winners)} of {len(answers)} writers create one and the same object",
            feature="atomic-create",
            hint="Writers would overwrite each other's commits there; keep tables in a store with conditional "
            "writes (If-None-Match).",
        )


def _probe_name(runtime: Runtime) -> str:
    return names.temporary_name("anabranch-probe", runtime.ids.uuid())


def _content(name: str, number: int) -> bytes:
    return f"{name} {number}\n".encode()
