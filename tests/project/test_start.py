"""The pages under Start, followed literally in one folder: from `pip install` to a corrected stream, with how long each step takes."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.project.pages import DOCS, ROOT, blocks

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]

PAGES = ("one-minute", "install", "first-table", "first-stream", "first-correction")
SHELL = """
import json, sys, traceback
names = {}
for line in sys.stdin:
    try:
        exec(compile(json.loads(line), "<page>", "exec"), names)
        print("\\x00ok", flush=True)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        print("\\x00failed", flush=True)
"""
"""Python as a person keeps it open beside the terminal: one for each page."""
SECONDS_TO_RUN_ON = 40


class Reader:
    """Somebody with an empty folder and a new environment, who types what the pages say."""

    def __init__(self, folder):
        self.folder, self.took, self.said = folder, {}, ""
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        ours = ("PYTHONPATH", "PYTHONHOME", "PYSPARK_PYTHON", "ANABRANCH_CONFIG", "ANABRANCH_CHECKPOINTS")
        self.environment = {name: value for name, value in os.environ.items() if name not in ours}
        self.environment["PATH"] = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def timed(self, what, do):
        begun = time.monotonic()
        do()
        self.took[what] = time.monotonic() - begun

    def run(self, line):
        """Run one line of a terminal; one that runs on is interrupted after a while."""
        runs_on = line.startswith("anabranch run") and "--available-now" not in line
        with subprocess.Popen(
            line, shell=True, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                self.said, _ = process.communicate(timeout=SECONDS_TO_RUN_ON if runs_on else 900)
            except subprocess.TimeoutExpired:
                assert runs_on, f"{line}: {self.said}"
                os.killpg(process.pid, signal.SIGINT)
                self.said, _ = process.communicate(timeout=120)
        assert process.returncode == 0 or runs_on, f"{line}\n{self.said}"

    def install(self, extra):
        wanted = f"{ROOT}[{extra}]" if extra else str(ROOT)
        done = subprocess.run(
            ["python", "-m", "pip", "install", "--quiet", wanted],
            check=False, capture_output=True, text=True, env=self.environment,
        )  # fmt: skip
        if re.search(r"No matching distribution|Could not fetch|ConnectionError", done.stderr):
            pytest.skip(f"nothing can be installed here: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr


class Python:
    """An open Python."""

    def __init__(self, reader):
        self.process = subprocess.Popen(
            ["python", "-c", SHELL], cwd=reader.folder, env=reader.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def type(self, code):
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            if line.startswith("\x00"):
                assert line == "\x00ok\n", "".join(said)
                return
            said.append(line)
        pytest.fail(f"Python ended: {''.join(said)}")

    def close(self):
        with self.process:
            self.process.stdin.close()


def lines_of(code):
    return [line.strip() for line in code.splitlines() if line.strip() and not line.startswith("#")]


def test_from_an_empty_folder_to_a_corrected_stream(tmp_path, capsys):
    reader, read = Reader(tmp_path), []
    for name in PAGES:
        begun, python = time.monotonic(), None
        if name == "install":
            reader.timed("pip install 'anabranch[spark]'", lambda: reader.install("spark"))
        for block in blocks(DOCS / "start" / f"{name}.md"):
            if block.kind == "python" and block.code.startswith("# jobs.py"):
                (tmp_path / "jobs.py").write_text(block.code, encoding="utf-8")
            elif block.kind == "python":
                python = python or Python(reader)
                python.type(block.code)
            elif block.kind == "sh":
                for line in lines_of(block.code):
                    if line.startswith("pip install"):
                        reader.timed(line, lambda: reader.install(""))
                        continue
                    reader.timed(line, lambda line=line: reader.run(line))
                    if line.startswith("anabranch read db.views"):
                        read.append(reader.said)
        if python is not None:
            python.close()
        reader.took[f"the page {name}"] = time.monotonic() - begun
    with capsys.disabled():
        print("".join(f"\n{seconds:7.1f} s  {what}" for what, seconds in reader.took.items()))
    wrong, right = read
    assert len(re.findall(r"\bclick\b", wrong)) == 5, wrong
    assert "click" not in right
    assert len(re.findall(r"\bview\b", right)) == 10, right
