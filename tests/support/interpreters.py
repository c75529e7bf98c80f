"""Pythons as the executors of a cluster have them: of another version, without a package, on a machine that does not share a disk."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]


def of_another_version():
    """A Python that is not of this one's version; None if there is none on this machine."""
    for minor in (12, 13, 10, 14):
        if minor == sys.version_info.minor:
            continue
        pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
        places = [shutil.which(f"python3.{minor}"), *sorted(pyenv.glob(f"3.{minor}.*/bin/python3"))]
        for place in filter(None, places):
            done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
            if f"3.{minor}." in done.stdout:
                return str(place)
    return None


def without_anabranch(folder):
    """A Python of this version that has what this one has, except Anabranch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    home = Path(folder) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    # Of a folder that is named in such a file others are not read, by which an editable install would be found.
    (home / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return _script(
        Path(folder) / "python",
        f'PYTHONPATH=$(echo "$PYTHONPATH" | tr : "\n" | grep -v -x -F -e {ROOT} -e {ROOT / "src"} | paste -sd :)',
        "export PYTHONPATH",
        f'exec {folder}/bin/python "$@"',
    )


def elsewhere(script, python):
    """This Python on the driver's machine, and under the same path another one on those of executors, as it were.

    Spark's standalone workers start executors in folders ``work/app-...``.
    """
    return _script(
        script, f'case $PWD in */work/app-*) exec {python} "$@";; esac', f'exec {sys.executable} "$@"'
    )


def with_another_anabranch(script, folder, version):
    """This Python, which on the machines of executors finds another version of Anabranch in its PYTHONPATH."""
    copy = Path(folder) / "anabranch"
    shutil.copytree(ROOT / "src" / "anabranch", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "version.py").write_text(f'__version__ = "{version}"\n')
    path = f"PYTHONPATH={folder}:$PYTHONPATH"
    return elsewhere(script, f"env {path} {sys.executable}")


def blind(script, hidden):
    """This Python, on a machine that does not have what lies in a folder."""
    user = "" if os.geteuid() == 0 else "r"
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    return _script(script, f"exec unshare -{user}m sh -c '{mount}' {hidden} {sys.executable} \"$@\"")


def can_be_blind():
    """Whether this machine lets a process have file systems of its own."""
    user = "" if os.geteuid() == 0 else "r"
    done = subprocess.run(["unshare", f"-{user}m", "true"], capture_output=True, check=False)
    return done.returncode == 0


def _script(path, *lines):
    path = Path(path)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)
