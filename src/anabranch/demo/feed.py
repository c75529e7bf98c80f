"""The input of the demo's streams: a file of flights for every day, and records for a topic if there is a broker."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa

from anabranch.demo import source
from anabranch.demo.kafka import Airports
from anabranch.errors import AnabranchError
from anabranch.runtime import SYSTEM

_FAST_SECONDS = 0.03
_SLOW_SECONDS = 1.0


class FlightFeed:
    """Delivers the days of a year, one after the other."""

    def __init__(self, days: list[tuple[str, pa.Table]], landing: Path, airports: Airports | None) -> None:
        """Nothing arrives yet.

        Args:
            days: name and flights of each.
            landing: folder for the files.
            airports: the topic, if there is one.
        """
        self._days = days
        self._landing = landing
        self._airports = airports
        self._limit = 0
        self._arrived = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._failure: BaseException | None = None

    @property
    def arrived(self) -> int:
        """Number of days delivered. Raises `AnabranchError` if no more can be."""
        if self._failure is not None:
            raise AnabranchError(f"the demo's flights do not arrive: {self._failure}") from self._failure
        return self._arrived

    def start(self) -> None:
        """Begin to deliver, a little at a time as long as nobody asks for more."""
        self._thread.start()

    def hurry_to(self, share: float) -> int:
        """Deliver this part of all days quickly; return the number of flights in it."""
        self._limit = min(len(self._days), max(2, round(share * len(self._days))))
        return sum(rows.num_rows for _, rows in self._days[: self._limit])

    def close(self) -> None:
        """Stop delivering."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            for number, (name, rows) in enumerate(self._days):
                slow = 0.0
                while number >= self._limit and slow < _SLOW_SECONDS and not self._ended.is_set():
                    SYSTEM.sleeper.sleep(_FAST_SECONDS)
                    slow += _FAST_SECONDS
                if self._ended.wait(_FAST_SECONDS):
                    return
                source.drop(self._landing, name, rows)
                if self._airports is not None:
                    self._airports.send(rows)
                self._arrived = number + 1
        except (AnabranchError, OSError) as error:
            self._failure = error
