"""The verb `ui`."""

import http.client
import re
import signal
import subprocess
import sys

import pytest

from anabranch.cli.main import run


def test_the_command_prints_an_address_and_ends_with_an_interrupt(warehouse):
    words = [sys.executable, "-m", "anabranch", "-w", str(warehouse), "ui", "--no-browser", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            port, query = re.search(
                r"http://127\.0\.0\.1:(\d+)/\?(token=[0-9a-f]{64})$", line.strip()
            ).groups()
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
            connection.request("GET", f"/?{query}")
            cookie = connection.getresponse().headers["set-cookie"].partition(";")[0]
            connection.close()
            waiting = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
            waiting.request("GET", "/api/events?table=shop.orders", headers={"cookie": cookie})
            assert waiting.getresponse().readline().startswith(b"data: ")
        finally:
            server.send_signal(signal.SIGINT)
        _, told = server.communicate(timeout=20)
        waiting.close()
    assert server.returncode == 0
    assert told.splitlines() == ["Ctrl-C ends it. Who has this address sees the lake."]


CONVERTS = """
import sys
from anabranch.verbs.memory import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
assert pa.table({"a": [1, None], "b": ["x", "y"]}).to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
assert "pandas" not in sys.modules
import pandas as pd
assert pa.Table.from_pandas(pd.DataFrame({"a": [1]})).num_rows == 1
keep_pandas_out()
assert pa.array(pd.Series([1, 2])).to_pylist() == [1, 2]
"""


def test_arrow_does_not_load_pandas_into_the_server_but_who_wants_it_has_it():
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", CONVERTS], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_the_extra_it_says_how_to_have_it(warehouse, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["-w", str(warehouse), "ui", "--no-browser"]) == 1
    assert "pip install 'anabranch[ui]'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--jobs", "--checks"])
def test_a_file_that_is_not_there_is_said_before_anything_is_served(warehouse, tmp_path, capsys, option):
    words = ["ui", "--no-browser", "--allow-actions", option, str(tmp_path / "nothing")]
    assert run(["-w", str(warehouse), *words]) == 1
    assert "there is no file" in capsys.readouterr().err


def test_a_warehouse_that_is_not_there_is_said_before_anything_is_served(tmp_path, capsys):
    assert run(["-w", str(tmp_path / "nothing"), "ui", "--no-browser"]) == 1
    assert "nothing" in capsys.readouterr().err
