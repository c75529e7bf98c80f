"""Job files: Python files that declare jobs, run like scripts."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError, did_you_mean
from anabranch.jobs.job import Declared, Job, collecting

_PYTHONPATH = "PYTHONPATH"
_PREFIX = "_anabranch_jobs_"
"""Of the names of modules that job files become."""


class JobFileError(AnabranchError):
    """A job file raised an error; it is the cause."""


class NoSessionError(JobFileError):
    """A job file needs a running Spark, as ``F.udf("bigint")`` does, which has Spark parse the type."""


@dataclass(frozen=True)
class JobFile:
    """A job file as a module, and its jobs."""

    path: Path
    module: ModuleType
    jobs: tuple[Job, ...]


def load(path: str | os.PathLike[str]) -> JobFile:
    """Run a job file and take the jobs that it declares or imports by name, in their order.

    The folder of the file can be imported from, as it can from a script.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it declares no jobs, or two of one name; or a declaration is wrong.
        JobFileError: it raised something else.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise NotFoundError(f"there is no job file '{path}'", hint="name a Python file that declares jobs.")
    module, declared = _run(file)
    values = [value for value in vars(module).values() if isinstance(value, Job)]
    own = [one.job for one in declared if Path(one.file) == file]
    jobs = {id(job): job for job in [*own, *values]}  # one place may declare many, in a loop or a function
    if not jobs:
        raise InvalidInputError(
            f"{path} declares no jobs",
            hint='decorate a function with @anabranch.job("name", sources=..., sink=...).',
        )
    return JobFile(file, module, unique(tuple(jobs.values())))


def load_all(paths: Sequence[str | Path]) -> list[JobFile]:
    """Load several files, as `load`; a name may occur once in all of them."""
    loaded = [load(path) for path in dict.fromkeys(Path(path).resolve() for path in paths)]
    unique(jobs_of(loaded))
    return loaded


def jobs_of(files: Iterable[JobFile]) -> tuple[Job, ...]:
    """Return the jobs of several files, in order; a job imported from one file into another appears once."""
    return tuple({(job.place, job.name): job for file in files for job in file.jobs}.values())


def unique(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Return the same jobs. Raises `InvalidInputError` if two have one name."""
    known: dict[str, Job] = {}
    for job in jobs:
        other = known.setdefault(job.name, job)
        if other is not job:
            raise InvalidInputError(
                f"two jobs are called '{job.name}': {other.place} and {job.place}",
                hint="a job's name is its identity in checkpoints and lineage: give one of them another.",
            )
    return jobs


def travel(jobs: Iterable[Job], spark: Any) -> None:
    """Make functions of job files picklable by value for Spark's processes, which cannot import these files.

    Modules that lie beside a file are found by the processes of this machine; on others, Spark's ``--py-files`` does it.
    """
    from pyspark import cloudpickle

    context = getattr(spark, "_sc", None)  # none with Spark Connect
    for job in jobs:
        if context is not None and Path(job.place.file).is_file():
            known = context.environment.get(_PYTHONPATH, "")
            folders = [folder for folder in known.split(os.pathsep) if folder]
            folders = [str(Path(job.place.file).parent), *folders]
            context.environment[_PYTHONPATH] = os.pathsep.join(dict.fromkeys(folders))
        module = sys.modules.get(getattr(job.transform, "__module__", ""))
        if module is not None and module.__name__.startswith(_PREFIX):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class _FromSource(SourceFileLoader):
    """Loads a file by its content.

    Python takes stored byte code for that of a file that has the same size and the same second: what a deployment that
    sets times, such as a container image, has put there anew would run as it was before.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _run(file: Path) -> tuple[ModuleType, list[Declared]]:
    name = f"{_PREFIX}{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
    if file.suffix != ".py":
        raise InvalidInputError(f"'{file.name}' is no Python file", hint="job files end with .py.")
    loader = _FromSource(name, str(file))
    spec = spec_from_loader(name, loader)
    assert spec is not None, "the loader was given"
    module = module_from_spec(spec)
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module  # dataclasses and pickle look there
    try:
        with collecting() as declared:
            loader.exec_module(module)
    except AnabranchError:
        raise
    except (Exception, SystemExit) as error:
        kind = NoSessionError if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) else JobFileError
        raise kind(
            f"{file.name} cannot be run: {_place_in(error, file)}{type(error).__name__}: {error}",
            hint="`run` with --debug shows the traceback.",
        ) from error
    return module, declared


def _place_in(error: BaseException, file: Path) -> str:
    """Return the last line of the file on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: "
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f"line {line}: "


def chosen(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """Return the jobs of these names, in the order of their declaration; all of them if none are named.

    Raises `NotFoundError` naming those there are.
    """
    known = {job.name: job for job in jobs}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"declared are: {', '.join(known)}.")
            raise NotFoundError(f"there is no job '{name}'", hint=hint)
    return [job for job in jobs if not names or job.name in names]


def feeds(jobs: Sequence[Job]) -> dict[str, frozenset[str]]:
    """Return, by the name of a job, those whose sinks it reads."""
    writers: dict[str, list[str]] = {}
    for job in jobs:
        writers.setdefault(job.sink, []).append(job.name)
    return {
        job.name: frozenset(name for table in job.tables for name in writers.get(table, ())) for job in jobs
    }


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs so that each comes after those that feed it, otherwise as they were declared.

    Raises `InvalidInputError` if jobs feed each other in a circle.
    """
    by_name: Mapping[str, Job] = {job.name: job for job in jobs}
    place = {job.name: number for number, job in enumerate(jobs)}
    sorter = TopologicalSorter(feeds(jobs))
    try:
        sorter.prepare()
    except CycleError as error:
        circle = error.args[1]
        named = " -> ".join(circle)
        what = "reads its own sink" if len(circle) == 2 else f"feed each other in a circle: {named}"
        who = str(by_name[circle[0]]) if len(circle) == 2 else "jobs"
        raise InvalidInputError(
            f"{who} {what}", hint="what a job writes would come back to it for ever: write to another table."
        ) from None
    ordered: list[Job] = []
    ready = list(sorter.get_ready())
    while ready:
        ready.sort(key=place.__getitem__)
        name = ready.pop(0)
        ordered.append(by_name[name])
        sorter.done(name)
        ready += sorter.get_ready()
    return ordered
