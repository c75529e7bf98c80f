"""Figures of supervised jobs for OpenTelemetry: the same as for Prometheus, pushed to a collector.

Where it is, and how often it is told, say the variables of OpenTelemetry itself, ``OTEL_EXPORTER_OTLP_ENDPOINT`` and
``OTEL_METRIC_EXPORT_INTERVAL`` among them. Needs ``anabranch[otel]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from anabranch.errors import UnsupportedFeatureError
from anabranch.jobs.metrics import FIGURES, JobMetrics
from anabranch.version import __version__

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
