"""A clock that can be set: what Python runs when it starts, in the processes of the service."""

from pathlib import Path

STARTUP = """
import os, runpy, time

_OFFSET = {offset!r}
_time, _time_ns = time.time, time.time_ns


def _seconds():
    try:
        return os.stat(_OFFSET).st_size * 60 * (-1 if os.path.exists(_OFFSET + ".back") else 1)
    except OSError:
        return 0


time.time = lambda: _time() + _seconds()
time.time_ns = lambda: _time_ns() + _seconds() * 1_000_000_000
runpy.run_path({other!r})
"""


class SetClock:
    """Sets the clock of Python processes that are started with its folder on their path. The JVM's goes on."""

    def __init__(self, folder):
        self.folder, self.offset = folder, folder / "minutes"
        folder.mkdir()
        other = Path(__file__).parents[1] / "support" / "python_startup" / "sitecustomize.py"
        (folder / "sitecustomize.py").write_text(STARTUP.format(offset=str(self.offset), other=str(other)))

    def set(self, minutes):
        """Set the clock so many minutes ahead, or behind if negative."""
        back = self.offset.with_name("minutes.back")
        if minutes < 0:
            back.touch()
        else:
            back.unlink(missing_ok=True)
        self.offset.write_bytes(b"x" * abs(minutes))
