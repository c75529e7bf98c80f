"""The files for systemd, Kubernetes, Airflow, Dagster, Prometheus and Grafana fit what the program does."""

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from anabranch.cli.main import app
from anabranch.jobs.metrics import _STATES, FIGURES, JobMetrics
from anabranch.jobs.status import JobStatus, State

FOLDER = Path(__file__).parents[2] / "examples" / "operating"
OPTIONS = {
    name: {option for parameter in command.params for option in parameter.opts}
    for name, command in typer.main.get_command(app).commands.items()
}


def words_of(command):
    words = shlex.split(command) if isinstance(command, str) else command
    return words[[word.rpartition("/")[2] for word in words].index("anabranch") + 1 :]


def check(command):
    """Every option of a command is one, and the limit of a stop is returned."""
    words = words_of(command)
    verb = next(word for word in words if word in OPTIONS)
    given = [word for word in words if word.startswith("--")]
    assert set(given) <= OPTIONS[verb]
    return float(words[words.index("--stop-limit") + 1]) if "--stop-limit" in words else None


def test_the_unit_of_systemd():
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read(FOLDER / "anabranch-jobs.service")
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) > check(service["ExecStart"])
    page = (FOLDER.parents[1] / "docs" / "jobs.md").read_text()
    codes = dict(re.findall(r"^\| (\d+) \| .* \| ([^|]*) \|$", page, re.MULTILINE))
    again = {code for code, what in codes.items() if what.startswith("yes")}
    assert again == {"5"}
    assert not again & set(service["RestartPreventExitStatus"].split())
    assert {"1", "2", "3", "4"} == set(service["RestartPreventExitStatus"].split())
    shown = (FOLDER.parents[1] / "docs" / "operating.md").read_text()
    for key in ("ExecStart", "TimeoutStopSec", "RestartPreventExitStatus", "KillMode", "Restart"):
        assert f"{key}={service[key]}" in shown


def test_the_manifest_of_kubernetes():
    manifest = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] > check(container["command"])
    assert (manifest["spec"]["replicas"], manifest["spec"]["strategy"]) == (1, {"type": "Recreate"})
    probe = container["livenessProbe"]["exec"]["command"][-1]
    check(probe.partition(";")[0])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("name", ["airflow_dag.py", "dagster_assets.py"])
def test_schedulers(name):
    text = (FOLDER / name).read_text()
    compile(text, name, "exec")
    check(re.search(r'"(?:exec )?(anabranch [^"]+)"', text)[1])


def test_dashboards_and_rules_name_figures_that_there_are():
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    rules = yaml.safe_load((FOLDER / "anabranch-rules.yml").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for expr in asked for name in re.findall(r"anabranch_\w+", expr)}
    assert named <= FIGURES.keys()
    states = [s for expr in asked for part in re.findall(r'state=~?"([^"]+)"', expr) for s in part.split("|")]
    assert set(states) <= set(_STATES)
    ports = re.findall(r"\d{4}", (FOLDER / "prometheus.yml").read_text())
    assert set(ports) == {"9464"}


def test_no_label_is_called_as_those_that_prometheus_sets():
    """It would rename ours: ``exported_job``."""
    metrics = JobMetrics()
    metrics.note([JobStatus("clean", "db.t", State.RUNNING)])
    labels = set(re.findall(r'[{,](\w+)="', metrics.text()))
    assert not labels & {"job", "instance"}
    shown = (FOLDER / "grafana.json").read_text() + (FOLDER / "anabranch-rules.yml").read_text()
    assert set(re.findall(r"\{\{ ?(?:\$labels\.)?(\w+)", shown)) <= labels | {"source"}
