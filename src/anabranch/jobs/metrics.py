"""Figures of supervised jobs: for Prometheus, as text over HTTP on this machine alone, and for OpenTelemetry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from anabranch.errors import InvalidInputError, UnsupportedFeatureError
from anabranch.jobs.records import Behind, behind
from anabranch.jobs.status import Activity, JobStatus, State
from anabranch.lake import connect
from anabranch.runtime import SYSTEM, Runtime
from anabranch.version import __version__

_HOST: Final = "127.0.0.1"
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FIGURES: Final = {
    "anabranch_job_state": ("gauge", "1 for the state that the job is in, 0 for the others."),
    "anabranch_job_batches_total": ("counter", "Batches finished since the process began."),
    "anabranch_job_rows_total": ("counter", "Rows read by these batches."),
    "anabranch_job_rows_per_second": ("gauge", "Rows a second of the last finished batch."),
    "anabranch_job_restarts_total": ("counter", "Starts after the first one."),
    "anabranch_job_failures_total": ("counter", "Failures since the process began."),
    "anabranch_job_last_batch_timestamp_seconds": ("gauge", "When the last batch was finished."),
    "anabranch_job_last_failure_timestamp_seconds": ("gauge", "When the job failed last."),
    "anabranch_job_behind_snapshots": ("gauge", "Snapshots of a table that it has not read."),
    "anabranch_job_behind_seconds": ("gauge", "Since the first of them was made."),
}
_STATES: Final = (
    *(s.value for s in State),
    Activity.IDLE.value,
    Activity.STARTING.value,
    Activity.STUCK.value,
)


@dataclass
class _Totals:
    batches: int = 0
    rows: int = 0
    failures: int = 0


@dataclass
class JobMetrics:
    """Figures of the jobs of this process. Thread-safe: `note` from one thread, `text` from others."""

    behind: Callable[[JobStatus], Mapping[str, Behind]] = lambda _: {}
    """How far a job is behind; asked when somebody asks for the figures."""
    _known: dict[str, JobStatus] = field(default_factory=dict)
    _totals: dict[str, _Totals] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, statuses: Sequence[JobStatus]) -> None:
        """Take in what the jobs are doing."""
        with self._lock:
            for status in statuses:
                before, total = self._known.get(status.job), self._totals.setdefault(status.job, _Totals())
                if status.batch is not None and (before is None or status.batch != before.batch):
                    total.batches += 1
                    total.rows += status.rows or 0
                error_before = None if before is None else before.last_error_millis
                total.failures += status.last_error_millis not in (None, error_before)
                self._known[status.job] = status

    def of(self, wanted: str) -> list[tuple[dict[str, str], float]]:
        """Return the values of one figure, with their labels."""
        return [(labels, value) for name, labels, value in self._all() if name == wanted]

    def _all(self) -> Iterator[tuple[str, dict[str, str], float]]:
        with self._lock:
            known = [(status, replace(self._totals[status.job])) for status in self._known.values()]
        for status, total in known:
            yield from _figures(status, total, self.behind(status))

    def text(self) -> str:
        """Return all figures, in the text format of Prometheus."""
        found: dict[str, list[str]] = {name: [] for name in FIGURES}
        for name, labels, value in self._all():
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            found[name].append(f"{name}{{{shown}}} {value:.15g}")
        lines = []
        for name, (kind, meaning) in FIGURES.items():
            if found[name]:
                lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *found[name]]
        return "".join(f"{line}\n" for line in lines)

    @contextmanager
    def served(self, port: int) -> Iterator[str]:
        """Answer ``/metrics`` on this machine while the block runs; yield the address.

        Args:
            port: 0 for any that is free.

        Raises `InvalidInputError` if the port cannot be had.
        """
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path.split("?")[0] in ("/metrics", "/")
                content = metrics.text().encode() if is_known else b"there is /metrics\n"
                with suppress(ConnectionError):  # who asked does not wait for the answer
                    self.send_response(200 if is_known else 404)
                    self.send_header("Content-Type", _TYPE)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: each scrape would be a line."""

        try:
            server = ThreadingHTTPServer((_HOST, port), Handler)
        except OSError as error:
            raise InvalidInputError(
                f"metrics cannot be served on {_HOST}:{port}: {error.strerror}",
                hint="choose another port with --metrics; 0 takes any that is free.",
            ) from error
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        try:
            yield f"http://{_HOST}:{server.server_address[1]}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def metrics_of(warehouse: str, runtime: Runtime = SYSTEM) -> JobMetrics:
    """Return metrics that tell how far jobs are behind the tables of a warehouse."""
    lake = connect(warehouse)
    return JobMetrics(lambda status: behind(status.read or {}, lake, runtime.clock.now_millis()))


