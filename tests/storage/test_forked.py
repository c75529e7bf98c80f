"""A forked process says what is wrong, in place of waiting for threads that are not there."""

import os
import subprocess
import sys
import textwrap

import pytest

import anabranch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")

PROGRAM = """
import os, faulthandler, warnings
import anabranch
warnings.simplefilter("ignore")  # newer Pythons warn of any fork beside threads
table = anabranch.connect({url!r}, options={options!r}).table("db.t")
{before}
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        print(table.scan("id > 0").to_arrow().num_rows, "rows", flush=True)
        os._exit(0)
    except anabranch.UnsupportedFeatureError as error:
        print(error.message, error.hint, flush=True)
        os._exit(3)
status = os.waitpid(child, 0)[1]
print(table.scan("id > 0").to_arrow().num_rows, "rows in the parent")
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def forked(url, options, before):
    program = textwrap.dedent(PROGRAM).format(url=url, options=options, before=before)
    return subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def local(tmp_path):
    make(str(tmp_path), {})
    return str(tmp_path), {}


def make(url, options):
    table = anabranch.connect(url, options=options).create_table("db.t", "id BIGINT")
    table.append([{"id": 0}, {"id": 1}])


@pytest.mark.long
def test_a_process_forked_before_the_first_read_reads(local):
    done = forked(*local, before="")
    assert (done.returncode, done.stdout) == (0, "1 rows\n1 rows in the parent\n"), done.stderr


def test_one_forked_after_it_says_so(local):
    done = forked(*local, before="table.scan().to_arrow()")
    assert done.returncode == 3, done.stderr
    assert "was forked from" in done.stdout
    assert "the threads of Polars do not outlive a fork" in done.stdout
    assert "multiprocessing.get_context('spawn')" in done.stdout
    assert done.stdout.endswith("1 rows in the parent\n")


@pytest.mark.long
@pytest.mark.s3
def test_one_forked_after_a_request_to_an_object_store_says_so(s3_server):
    url = s3_server.new_url()
    make(url, s3_server.options)
    done = forked(url, s3_server.options, before="")  # opening a table has asked for it
    assert done.returncode == 3, done.stderr
    assert "the threads of obstore do not outlive a fork" in done.stdout


VERBS = """
import faulthandler, os, subprocess, sys, warnings
import anabranch
warnings.simplefilter("ignore")
url = sys.argv[1]
table = anabranch.connect(url).table("db.t")
table.scan().to_arrow()
appends = "import anabranch, sys; anabranch.connect(sys.argv[1]).table('db.t').append([dict(id=9, p='c')])"
subprocess.run([sys.executable, "-c", appends, url], check=True)  # of which this process knows no manifest
verbs = dict(
    append=lambda: table.append([{"id": 6, "p": "a"}]),
    verify=lambda: table.verify(),
    repair=lambda: table.repair(),
    merge=lambda: table.merge_branch("fix"),
    expire=lambda: table.expire_snapshots(retain_max=2),
    orphans=lambda: table.remove_orphan_files(),
    overwrite=lambda: table.overwrite([{"id": 5, "p": "a"}]),
    replace=lambda: table.replace([{"id": 5, "p": "a"}], where="p = 'a'"),
    sort=lambda: table.sort_compact("id"),
    compact=lambda: table.compact(full=True),
    diff=lambda: table.diff("main", "fix").rows().count(),
)
for name, verb in verbs.items():
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True)
        try:
            verb()
        except anabranch.UnsupportedFeatureError as error:
            print(name, error.message, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


def test_no_verb_of_one_forked_after_a_read_waits_for_ever(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, p STRING", partition_by="p")
    for row in range(4):
        table.append([{"id": row, "p": "a"}, {"id": 10 + row, "p": "b"}])
    table.create_branch("fix", snapshot=3)
    table.branch("fix").append([{"id": 20, "p": "a"}])
    command = [sys.executable, "-c", VERBS, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the threads of Polars do not outlive a fork") == 11, done.stdout
