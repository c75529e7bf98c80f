"""Environments of other implementations, under `.peers/` in the root of the repository.

    python interop/peers.py setup [interop | bench | spark | environments | release | PEER ...]
    python interop/peers.py list

Every peer lives in its own virtual environment, made with the interpreter that runs this script and
ordinary `pip`. Setting up twice does nothing: a stamp in each environment records what it was made from.
Only the standard library is used, so that the script runs anywhere.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PEERS = REPOSITORY / ".peers"
RECIPE = 2
"""Counts changes of the set-up steps themselves; part of every stamp."""

BRIDGE_SOURCE = "pypaimon==0.2.0"
"""Its source package carries Java Paimon 0.9.0, with dependencies, in one jar."""
PYSPARK_JARS = (
    "hadoop-client-api-*.jar",
    "hadoop-client-runtime-*.jar",
    "jcl-over-slf4j-*.jar",
    "snappy-java-*.jar",
)
MINIMUM_JAVA = 17
FRAMES = ("duckdb==1.5.5", "pandas==2.3.3", "polars==2.1.0")
"""What rows are handed to in benchmarks, as in the development environment; pypaimon needs Polars below 2."""

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
TESTS = ("pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.120")
WITHOUT_SPARK = ("duckdb", "filters", "pandas", "ui")
"""Extras of Anabranch that are tried with their oldest and their newest libraries."""


def with_extras(*extras: str) -> tuple[str, ...]:
    """Anabranch itself with some extras, and what its tests need."""
    return (f"--editable={REPOSITORY}" + (f"[{','.join(extras)}]" if extras else ""), *TESTS)


def needed(*extras: str) -> list[str]:
    """What Anabranch itself asks for, and some of its extras."""
    of_extras = (PROJECT["optional-dependencies"][extra] for extra in extras)
    return sorted({*PROJECT["dependencies"], *(one for found in of_extras for one in found)})


def oldest(*extras: str) -> list[str]:
    """The lower bounds of what Anabranch asks for, to the letter."""
    return [re.sub(r">=([^,;]+).*", r"==\1", one) for one in needed(*extras)]


class SetupError(Exception):
    """An environment could not be made; the message says what to do."""


@dataclass(frozen=True)
class Peer:
    """One other implementation: what its environment needs and what it is used for."""

    name: str
    requirements: tuple[str, ...]
    uses: tuple[str, ...]
    driver: str | None = None
    prepare: Callable[[Peer], None] | None = None
    is_renewed: bool = False
    """Whether it is made anew each week, for it has the newest versions."""

    @property
    def home(self) -> Path:
        """Directory of the environment."""
        return PEERS / self.name

    @property
    def python(self) -> Path:
        """Interpreter of the environment."""
        return self.home / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def stamp(self) -> str:
        """Changes when the environment must be made anew."""
        has_ours = any(one.startswith("--editable") for one in self.requirements)
        ours = needed(*WITHOUT_SPARK, "spark") if has_ours else []
        week = [time.strftime("week %G-%V")] if self.is_renewed else []
        return "\n".join(
            [f"recipe {RECIPE}", f"python {sys.version_info[:2]}", *self.requirements, *ours, *week]
        )

    @property
    def ready(self) -> bool:
        """Whether the environment is complete and made from the present requirements."""
        stamp = self.home / "stamp"
        return stamp.is_file() and stamp.read_text() == self.stamp

    def environment(self) -> dict[str, str]:
        """Environment variables its processes run with."""
        variables = dict(os.environ, PYTHONPATH="", PYTHONDONTWRITEBYTECODE="1", TMPDIR=tempfile.gettempdir())
        if self.prepare is prepare_java:
            jars = self.home / "jars"
            py4j = next((self.home / "venv").glob("share/py4j/py4j*.jar"))
            variables |= {
                "PEER_JAVA": find_java(),
                "PEER_CLASSPATH": os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar"))),
                "PEER_PY4J_JAR": str(py4j),
            }
        return variables


def prepare_java(peer: Peer) -> None:
    """Take the Paimon jar out of the source package and the libraries it lacks out of PySpark."""
    find_java()
    jars = peer.home / "jars"
    jars.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        log(peer, f"downloading the source package of {BRIDGE_SOURCE}")
        pip(peer, "download", "--no-binary", ":all:", "--no-deps", "--dest", scratch, BRIDGE_SOURCE)
        archive = next(Path(scratch).glob("*.tar.gz"))
        with tarfile.open(archive) as package:
            members = [m for m in package.getmembers() if m.name.endswith(".jar")]
            for member in members:
                log(peer, f"extracting {member.name}")
                source = package.extractfile(member)
                assert source is not None
                with (jars / Path(member.name).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    if not members:
        raise SetupError(f"the source package of {BRIDGE_SOURCE} holds no jar")
    for jar in pyspark_jars():
        log(peer, f"copying {jar.name} from PySpark")
        shutil.copy(jar, jars)


def pyspark_jars() -> list[Path]:
    """Hadoop's client and Snappy, which Paimon's own jar leaves out; PySpark's package carries them."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupError(
            "Java Paimon needs Hadoop's client jars, which are taken from an installed PySpark: "
            "run this with the interpreter of the development environment (`make` sets it up)"
        )
    folder = Path(spec.origin).parent / "jars"
    found = [jar for pattern in PYSPARK_JARS for jar in sorted(folder.glob(pattern))]
    if len(found) < len(PYSPARK_JARS):
        raise SetupError(f"the installed PySpark lacks some of {', '.join(PYSPARK_JARS)}")
    return found


