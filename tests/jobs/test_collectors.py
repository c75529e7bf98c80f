"""A real Prometheus and the real exporter of OpenTelemetry, and whether what they got is what the tables say."""

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import pytest

import anabranch
from anabranch.jobs.metrics import metrics_of
from anabranch.jobs.status import Activity, JobStatus, State
from tests.support.tables import make_table, rows


@pytest.fixture
def metrics(tmp_path):
    """Figures of a job that is two snapshots behind, after three batches and a failure."""
    table = make_table(tmp_path / "wh")
    for number in range(5):
        table.append(rows(number, 10))
    made = metrics_of(str(tmp_path / "wh"))
    status = JobStatus(
        "clean", "db.sink", State.RUNNING, activity=Activity.IDLE, restarts=1, batch_millis=5_000
    )
    for batch in range(3):
        made.note([replace(status, batch=batch, rows=10, rows_per_second=4.5, read={"db.t": batch + 1})])
    made.note(
        [replace(status, batch=2, rows=10, read={"db.t": 3}, last_error="away", last_error_millis=9_000)]
    )
    return made


def behind(folder):
    """What the table says of somebody who has read up to snapshot 3."""
    return anabranch.connect(str(folder / "wh")).table("db.t").snapshot.id - 3


def test_prometheus_takes_the_figures(metrics, tmp_path):
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (apt-get install prometheus)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with metrics.served(0) as address:
        target = address.removeprefix("http://").partition("/")[0]
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "anabranch", "static_configs": [{"targets": [target]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        words = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        words += [f"--web.listen-address=127.0.0.1:{port}"]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        try:

            def asked(query):
                url = f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': query})}"
                try:
                    with urllib.request.urlopen(url) as answer:
                        return json.load(answer)["data"]["result"]
                except OSError:
                    return []

            end = time.monotonic() + 120
            while not (found := asked("anabranch_job_rows_total")):
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < end, (tmp_path / "log").read_text()
                time.sleep(0.2)
            (rows_read,) = found
            assert float(rows_read["value"][1]) == 30
            labels = {"job_name": "clean", "sink": "db.sink", "job": "anabranch"}
            assert labels.items() <= rows_read["metric"].items()
            values = {
                name: float(asked(f"anabranch_job_{name}")[0]["value"][1])
                for name in ("batches_total", "failures_total", "restarts_total", "behind_snapshots")
            }
            assert values == {
                "batches_total": 3,
                "failures_total": 1,
                "restarts_total": 1,
                "behind_snapshots": behind(tmp_path),
            }
            assert [one["metric"]["state"] for one in asked("anabranch_job_state == 1")] == ["idle"]
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def collector(monkeypatch):
    """Takes what exporters send over HTTP; yields all points, by name and labels."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service

    points = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = service.ExportMetricsServiceRequest.FromString(body)
            for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
                for point in [*metric.gauge.data_points, *metric.sum.data_points]:
                    labels = tuple(sorted((one.key, one.value.string_value) for one in point.attributes))
                    points[metric.name, labels] = (
                        point.as_double if point.HasField("as_double") else point.as_int,
                        metric.unit,
                        metric.WhichOneof("data"),
                    )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    yield points
    server.shutdown()
    server.server_close()


def test_opentelemetry_pushes_the_same_figures(metrics, collector, tmp_path):
    from anabranch.jobs.metrics import exporting

    with exporting(metrics):
        pass
    who = (("job_name", "clean"), ("sink", "db.sink"))
    found = {name: value for (name, labels), value in collector.items() if labels == who}
    assert found["anabranch.job.rows"] == (30, "{row}", "sum")
    assert found["anabranch.job.batches"][0] == 3
    assert found["anabranch.job.failures"][0] == 1
    assert collector["anabranch.job.behind_snapshots", (*who, ("source", "db.t"))][0] == behind(tmp_path)
    states = {
        dict(labels)["state"] for (name, labels), value in collector.items() if "state" in name and value[0]
    }
    assert states == {"idle"}


@pytest.mark.long
def test_a_collector_that_is_away_harms_nothing(metrics, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from anabranch.jobs.metrics import exporting

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    begun = time.monotonic()
    with exporting(metrics):
        pass
    assert time.monotonic() - begun < 60
