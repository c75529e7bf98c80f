"""The page "Deploying on S3 and a cluster", followed literally: a real S3 server, a standalone cluster, an environment sent along."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

import anabranch
from tests.spark.elsewhere import ROOT
from tests.support.interpreters import elsewhere, without_anabranch
from tests.support.s3 import running_s3

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.long]

PAGE = ROOT / "docs" / "deploying.md"
INSTALL = "environment/bin/pip install 'anabranch[spark]'"
INSTALLED = """
import pathlib, shutil, sys
home = next(pathlib.Path("environment/lib").glob("python3*")) / "site-packages"
(home / "others.pth").write_text({others!r} + chr(10))
shutil.copytree({source!r}, home / "anabranch", ignore=shutil.ignore_patterns("__pycache__"))
command = pathlib.Path("environment/bin/anabranch")
python = pathlib.Path("environment/bin/python").absolute()
command.write_text(f"#!{{python}}\\nfrom anabranch.cli.main import main\\nmain()\\n")
command.chmod(0o755)
"""


@pytest.fixture
def bare(monkeypatch):
    """A machine on which nothing is found by the environment: cluster and commands start from here."""
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "AWS_PROFILE", "ANABRANCH_CHECKPOINTS", "ANABRANCH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def ran(command, folder, **environment):
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_the_page(bare, cluster, tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "set -e\n" + "".join(blocks)
    installing = tmp_path / "install.py"
    source = str(ROOT / "src" / "anabranch")
    installing.write_text(INSTALLED.format(others=sysconfig.get_path("purelib"), source=source))
    (tmp_path / "s3").mkdir()
    with running_s3(tmp_path / "s3") as server:
        values = {
            "s3://company-lake": f"s3://{server.bucket}",
            "spark://spark.example.com:7077": cluster,
            "https://s3.example.com": server.endpoint,
            '"lake-writer"': f'"{server.access_key}"',
            '"..."': f'"{server.secret_key}"',
            INSTALL: f"{sys.executable} {installing}",
            "python3 -m venv environment": f"{sys.executable} -m venv --without-pip environment",
        }
        for shown, own in values.items():
            assert shown in script, shown
            script = script.replace(shown, own)
        (home := tmp_path / "home").mkdir()
        said = ran(["bash", "-c", script], home, HOME=str(home))
    tried, _, rest = said.partition("shop.")
    assert re.search(r"executors: .*Python .*\(.*/environment/bin/python\), anabranch ", tried), tried
    assert "failed" not in tried
    assert "Rome" in rest.splitlines()[-1], rest
    assert "Bonn" not in rest.splitlines()[-1], rest


def test_a_zip_of_the_package(bare, cluster, tmp_path):
    lake = anabranch.connect(str(tmp_path / "lake"))
    for table in ("events", "copies"):
        lake.create_table(f"db.{table}", "k BIGINT")
    lake.table("db.events").append([{"k": k} for k in range(10)])
    (tmp_path / "jobs.py").write_text(
        "import anabranch\n\n"
        '@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies")\n'
        "def copies(events):\n    return events\n"
    )
    (tmp_path / "package").mkdir()
    hidden = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "anabranch", tmp_path / "package" / "anabranch", ignore=hidden)
    zipped = shutil.make_archive(str(tmp_path / "anabranch"), "zip", tmp_path / "package")
    command = [
        sys.executable, "-m", "anabranch", "-w", lake.url, "run", "jobs.py", "--master", cluster, "--available-now",
        "--conf", f"spark.pyspark.python={elsewhere(tmp_path / 'python', without_anabranch(tmp_path / 'bare'))}",
        "--conf", "spark.executor.memory=600m",
        "--conf", f"spark.submit.pyFiles={zipped}", "--conf", f"spark.files={zipped}",
    ]  # fmt: skip
    ran(command, tmp_path, PYTHONPATH=str(ROOT / "src"))
    assert sorted(row["k"] for row in lake.table("db.copies").scan().to_arrow().to_pylist()) == list(
        range(10)
    )
