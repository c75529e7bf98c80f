"""A standalone cluster of Spark on this machine, whose workers are on hosts of their own as far as Spark knows."""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path


def stop(process):
    """End a process that leads a group, with all of the group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


@contextlib.contextmanager
def standalone(folder, hosts=("127.0.0.1",), *, cores=2, memory="1500m"):
    """A master and a worker on each host; the address of the master. Executors work in the folder ``work`` of this one."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1",
                   "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_DAEMON_MEMORY": "256m"}  # fmt: skip
    processes = []

    def daemon(name, host, *arguments):
        log = folder / f"{name}-{host}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name.lower()}.{name}"]
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, "--host", host, "--webui-port", "0", *arguments], cwd=folder, stdin=subprocess.DEVNULL,
                env={**environment, "SPARK_LOCAL_IP": host}, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        processes.append(process)
        return log

    def found(pattern, log):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            match = re.search(pattern, log.read_text())
            if match:
                return match[0]
            time.sleep(0.1)
        raise AssertionError(log.read_text())

    try:
        master = found(r"spark://127\.0\.0\.1:\d+", daemon("Master", "127.0.0.1", "--port", "0"))
        size = ("--cores", str(cores), "--memory", memory)
        for log in [daemon("Worker", host, *size, master) for host in hosts]:
            found("Successfully registered with master", log)
        yield master
    finally:
        for process in processes:
            stop(process)
