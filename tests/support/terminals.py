"""A command on a terminal of its own, until it ends."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

COLUMNS = 80
_OWN = ("PAGER", "LESS", "LINES", "COLUMNS", "TERM", "NO_COLOR", "FORCE_COLOR")
"""Variables of whoever runs the tests that change what a terminal shows."""


def on_terminal(*words, code="from anabranch.cli.main import main; main()", lines=24, **environment):
    """Its exit code, and the bytes that it wrote to a terminal of 80 columns. It reads nothing."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, COLUMNS, 0, 0))
    others = {key: value for key, value in os.environ.items() if key not in _OWN}
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**others, "TERM": "xterm-256color", **environment},
    ) as process:
        os.close(slave)
        found = b""
        try:
            while part := os.read(master, 65536):
                found += part
        except OSError:  # how Linux says that it was closed
            pass
        ended = process.wait(60)
    os.close(master)
    return ended, found