def _figures(
    status: JobStatus, total: _Totals, late: Mapping[str, Behind]
) -> Iterator[tuple[str, dict[str, str], float]]:
    who = {"job_name": status.job, "sink": status.sink}  # Prometheus gives `job` a meaning of its own
    is_at = status.activity not in (None, Activity.WORKING)
    current = status.activity.value if is_at and status.activity is not None else status.state.value
    for name in _STATES:
        yield "anabranch_job_state", {**who, "state": name}, float(name == current)
    yield "anabranch_job_batches_total", who, total.batches
    yield "anabranch_job_rows_total", who, total.rows
    yield "anabranch_job_restarts_total", who, status.restarts
    yield "anabranch_job_failures_total", who, total.failures
    if status.rows_per_second is not None:
        yield "anabranch_job_rows_per_second", who, status.rows_per_second
    if status.batch_millis is not None:
        yield "anabranch_job_last_batch_timestamp_seconds", who, status.batch_millis / 1000
    if status.last_error_millis is not None:
        yield "anabranch_job_last_failure_timestamp_seconds", who, status.last_error_millis / 1000
    for table, one in late.items():
        yield "anabranch_job_behind_snapshots", {**who, "source": table}, one.snapshots
        yield "anabranch_job_behind_seconds", {**who, "source": table}, one.seconds


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Figures of supervised jobs for OpenTelemetry: the same as for Prometheus, pushed to a collector.
#
# Where it is, and how often it is told, say the variables of OpenTelemetry itself, ``OTEL_EXPORTER_OTLP_ENDPOINT`` and
# ``OTEL_METRIC_EXPORT_INTERVAL`` among them. Needs ``anabranch[otel]``.

_SCOPE: Final = "anabranch"
_UNITS: Final = {"seconds": "s", "rows": "{row}", "batches": "{batch}", "snapshots": "{snapshot}"}
_END_MILLIS: Final = 5_000
"""How long the end waits for a collector."""


@contextmanager
def exporting(metrics: JobMetrics) -> Iterator[None]:
    """Push the figures while the block runs, and a last time at its end. A collector that is away harms no job.

    Raises `UnsupportedFeatureError`: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.metrics import Observation
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise UnsupportedFeatureError(
            "figures are to go to OpenTelemetry, which is not installed",
            feature="opentelemetry",
            hint="pip install 'anabranch[otel]'",
        ) from error
    resource = Resource.create({"service.name": _SCOPE, "service.version": __version__})
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    meter = provider.get_meter(_SCOPE, __version__)

    def observed(name: str) -> Callable[[Any], Iterable[Any]]:
        def observe(_: Any) -> Iterable[Any]:
            return [Observation(value, labels) for labels, value in metrics.of(name)]

        return observe

    for name, (kind, meaning) in FIGURES.items():
        make = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
        make(_name(name), callbacks=[observed(name)], unit=_unit(name), description=meaning)
    try:
        yield
    finally:
        provider.shutdown(timeout_millis=_END_MILLIS)


def _name(name: str) -> str:
    """Return a figure's name as OpenTelemetry writes names: exporters add units and ``_total`` themselves."""
    return name.removesuffix("_total").removesuffix("_seconds").replace("anabranch_job_", "anabranch.job.")


def _unit(name: str) -> str:
    words = name.removesuffix("_total").split("_")
    return "{row}/s" if name.endswith("rows_per_second") else _UNITS.get(words[-1], "1")
