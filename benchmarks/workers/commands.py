"""One command of a command line, or one import, in a new process each time. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.workers.harness import Clock, main


def command(
    clock: Clock, home: str = "", words: list[str] | None = None, code: str | None = None
) -> dict[str, Any]:
    """Run it twice; the second time counts. Raises where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PYICEBERG_CATALOG__BENCH__URI": f"sqlite:///{home}/catalog.db",
        "PYICEBERG_CATALOG__BENCH__WAREHOUSE": f"file://{home}",
    }
    if code is not None:
        line = [sys.executable, "-c", code]
    else:
        assert words is not None
        config = Path(home) / "paimon.yaml"
        config.write_text(f"metastore: filesystem\nwarehouse: {home}\n")
        named = [word.replace("HOME", home).replace("CONFIG", str(config)) for word in words]
        line = [str(Path(sys.executable).parent / named[0]), *named[1:]]
    subprocess.run(line, env=environment, check=True, capture_output=True)
    with clock.lap():
        done = subprocess.run(line, env=environment, check=True, capture_output=True)
    assert code is not None or done.stdout, line
    return {}


if __name__ == "__main__":
    main({"command": command})