def find_java() -> str:
    """The `java` of JAVA_HOME or of PATH, checked to be new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME ({home})" if home else "PATH, and JAVA_HOME is not set"
        raise SetupError(f"Java Paimon needs Java {MINIMUM_JAVA} or later: no `java` found on {where}")
    said = run([java, "-version"]).stdout
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        first = said.splitlines()[0] if said else "nothing"
        raise SetupError(f"Java Paimon needs Java {MINIMUM_JAVA} or later: `java -version` says {first}")
    return java


PEERS_BY_NAME = {
    peer.name: peer
    for peer in (
        Peer(
            "pypaimon-2.1",
            ("pypaimon==2.1.0", "duckdb==1.5.5"),
            ("interop", "bench"),
            "interop.drivers.pypaimon",
        ),
        Peer("java-0.9", ("py4j==0.10.9.7",), ("interop",), "interop.drivers.java_paimon", prepare_java),
        Peer("pypaimon-rust-0.4", ("pypaimon-rust==0.4.0", "pyarrow==26.0.1"), ("bench",)),
        Peer("deltalake", ("deltalake==1.6.6", "pyarrow==26.0.1", *FRAMES), ("bench",)),
        Peer("pyiceberg", ("pyiceberg[pyarrow,sql-sqlite]==0.12.0", "pyarrow==26.0.1", *FRAMES), ("bench",)),
        # Older versions of Spark that are supported; the newest is in the development environment.
        Peer("spark-4.1", ("pyspark==4.1.4", *with_extras("spark")), ("spark",)),
        Peer("spark-4.2", ("pyspark==4.2.1", *with_extras("spark")), ("spark",)),
        # The same libraries as users may have them.
        Peer("core", with_extras(), ("environments",)),
        Peer("oldest", (*oldest(*WITHOUT_SPARK), *with_extras(*WITHOUT_SPARK)), ("environments",)),
        Peer("newest", with_extras(*WITHOUT_SPARK), ("environments",), is_renewed=True),
        # What builds a release and looks at it as an index does.
        Peer("release", ("build>=1.2", "twine>=6", "readme_renderer[md]>=44"), ("release",)),
    )
}


def setup(peer: Peer) -> None:
    """Make the environment unless it is ready."""
    if peer.ready:
        log(peer, "ready")
        return
    shutil.rmtree(peer.home, ignore_errors=True)
    peer.home.mkdir(parents=True)
    log(peer, "making a virtual environment")
    check(run([sys.executable, "-m", "venv", str(peer.home / "venv")]))
    log(peer, f"installing {', '.join(peer.requirements)}")
    pip(peer, "install", *peer.requirements)
    if peer.prepare is not None:
        peer.prepare(peer)
    (peer.home / "stamp").write_text(peer.stamp)
    log(peer, "ready")


def pip(peer: Peer, *arguments: str) -> None:
    """Run the environment's pip."""
    check(run([str(peer.python), "-m", "pip", "--disable-pip-version-check", *arguments]))


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command and keep what it says, errors included."""
    return subprocess.run(  # noqa: S603 - nothing of the commands comes from outside
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def check(result: subprocess.CompletedProcess[str]) -> None:
    """Show what a command said only if it failed."""
    if result.returncode:
        raise SetupError(f"`{' '.join(result.args)}` failed:\n{result.stdout}")


def chosen(names: Iterable[str]) -> list[Peer]:
    """Peers by name or by use; all of them for no name."""
    wanted = list(names)
    known = {use for peer in PEERS_BY_NAME.values() for use in peer.uses} | set(PEERS_BY_NAME)
    if unknown := sorted(set(wanted) - known):
        raise SetupError(
            f"no peer or use is called {', '.join(unknown)}: there are {', '.join(sorted(known))}"
        )
    return [p for p in PEERS_BY_NAME.values() if not wanted or {p.name, *p.uses} & set(wanted)]


def log(peer: Peer, message: str) -> None:
    """Say what happens."""
    print(f"{peer.name}: {message}", flush=True)  # noqa: T201 - a command's output


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when every chosen peer is ready."""
    parser = argparse.ArgumentParser(description="Environments of other implementations.")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("setup", help="make the environments that are missing")
    make.add_argument("names", nargs="*", metavar="PEER_OR_USE")
    commands.add_parser("list", help="show the peers and whether they are ready")
    options = parser.parse_args(arguments)
    try:
        if options.command == "setup":
            for peer in chosen(options.names):
                setup(peer)
        else:
            for peer in PEERS_BY_NAME.values():
                log(peer, f"{'ready' if peer.ready else 'missing'} ({', '.join(peer.uses)})")
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command's output
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
