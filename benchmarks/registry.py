"""The benchmarks by name, and what one of them is given and gives back."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contestants import Contestant, Lap, WorkerError, run_worker


@dataclass(frozen=True)
class Measure:
    """What a contestant took for a piece of work: the median, all runs, and the median memory."""

    seconds: float
    runs: tuple[float, ...]
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Verdict:
    """A target and how near Anabranch came: `value` is met when it is not above `limit`."""

    target: str
    value: float
    limit: float
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the target was reached."""
        return self.value <= self.limit


@dataclass(frozen=True)
class Row:
    """One piece of work and all contestants' measures of it."""

    work: str
    measures: Mapping[str, Measure]
    verdicts: Sequence[Verdict] = ()
    note: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A topic: one file, one table of the report."""

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    run: Callable[[Run], list[Row]]


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(
    name: str, title: str, *contestants: Contestant
) -> Callable[[Callable[[Run], list[Row]]], Callable[[Run], list[Row]]]:
    """Register the function that follows; its docstring introduces the table."""

    def register(function: Callable[[Run], list[Row]]) -> Callable[[Run], list[Row]]:
        BENCHMARKS[name] = Benchmark(name, title, contestants, function)
        return function

    return register


@dataclass
class Run:
    """What a benchmark works with: a scratch folder, sizes, and the measuring itself."""

    scratch: Path
    quick: bool
    log: Callable[[str], None]
    repetitions: int = field(init=False)

    def __post_init__(self) -> None:
        self.repetitions = 1 if self.quick else 5

    def size(self, full: int, quick: int) -> int:
        """A size that `--quick` makes smaller."""
        return quick if self.quick else full

    def laps(self, contestant: Contestant, operation: str, **arguments: Any) -> Lap:
        """One run of one contestant."""
        return run_worker(contestant, operation, arguments, scratch=self.scratch)

    def measure(
        self,
        work: str,
        operation: str,
        arguments: Mapping[Contestant, dict[str, Any]],
        *,
        fresh: bool = False,
    ) -> dict[str, Measure]:
        """Median over several rounds; the contestants take turns, each time in a new process.

        All must find the same facts, or the comparison is void. With `fresh`, what a round wrote below its
        `home` is removed before the next one and the last round's stays.
        """
        laps: dict[str, list[Lap]] = {contestant.name: [] for contestant in arguments}
        for number in range(self.repetitions):
            for contestant, given in arguments.items():
                if fresh and number:
                    shutil.rmtree(given["home"])
                self.log(f"  {work}: {contestant.name} ({number + 1}/{self.repetitions})")
                laps[contestant.name].append(self.laps(contestant, operation, **given))
        facts = {name: found[-1].facts for name, found in laps.items()}
        if len({str(sorted(fact.items())) for fact in facts.values()}) > 1:
            raise WorkerError(f"{work}: the contestants disagree: {facts}")
        return {name: median(found) for name, found in laps.items()}


def median(laps: Sequence[Lap]) -> Measure:
    """The middle of several runs."""
    runs = tuple(sum(lap.seconds) for lap in laps)
    return Measure(statistics.median(runs), runs, int(statistics.median(lap.peak_bytes for lap in laps)))


def ratio_to(measures: Mapping[str, Measure], ours: str, names: Sequence[str], limit: float) -> Verdict:
    """Our time over the best of the named ones."""
    best = min(names, key=lambda name: measures[name].seconds)
    label = f"at most {limit} x {best if len(names) == 1 else 'the best peer'}"
    return Verdict(label, measures[ours].seconds / measures[best].seconds, limit, f"x {best}")


def within(measures: Mapping[str, Measure], ours: str, seconds: float) -> Verdict:
    """Our time against an absolute limit."""
    return Verdict(f"at most {seconds} s", measures[ours].seconds, seconds, "s")
